"""Redistribution to another number of workers: the mean residual is unchanged."""

from fractions import Fraction
from pathlib import Path

import pytest
import torch
from descriptions import facts_of

from trainers.checkpoint.files import read_checkpoint, step_folders, write_part
from trainers.checkpoint.resume import redistribute
from trainers.checkpoint.shares import blend, shares
from trainers.checkpoint.state import Snapshot, WorkerState

SIZE = 1000


def written(root: Path, num_workers: int) -> dict[str, torch.Tensor]:
    """Write a checkpoint of ``num_workers`` workers; return the means of their tensors."""
    draw = torch.Generator().manual_seed(num_workers)
    rows = {
        "reducer/residual/w": torch.randn(num_workers, SIZE, generator=draw),
        "ledger/total_sent": torch.randint(1000, (num_workers, 2), generator=draw).double(),
        "ledger/total_error": torch.rand(num_workers, 2, generator=draw, dtype=torch.float64),
    }
    workers = {
        worker: WorkerState(
            {name: row[worker].clone() for name, row in rows.items()} | {"memory/0": torch.ones(3)},
            {"list": [{"tensor": "memory/0"}]},
        )
        for worker in range(num_workers)
    }
    write_part(
        root,
        Snapshot({"model/w": torch.ones(2)}, workers, facts_of(4, num_workers)),
        "run",
        0,
        1,
    )
    return {name: row.double().mean(0) for name, row in rows.items()}


@pytest.mark.parametrize("before", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("after", [1, 2, 3, 4, 5, 8, 12])
def test_the_mean_contribution_is_conserved(tmp_path: Path, before: int, after: int) -> None:
    means = written(tmp_path, before)
    (folder,) = step_folders(tmp_path)
    new = redistribute(read_checkpoint(folder), range(after), after, 7)
    assert new.facts["step"] == 7 and torch.equal(new.shared["model/w"], torch.ones(2))
    for name, mean in means.items():
        rows = torch.stack([new.workers[worker].tensors[name] for worker in range(after)])
        tolerance = 1e-6 if rows.dtype == torch.float32 else 1e-12
        torch.testing.assert_close(rows.double().mean(0), mean, rtol=tolerance, atol=tolerance)
    assert all(state.carries == {"list": []} for state in new.workers.values())
    assert not any(name.startswith("memory") for name in new.workers[0].tensors)


def test_steps_that_workers_remember_are_the_earliest_and_maxima_stay_maxima(tmp_path: Path) -> None:
    """The mean of two residuals has waited as long as the older one."""
    workers = {
        worker: WorkerState(
            {
                "diagnostics/sent_at": torch.tensor([5, worker], dtype=torch.int32),
                "ledger/largest_link_bytes": torch.tensor(float(worker), dtype=torch.float64),
            },
            {"list": []},
        )
        for worker in range(4)
    }
    write_part(tmp_path, Snapshot({}, workers, facts_of(9, 4)), "run", 0, 1)
    (folder,) = step_folders(tmp_path)
    new = redistribute(read_checkpoint(folder), range(2), 2, 9).workers
    assert [state.tensors["diagnostics/sent_at"].tolist() for state in new.values()] == [[5, 0], [5, 2]]
    assert new[0].tensors["diagnostics/sent_at"].dtype == torch.int32
    assert [state.tensors["ledger/largest_link_bytes"].item() for state in new.values()] == [1, 3]


def test_as_many_workers_keep_what_is_theirs() -> None:
    assert [list(shares(worker, 3, 3)) for worker in range(3)] == [[(w, Fraction(1))] for w in range(3)]


def test_workers_stay_different(tmp_path: Path) -> None:
    """Twice as many workers: each residual goes to two. Half as many: each gets the mean of two."""
    written(tmp_path, 4)
    checkpoint = read_checkpoint(step_folders(tmp_path)[0])
    old = [state.tensors["reducer/residual/w"] for state in checkpoint.load(range(4)).workers.values()]
    more = redistribute(checkpoint, range(8), 8, 4).workers
    assert all(torch.equal(more[w].tensors["reducer/residual/w"], old[w // 2]) for w in range(8))
    fewer = redistribute(checkpoint, [1], 2, 4).workers
    torch.testing.assert_close(fewer[1].tensors["reducer/residual/w"], (old[2] + old[3]) / 2)


def test_a_complex_buffer_becomes_a_mean() -> None:
    parts = list(shares(0, 1, 2))
    old = {0: torch.tensor([1 + 2j]), 1: torch.tensor([3 - 4j])}
    assert torch.equal(blend(parts, old), torch.tensor([2 - 1j]))
