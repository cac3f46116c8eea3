"""Removal of old checkpoints: which complete and incomplete checkpoints are kept."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from trainers.checkpoint.saving import Checkpoints, forget
from trainers.comm.communicator import Communicator
from trainers.launch.stopping import StopRequest


def lay(root: Path, step: int, whole: bool) -> None:
    folder = root / f"step-{step:09d}"
    folder.mkdir(parents=True)
    (folder / "part-0-of-2.json").touch()
    if whole:
        (folder / "part-1-of-2.json").touch()


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
    assert sorted(int(path.name[5:]) for path in tmp_path.iterdir()) == left


@pytest.mark.parametrize(("at_end", "left"), [(True, 1), (False, 0)])
def test_what_a_finished_run_keeps(at_end: bool, left: int, tmp_path: Path) -> None:
    for step in range(1, 6):
        lay(tmp_path / "checkpoint", step, whole=step != 4)
    settings = SimpleNamespace(at_end=at_end)
    Checkpoints(settings, tmp_path / "checkpoint", "0", Communicator(1), StopRequest()).clear()
    assert len(list(tmp_path.glob("checkpoint/*"))) == left
