"""Removal of old checkpoints: during a run, at its end, and of a run that was killed after its summary."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from trainers.checkpoint.saving import Checkpoints, forget
from trainers.comm.communicator import Communicator
from trainers.launch.stopping import StopRequest
from trainers.run.leftovers import clear_leftovers

PART = "{_target_: some.where}"
CONFIG = (
    f"seed: 0\nname: x\ntrainer: {{}}\ncompressor: {PART}\nfeedback: {PART}\nmodel: {PART}\ndata: {PART}\n"
)


def lay(root: Path, step: int, whole: bool = True) -> None:
    folder = root / f"step-{step:09d}"
    folder.mkdir(parents=True)
    for part in range(1 + whole):
        (folder / f"part-{part}-of-2.json").touch()


def left_in(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in root.glob("*"))


@pytest.mark.parametrize(
    ("laid", "left"),
    [
        ([(1, True), (2, True), (3, True), (4, True), (5, True)], [4, 5]),
        ([(1, True), (2, True), (3, True), (4, False)], [2, 3, 4]),
        ([(1, True), (2, False), (3, True), (4, False), (5, False)], [1, 3, 4, 5]),
        ([(1, False), (2, False), (3, False), (4, False)], [3, 4]),
    ],
)
def test_what_is_kept(laid: list[tuple[int, bool]], left: list[int], tmp_path: Path) -> None:
    for step, whole in laid:
        lay(tmp_path, step, whole)
    forget(tmp_path, 2)
    assert left_in(tmp_path) == left


@pytest.mark.parametrize(("at_end", "left"), [(True, [5]), (False, [])])
def test_what_a_finished_run_keeps(at_end: bool, left: list[int], tmp_path: Path) -> None:
    """The end of a run, and the next start of one that was killed in between, leave the same."""
    for run in ("ended", "killed"):
        for step in range(1, 6):
            lay(tmp_path / run / "checkpoint", step, whole=step != 4)
    settings = SimpleNamespace(at_end=at_end)
    Checkpoints(settings, tmp_path / "ended/checkpoint", "0", Communicator(1), StopRequest()).clear()
    (tmp_path / "killed/config.yaml").write_text(f"{CONFIG}checkpoint: {{at_end: {at_end}}}\n")
    clear_leftovers(tmp_path / "killed")
    for run in ("ended", "killed"):
        assert left_in(tmp_path / run / "checkpoint") == left


@pytest.mark.parametrize(
    "text", ["", "[]", "{", *(CONFIG + f"checkpoint: {value}" for value in ("3", "{at_end: x}"))]
)
def test_nothing_goes_where_the_config_does_not_say(tmp_path: Path, text: str) -> None:
    lay(tmp_path / "checkpoint", 10)
    (tmp_path / "config.yaml").write_text(text)
    clear_leftovers(tmp_path)
    assert left_in(tmp_path / "checkpoint") == [10]
