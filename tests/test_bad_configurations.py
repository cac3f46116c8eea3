"""Whatever is typed, a run that cannot be ends before training: one line, status not 0, no traceback."""

import sys
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml
from bad_configurations import bad_command_lines, with_small
from bad_settings import (
    COUNTS,
    COUNTS_OR_NULL,
    FLAGS,
    LISTS,
    NOT_NEGATIVE,
    NOT_NEGATIVE_OR_NULL,
    NUMBERS_OR_NULL,
    POSITIVE,
    POSITIVE_OR_NULL,
    SECTIONS,
    SEEDS,
    SHARES,
    TEXTS,
    TEXTS_OR_NULL,
    WORDS,
)
from command_line import command
from configs import CONF
from hypothesis import HealthCheck, given, settings

import run
import trainers.launch
from trainers.loop import Trainer


class TrainedError(BaseException):
    """No clause of run.py catches it."""


def train(*_: Any) -> None:
    raise TrainedError(f"a bad configuration reached training: {sys.argv}")


def in_this_process(entry: str, argument: Any, processes: int) -> None:
    resolve_name(entry)(argument)


def refuse(words: Sequence[str], output: Path, capfd: pytest.CaptureFixture) -> str:
    """The one line that run.py says of these words in this process, and that nothing is left of a run."""
    own = [] if any(word.lstrip("+~").startswith("output") for word in words) else [f"output={output}"]
    tracker = [] if any(word.lstrip("+~").startswith("tracker") for word in words) else ["tracker=none"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", train)
        patch.setattr(trainers.launch, "launch", in_this_process)
        patch.setattr(sys, "argv", ["run.py", *own, *tracker, *words])
        patch.setattr(run, "statuses", [])
        try:
            status = run.command_line()
        except SystemExit as exit_of_parser:
            status = exit_of_parser.code
    said = capfd.readouterr().err
    assert status not in (0, None), words
    assert said.count("\n") == 1 and said.startswith("error: "), (words, said)
    assert "Traceback" not in said
    assert not list(output.glob("*/*")), words
    return said


@pytest.mark.slow
def test_bad_configurations(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    seen = []

    @settings(max_examples=200, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(bad_command_lines())
    def each(words: list[str]) -> None:
        refuse(words, tmp_path, capfd)
        seen.append(tuple(words))

    each()
    assert len(set(seen)) >= 190


@pytest.mark.parametrize(
    "words",
    [
        ["model.hidden='a b'"],
        ["compressor._target_=os.system"],
        ["workers={a:1}"],
        ["compressor=nothing"],
        ["--multirum"],
        ["name=../x"],
        ["optimizer=null"],
        ["processes=2", "trainer.batch_size=100000"],
    ],
    ids=" ".join,
)
def test_bad_configurations_as_typed(words: list[str], tmp_path: Path) -> None:
    result = command(*with_small(words), "tracker=none", f"output={tmp_path}")
    assert result.returncode not in (0, None)
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    assert not list(tmp_path.glob("*/*"))


def test_every_setting_is_among_them() -> None:
    """A new key in conf/ has to be thought of here too."""
    tables = (WORDS, FLAGS, COUNTS, COUNTS_OR_NULL, POSITIVE, POSITIVE_OR_NULL, NOT_NEGATIVE)
    tables += (NUMBERS_OR_NULL, NOT_NEGATIVE_OR_NULL, SEEDS, SHARES, LISTS, TEXTS, TEXTS_OR_NULL)
    covered = {key.split(" ")[-1] for table in tables for key in table}
    missing = set()
    for path in CONF.glob("*/*.yaml"):
        group = path.parent.name
        if group in SECTIONS:
            settings_of = yaml.safe_load(path.read_text()) or {}
            missing |= {f"{group}.{key}" for key in settings_of if not key.startswith("_")} - covered
    assert missing == set()
