"""Damaged and forged run folders: the undisturbed result or a one-line error; no outside file is changed."""

import copy
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forging
import pytest
import torch
from resuming import assert_same, config_of, crash_after, outcome, records, timeless, train

from trainers.config.errors import ConfigError
from trainers.run import session, training
from trainers.run.folder import RunFolder

COMMON = ("workers=2", "trainer.batch_size=8", "trainer.steps=9", "checkpoint.every_steps=2")
IMAGES = ("model=mlp", "model.hidden=[8]", "data=digits", "trainer.evaluate_every=0.02")
SETTINGS = {
    "average": (*COMMON, *IMAGES, "compressor=top_k", "trainer.average_reset_epochs=0.03"),
    "hidden_states": (
        *(*COMMON, "model=lstm", "model.width=8", "model.layers=2", "compressor=top_k"),
        *("data=python_docs", "data.vocabulary_size=300", "data.evaluation_columns=64"),
        *("trainer.evaluate_every=100", "trainer.evaluation_batch_size=256"),
    ),
    "search": (
        *(*COMMON, *IMAGES, "trainer.steps=60", "compressor=none", "schedule=autolrs", "schedule.tau=10"),
        *("schedule.tau_max=10", "schedule.trial_steps=5", "schedule.trials=2", "checkpoint.every_steps=7"),
    ),
}
CRASHES = {"average": 7, "hidden_states": 5, "search": 16}
CASES = 500


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Runs:
    """Runs of one setting: the undisturbed result, and folders to damage."""

    def __init__(self, place: Path, name: str) -> None:
        self.place, self.settings = place / name, SETTINGS[name]
        self._config = config_of(place, *self.settings)
        self.whole = train(self.config(self.place / "whole"))
        with crash_after(CRASHES[name]):
            training.train(self.config(self.place / "broken"))

    def config(self, output: Path) -> dict[str, Any]:
        return copy.deepcopy(self._config) | {"output": str(output)}

    def copy(self, place: Path, kind: str = "broken") -> tuple[dict[str, Any], Path]:
        """Copy an interrupted run, or a ``whole`` run without its checkpoint; the test damages the copy."""
        self.was_finished = kind == "whole"
        ignore = shutil.ignore_patterns("checkpoint" if kind == "whole" else "")
        shutil.copytree(self.place / kind, place / "output", ignore=ignore)
        forging.outside_of(RunFolder(self.config(place / "output")).path).mkdir()
        config = self.config(place / "output")
        return config, RunFolder(config).path

    def require(self, config: dict[str, Any], path: Path) -> str:
        """Assert that the run equals the undisturbed one, or one line names the file; return the line."""
        outside = forging.state_of(forging.outside_of(path))
        line = ""
        try:
            session.run(config)
        except ConfigError as refusal:
            line = str(refusal)
            assert line.isprintable() and forging.NAMES_A_FILE.search(line), line
        assert forging.state_of(forging.outside_of(path)) == outside
        folder = RunFolder(config)
        if not line and (_checkpoints(path) or not self.was_finished):
            assert_same(self.whole, outcome(config))
        elif not line:  # the run had finished, and its files are unchanged
            assert timeless(folder.summary()) == self.whole["summary"]
            assert records(folder) == self.whole["records"]
        return line


