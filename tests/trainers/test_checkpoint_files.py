"""Files of a checkpoint: written parts are read, and a changed file is refused."""

import os
import random
import shutil
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from descriptions import facts_of, replace_description
from random_damage import DAMAGE, damage, swap

from trainers.checkpoint import files, saving
from trainers.checkpoint.files import (
    DamagedCheckpointError,
    describe_checkpoint,
    is_complete,
    read_checkpoint,
    step_folders,
    write_part,
)
from trainers.checkpoint.saving import Checkpoints, CheckpointSettings
from trainers.checkpoint.state import Snapshot, WorkerState
from trainers.comm.communicator import Communicator
from trainers.launch.stopping import StopRequest

PROCESSES, WORKERS = 2, 4
CORRUPTIONS = 60


def snapshot(step: int, workers: range, seed: int = 0) -> Snapshot:
    draw = torch.Generator().manual_seed(1000 * seed + step)
    shared = {"model/weight": torch.randn(5, 3, generator=draw), "average/n": torch.tensor(step)}
    of_workers = {
        worker: WorkerState(
            {
                "reducer/residual/weight": torch.randn(15, generator=draw),
                "ledger/total_sent": torch.tensor([7.0], dtype=torch.float64),
                "memory/0": torch.randn(2, generator=draw),
            },
            {"list": [{"tensor": "memory/0"}]},
        )
        for worker in workers
    }
    facts = facts_of(step, WORKERS, last={"train/loss": 0.1 + 0.2})
    return Snapshot(shared, of_workers, facts)


def write(root: Path, step: int, run: str = "run", seed: int = 0) -> Path:
    for process in range(PROCESSES):
        workers = range(2 * process, 2 * process + 2)
        write_part(root, snapshot(step, workers, seed), run, process, PROCESSES)
    return step_folders(root)[0]


class OtherFails:
    """The first of two processes; the other one cannot write its parts."""

    rank, world_size, size = 0, PROCESSES, WORKERS

    def all_reduce_max(self, value: int) -> int:
        return 1


def test_a_checkpoint_that_another_process_cannot_write_is_removed(tmp_path: Path) -> None:
    write(tmp_path, 10)
    settings = CheckpointSettings(every_steps=None, every_minutes=None, at_end=True, redistribute=False)
    checkpoints = Checkpoints(settings, tmp_path, "run", OtherFails(), StopRequest())
    checkpoints.save(snapshot(12, range(2)))
    checkpoints.wait()
    assert [folder.name for folder in step_folders(tmp_path)] == ["step-000000012", "step-000000010"]
    checkpoints.settle()
    assert [folder.name for folder in step_folders(tmp_path)] == ["step-000000010"]
    checkpoints.close()


@pytest.mark.parametrize("at_end", [False, True])
def test_one_copy_of_the_state_is_in_memory(
    at_end: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy is made after the last one was written, however slow the disk is."""
    copies: list[weakref.ref] = []
    living: list[int] = []

    class State:
        step = 0

        def capture(self) -> Snapshot:
            living.append(sum(copy() is not None for copy in copies))
            self.step += 1
            found = snapshot(self.step, range(2))
            copies.append(weakref.ref(found.shared["model/weight"]))
            return found

    monkeypatch.setattr(saving, "write_part", lambda *_: time.sleep(0.05))
    settings = CheckpointSettings(every_steps=1, every_minutes=None, at_end=True, redistribute=False)
    checkpoints = Checkpoints(settings, tmp_path, "run", Communicator(WORKERS), StopRequest())
    state = State()
    for _ in range(3):
        checkpoints.after_step(state)
    if at_end:
        checkpoints.at_end(state)
    checkpoints.close()
    assert living == [0] * (3 + at_end)


def test_a_search_goes_on_while_its_snapshot_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next trial begins, with other facts, before the files are complete."""
    state, begun = snapshot(3, range(WORKERS)), threading.Event()
    state.facts["search"] = {"steps": 0}
    save_file = files.save_file

    def slow(*arguments: Any) -> None:
        begun.wait(10)
        save_file(*arguments)

    monkeypatch.setattr(files, "save_file", slow)
    settings = CheckpointSettings(every_steps=None, every_minutes=None, at_end=True, redistribute=False)
    checkpoints = Checkpoints(settings, tmp_path, "run", Communicator(WORKERS), StopRequest())
    checkpoints.save(state)
    state.facts["search"] = {"steps": 50}
    begun.set()
    checkpoints.settle()
    checkpoints.close()
    (folder,) = step_folders(tmp_path)
    assert read_checkpoint(folder).facts["search"] == {"steps": 0}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write(tmp_path, 12))
    assert (checkpoint.run, checkpoint.step, checkpoint.num_workers) == ("run", 12, WORKERS)
    assert checkpoint.facts["last"] == {"train/loss": 0.1 + 0.2}
    for ranks in (range(4), range(1, 3), range(3, 4)):
        loaded = checkpoint.load(ranks)
        assert list(loaded.workers) == list(ranks)
        assert torch.equal(loaded.shared["model/weight"], snapshot(12, range(0)).shared["model/weight"])
    of_first = snapshot(12, range(2)).workers[1].tensors
    assert all(
        torch.equal(checkpoint.load([1]).workers[1].tensors[name], of_first[name]) for name in of_first
    )
    assert checkpoint.load([2]).workers[2].carries == {"list": [{"tensor": "memory/0"}]}


