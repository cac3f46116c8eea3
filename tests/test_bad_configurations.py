"""Invalid command lines and config files: a one-line error before training, status not 0, no traceback."""

import sys
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from bad_configurations import bad_command_lines, with_small
from bad_settings import types
from hypothesis import HealthCheck, given, settings
from image_files import write_tree
from libsvm_files import write_rows

import run
import trainers.launch.processes


class TrainedError(BaseException):
    """A base exception, which no except clause of run.py catches."""


def train(*_: Any) -> None:
    raise TrainedError(f"a bad configuration reached training: {sys.argv}")


def in_this_process(entry: str, argument: Any, processes: int) -> None:
    resolve_name(entry)(argument)


def refuse(words: Sequence[str], output: Path, capfd: pytest.CaptureFixture) -> str:
    """Run run.py in this process; assert a one-line error and no run folder; return the line.

    A third of the command lines keep the default tracker.
    """

    def decides(key: str) -> bool:
        return any(word.lstrip("+~").startswith(key) for word in words)

    own = [] if decides("output") else [f"output={output}"]
    tracker = [] if decides("tracker") or len("".join(words)) % 3 == 0 else ["tracker=none"]
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainers.run.training.run", train)
        patch.setattr(trainers.launch.processes, "launch", in_this_process)
        patch.setattr(sys, "argv", ["run.py", *own, *tracker, *words])
        status = run.command_line()
    said = capfd.readouterr().err
    assert status not in (0, None), words
    assert said.count("\n") == 1 and said.startswith("error: "), (words, said)
    assert "Traceback" not in said
    assert not list(output.glob("*/*")), words
    return said


@pytest.mark.slow
def test_bad_configurations(
    tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 command lines. Some datasets exist, so that their settings are read."""
    for split in ("train", "test"):
        write_tree(tmp_path / "data" / "few" / split, {"ant": 40, "bee": 40})
    write_rows(tmp_path / "data", "few", rows=60, features=10)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    seen: list[tuple[str, ...]] = []

    @settings(max_examples=500, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(bad_command_lines())
    def each(bad: list[str]) -> None:
        refuse(bad, tmp_path / "o", capfd)
        seen.append(tuple(bad))

    each()
    assert len(set(seen)) >= 470


MISTAKES = {  # in a config file: what is said
    "seed: 1\nseed: 2": "found duplicate key seed in",
    "model:\n\thidden: [1]": 'nice.yaml", line 6, column 1',
    "name: 'a": 'nice.yaml", line 5, column 7',
    "name: !!python/object/apply:os.getcwd []": "could not determine a constructor for the tag",
    "workers: x": "workers must be an integer >= 1, got 'x'",
    "worker: 2": "'worker' has no effect: there is no such setting; did you mean workers?",
    "1: 2": "'1' has no effect: there is no such setting",
    "model: {1: 2}": "model.1 has no effect: models.mlp.mlp has no such setting",
    "name: ${name}": "Recursive interpolation detected",
    "name: ${nothing}": "Interpolation key 'nothing' not found",
    "hydra: null": "a config file must not set hydra, because that can run code",
}
DEFAULTS = {
    "nice": "a config must not include or refer to itself",
    "{override /model: nothing}": "Could not find 'model/nothing': There are bert, ",
    "nothing": "In 'experiment/nice': Could not load 'experiment/nothing'.",
}


@pytest.mark.parametrize("text", [*MISTAKES, *DEFAULTS])
def test_mistakes_in_a_config_file(text: str, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    path = tmp_path / "theirs/experiment/nice.yaml"
    path.parent.mkdir(parents=True)
    entry, settings = (text, "") if text in DEFAULTS else ("/experiment/quick", text)
    path.write_text(f"# @package _global_\ndefaults:\n- {entry}\n- _self_\n{settings}\n")
    said = refuse([f"--config-dir={tmp_path / 'theirs'}", "experiment=nice"], tmp_path / "o", capfd)
    assert (MISTAKES | DEFAULTS)[text] in said


LARGE_NUMBERS = {
    "optimizer.lr=1e39": "(numbers go up to 3.4e+38)",
    "optimizer.weight_decay=1e308": "optimizer.weight_decay must be a finite number >= 0, got 1e+308",
    f"trainer.steps={'9' * 320}": "trainer.steps must be an integer >= 1, got 999",
    f"data=python_docs model=lstm data.bptt={'9' * 30}": "data.bptt must be at most 2147483647, got 999",
    "data=python_docs model=bert data.objective=masked data.vocabulary=5": "data.vocabulary must be a non-",
    "data=image_folder data.name=few data.image_size=1000000000": "data.image_size must be at most 4096",
    "data=image_folder data.name=few data.mean=[nan,0,0]": "data.mean must be a list of 3 finite numbers",
    "data=image_folder data.name=few data.std=[inf,1,1]": "data.std must be a list of 3 numbers >= 1e-06",
    f"data=image_folder data.name=few data.mean=[{'9' * 400},0,0]": "data.mean must be a list of 3",
    "model.hidden=[99999999999]": "GiB of memory or more, and this machine has",
    "workers=1400 model=vgg19": "the gradients of all workers take",
    "schedule=cosine schedule.peak=1e38 optimizer.lr=1e3": "the schedule's factor must be at most 3.4e+38",
    "--resolve": "--resolve flag can only be used in conjunction with --cfg",
}


@pytest.mark.parametrize("words", LARGE_NUMBERS, ids=lambda words: words[:60])
def test_large_numbers_and_odd_options(
    words: str, tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in ("train", "test"):
        write_tree(tmp_path / "data" / "few" / split, {"ant": 10, "bee": 10})
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    assert LARGE_NUMBERS[words] in refuse(with_small(words.split(" ")), tmp_path / "o", capfd)


def test_every_setting_has_a_type() -> None:
    """By which wrong values are drawn."""
    assert None not in types().values()