def _checkpoints(path: Path) -> list[Path]:
    return list(path.glob("checkpoint/step-*"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Runs]:
    place, made = tmp_path_factory.mktemp("forged"), {}

    def of(name: str) -> Runs:
        if name not in made:
            made[name] = Runs(place, name)
        return made[name]

    return of


NAMED: dict[str, tuple[Callable[[Path], None], str]] = {
    "step 39": (lambda path: forging.forge_facts(path, step=39), ""),
    "step -5": (lambda path: forging.forge_facts(path, step=-5), ""),
    "step 1000": (lambda path: forging.rename(path, 1000), ""),
    "step, one on": (lambda path: forging.rename(path, 1), ""),
    "average_period x": (lambda path: forging.forge_facts(path, average_period="x"), ""),
    "average_period 3": (lambda path: forging.forge_facts(path, average_period=3), "average_period is 3"),
    "epoch": (lambda path: forging.forge_facts(path, epoch=0.5), " is 0.5"),
    "skipped": (lambda path: forging.forge_facts(path, skipped=1, steps_in_ledger=3), ""),
    "best": (lambda path: forging.forge_facts(path, best={"test/accuracy": 0.9}), ""),
    "no best": (lambda path: forging.forge_facts(path, best={}), ""),
    "last": (lambda path: forging.forge_facts(path, last={}), ""),
    "no moments": (lambda path: forging.forge_facts(path, optimizer={"dict": []}), "does not fit this run"),
    "a skeleton": (lambda path: forging.forge_facts(path, optimizer={"dict": 5}), ""),
    "summary []": (lambda path: (path / "summary.json").write_text("[]"), ""),
    "summary twice": (lambda path: (path / "summary.json").write_text('{"a": 1, "a": 1}'), ""),
    "config 5": (lambda path: (path / "config.yaml").write_text("5"), ""),
    "config bytes": (lambda path: (path / "config.yaml").write_bytes(b"\xff"), ""),
    "environment null": (lambda path: (path / "environment.json").write_text("null"), ""),
    "environment []": (lambda path: (path / "environment.json").write_text("[]"), ""),
}


@pytest.mark.parametrize("name", NAMED)
def test_named(tmp_path: Path, runs: Callable[[str], Runs], name: str) -> None:
    damage, said = NAMED[name]
    config, path = runs("average").copy(tmp_path)
    damage(path)
    assert said in runs("average").require(config, path)


def test_a_place_that_is_a_link(tmp_path: Path, runs: Callable[[str], Runs]) -> None:
    """A link at a path that a run writes is refused; its target is not changed."""
    number = len(forging.link_places(runs("average").copy(tmp_path / "first")[1]))
    for place in range(number):
        config, path = runs("average").copy(tmp_path / str(place))
        found = forging.link_places(path)[place]
        forging.put_link(found, forging.outside_of(path))
        outside = forging.state_of(forging.outside_of(path))
        with pytest.raises(OSError, match="link") as caught:
            RunFolder(config).open()
        assert str(found) in str(caught.value)
        assert forging.state_of(forging.outside_of(path)) == outside


def test_a_link_ends_the_run_in_a_line(tmp_path: Path, runs: Callable[[str], Runs]) -> None:
    config, path = runs("average").copy(tmp_path)
    forging.put_link(path / "metrics.partial", forging.outside_of(path))
    assert "metrics.partial is a link" in runs("average").require(config, path)


def test_a_digit_of_a_finished_run(tmp_path: Path, runs: Callable[[str], Runs]) -> None:
    for name in ("summary.json", "metrics.jsonl"):
        config, path = runs("average").copy(tmp_path / name, "whole")
        text = (path / name).read_text()
        place = text.index('"test/accuracy"') + len('"test/accuracy": 0.')
        (path / name).write_text(f"{text[:place]}{9 - int(text[place])}{text[place + 1 :]}")
        line = runs("average").require(config, path)
        assert str(path / name) in line and "was changed after it was written" in line
        assert "resume=never runs it again" in line
        config["resume"] = "never"
        assert runs("average").require(config, path) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("optimizer=adam", "optimizer.lr=0.01"),
            "has another optimizer: SGD in the checkpoint and Adam in this run",
        ),
        (
            ("optimizer.momentum=0", "optimizer.nesterov=false"),
            "momentum_buffer is .* and absent in this run",
        ),
    ],
)
def test_another_optimizer(
    tmp_path: Path, runs: Callable[[str], Runs], change: tuple[str, ...], said: str
) -> None:
    _, path = runs("average").copy(tmp_path)
    asked = config_of(tmp_path / "other", *runs("average").settings, *change, f"resume={path}")
    with pytest.raises(ConfigError, match=said):
        session.run(asked)


def test_another_optimizer_the_other_way(tmp_path: Path) -> None:
    settings = (*SETTINGS["average"], "trainer.average_reset_epochs=null")
    adam = config_of(tmp_path, *settings, "optimizer=adam", "optimizer.lr=0.01")
    train(adam)
    longer = ("trainer.steps=12", f"resume={RunFolder(adam).path}")
    with pytest.raises(
        ConfigError, match="has another optimizer: Adam in the checkpoint and SGD in this run"
    ):
        session.run(config_of(tmp_path, *settings, *longer))
    with pytest.raises(
        ConfigError, match="has another optimizer: Adam in the checkpoint and AdamW in this run"
    ):
        session.run(config_of(tmp_path, *settings, *longer, "optimizer=adamw", "optimizer.lr=0.01"))
    session.run(config_of(tmp_path, *settings, *longer, "optimizer=adam", "optimizer.lr=0.01"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(CASES))
def test_forged(tmp_path: Path, runs: Callable[[str], Runs], number: int) -> None:
    draw = random.Random(number)
    kind = forging.KINDS[number % len(forging.KINDS)]
    name = draw.choice(("average", *SETTINGS))
    finished = kind in (forging.shape, forging.swap, forging.truncate, forging.flip, forging.thing)
    config, path = runs(name).copy(tmp_path, "whole" if finished and draw.random() < 0.3 else "broken")
    kind(draw, path)
    runs(name).require(config, path)
