"""Removal of checkpoints of a run that was killed after it wrote its summary."""

from pathlib import Path

import pytest

from trainers.run.leftovers import clear_leftovers

PART = "{_target_: some.where}"
CONFIG = (
    f"seed: 0\nname: x\ntrainer: {{}}\ncompressor: {PART}\nfeedback: {PART}\nmodel: {PART}\ndata: {PART}\n"
)


def make_checkpoints(folder: Path, *steps: int) -> Path:
    for step in steps:
        path = folder / "checkpoint" / f"step-{step:09d}"
        path.mkdir(parents=True)
        (path / "part-0-of-1.json").touch()
    return folder / "checkpoint"


def test_all_go_unless_the_last_was_to_be_kept(tmp_path: Path) -> None:
    checkpoints = make_checkpoints(tmp_path, 10, 20)
    (tmp_path / "config.yaml").write_text(CONFIG + "checkpoint: {at_end: true}\n")
    clear_leftovers(tmp_path)
    assert [path.name for path in checkpoints.iterdir()] == ["step-000000020"]
    (tmp_path / "config.yaml").write_text(CONFIG + "checkpoint: {at_end: false}\n")
    clear_leftovers(tmp_path)
    assert not checkpoints.exists()
    clear_leftovers(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", *(CONFIG + f"checkpoint: {value}" for value in ("3", "{at_end: x}"))]
)
def test_nothing_goes_where_the_config_does_not_say(tmp_path: Path, text: str) -> None:
    checkpoints = make_checkpoints(tmp_path, 10)
    (tmp_path / "config.yaml").write_text(text)
    clear_leftovers(tmp_path)
    assert list(checkpoints.iterdir())
