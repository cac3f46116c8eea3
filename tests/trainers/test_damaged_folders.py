"""Damaged run folders: the undisturbed result, or one line that names the file."""

import copy
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from random_damage import DAMAGE, damage, swap
from resuming import assert_same, config_of, crash_after, outcome, records, timeless, train

from trainers.config.errors import ConfigError
from trainers.run import session, training
from trainers.run.folder import RunFolder

COMMON = ("workers=2", "trainer.batch_size=8", "trainer.steps=9", "checkpoint.every_steps=2")
IMAGES = ("model=mlp", "model.hidden=[8]", "data=digits", "trainer.evaluate_every=0.02")
SETTINGS = (*COMMON, *IMAGES, "compressor=top_k", "trainer.average_reset_epochs=0.03")
CASES = 16
NAMES_A_FILE = re.compile(r"\.(jsonl?|yaml|safetensors)\b|step-\d{9}|/\w{10}\b")


class Runs:
    """Runs of one setting: the undisturbed result, and folders to damage."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._config = config_of(place, *SETTINGS)
        self.whole = train(self.config(place / "whole"))
        with crash_after(7):
            training.train(self.config(place / "broken"))

    def config(self, output: Path) -> dict[str, Any]:
        return copy.deepcopy(self._config) | {"output": str(output)}

    def copy(self, place: Path, kind: str = "broken") -> tuple[dict[str, Any], Path]:
        """Copy an interrupted run, or a ``whole`` run without its checkpoint; the test damages the copy."""
        self.was_finished = kind == "whole"
        ignore = shutil.ignore_patterns("checkpoint" if kind == "whole" else "")
        shutil.copytree(self.place / kind, place / "output", ignore=ignore)
        config = self.config(place / "output")
        return config, RunFolder(config).path

    def require(self, config: dict[str, Any], path: Path) -> str:
        """Assert that the run equals the undisturbed one, or one line names the file; return the line."""
        try:
            session.run(config)
        except ConfigError as refusal:
            line = str(refusal)
            assert line.isprintable() and NAMES_A_FILE.search(line), line
            return line
        folder = RunFolder(config)
        if list(path.glob("checkpoint/step-*")) or not self.was_finished:
            assert_same(self.whole, outcome(config))
        else:  # the run had finished, and its files are unchanged
            assert timeless(folder.summary()) == self.whole["summary"]
            assert records(folder) == self.whole["records"]
        return ""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("damaged"))


@pytest.mark.parametrize("number", range(CASES))
def test_accidental_damage(tmp_path: Path, runs: Runs, number: int) -> None:
    draw = random.Random(number)
    config, path = runs.copy(tmp_path, "whole" if draw.random() < 0.3 else "broken")
    one, other = draw.sample(sorted(path for path in path.rglob("*") if path.is_file()), 2)
    kind = [*DAMAGE, "exchange"][number % (len(DAMAGE) + 1)]
    if kind == "exchange":
        swap(one, other)
    elif one.stat().st_size:
        damage(one, kind, number)
    runs.require(config, path)


def test_a_digit_of_a_finished_run(tmp_path: Path, runs: Runs) -> None:
    for name in ("summary.json", "metrics.jsonl"):
        config, path = runs.copy(tmp_path / name, "whole")
        text = (path / name).read_text()
        place = text.index('"test/accuracy"') + len('"test/accuracy": 0.')
        (path / name).write_text(f"{text[:place]}{9 - int(text[place])}{text[place + 1 :]}")
        line = runs.require(config, path)
        assert str(path / name) in line and "was changed after it was written" in line
        assert "resume=never runs it again" in line
        config["resume"] = "never"
        assert runs.require(config, path) == ""