def test_it_counts_when_all_parts_are_there(tmp_path: Path) -> None:
    write_part(tmp_path, snapshot(3, range(2)), "run", 0, PROCESSES)
    (folder,) = step_folders(tmp_path)
    assert not is_complete(folder)
    with pytest.raises(DamagedCheckpointError, match=r"not complete: part-1-of-2\.json is missing"):
        describe_checkpoint(folder)
    write_part(tmp_path, snapshot(3, range(2, 4)), "run", 1, PROCESSES)
    assert is_complete(folder) and read_checkpoint(folder).step == 3


def test_the_newest_complete_set_of_parts_is_read(tmp_path: Path) -> None:
    """A run may reach a step again with another number of processes, if its checkpoint could not be used."""
    folder = write(tmp_path, 1, seed=1)
    write_part(tmp_path, snapshot(1, range(2), seed=2), "run", 0, 4)  # of a process that was killed
    assert is_complete(folder)
    assert torch.equal(read_checkpoint(folder).load([]).shared["model/weight"], weight_of(1, seed=1))
    write_part(tmp_path, snapshot(1, range(WORKERS), seed=3), "run", 0, 1)
    os.utime(folder / "part-0-of-1.json", ns=(2**61, 2**61))  # certainly newer, also on a coarse clock
    assert torch.equal(read_checkpoint(folder).load([]).shared["model/weight"], weight_of(1, seed=3))


def weight_of(step: int, seed: int) -> torch.Tensor:
    return snapshot(step, range(0), seed=seed).shared["model/weight"]


@pytest.mark.parametrize(
    ("part", "changes", "said"),
    [
        ("part-0-of-2.json", {"format": 99}, "format 99"),
        *(
            ("part-1-of-2.json", changes, "")
            for changes in ({"run": "other"}, {"step": 2}, {"process": 0}, {"file": "../x.safetensors"})
        ),
    ],
)
def test_parts_that_do_not_belong_together(
    tmp_path: Path, part: str, changes: dict[str, object], said: str
) -> None:
    folder = write(tmp_path, 1)
    replace_description(folder / part, **changes)
    with pytest.raises(DamagedCheckpointError, match=said):
        read_checkpoint(folder)


def change(kind: str) -> Callable[[random.Random, Path], None]:
    def one(draw: random.Random, folder: Path) -> None:
        damage(draw.choice(sorted(folder.iterdir())), kind, draw.randrange(99))

    return one


def remove(draw: random.Random, folder: Path) -> None:
    draw.choice(sorted(folder.iterdir())).unlink()


def exchange(draw: random.Random, folder: Path) -> None:
    swap(*draw.sample(sorted(folder.iterdir()), 2))


def mix(draw: random.Random, folder: Path) -> None:
    """Replace a file by the file of the same name from another checkpoint of the same run."""
    elsewhere = write(folder.parents[1] / "elsewhere", 5, seed=draw.randrange(1, 99))
    path = draw.choice(sorted(p for p in folder.iterdir() if p.suffix == ".safetensors"))
    shutil.copy(elsewhere / path.name, path)


def rename(draw: random.Random, folder: Path) -> None:
    """Give a checkpoint the name of another step."""
    folder.rename(folder.with_name(f"step-{draw.randrange(6, 99):09d}"))


def directory(draw: random.Random, folder: Path) -> None:
    """Replace a file by a folder."""
    path = draw.choice(sorted(folder.iterdir()))
    path.unlink()
    path.mkdir()


KINDS = (*map(change, DAMAGE), remove, exchange, mix, rename, directory)


@pytest.mark.parametrize("number", range(CORRUPTIONS))
def test_every_corruption_is_noticed(tmp_path: Path, number: int) -> None:
    root = tmp_path / "checkpoint"
    folder = write(root, 5)
    KINDS[number % len(KINDS)](random.Random(number), folder)
    (folder,) = step_folders(root)
    with pytest.raises(DamagedCheckpointError):
        read_checkpoint(folder)
