"""Ok-Topk against its definition and its published volume."""

from typing import Any

import numpy as np
import pytest
import torch
from methods import segment
from torch.utils._python_dispatch import TorchDispatchMode

from compressors.api import Segment, Step, inputs_of
from compressors.feedback import ErrorFeedback
from compressors.ok_topk import OkTopk
from compressors.parts.entries import moves_of
from trainers.comm.communicator import Communicator


def kth(x: np.ndarray, k: int) -> float:
    return float(np.sort(np.abs(x))[-k])


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_definition(workers: int) -> None:
    """Algorithms 1 and 2 of the paper in NumPy; the result does not depend on the regions of workers."""
    size, k, period = 300, 12, 3
    reducer = ErrorFeedback(OkTopk(density=k / size, period=period, partition_period=2))
    communicator, state = Communicator(workers), None
    memory = np.zeros((workers, size), dtype=np.float32)
    local, overall = np.zeros(workers), 0.0
    for number in range(8):
        drawn = torch.randn(workers, size, generator=torch.Generator().manual_seed(number))
        p = memory + drawn.numpy()
        if number % period == 0:
            local = np.array([kth(row, k) for row in p])
        selected = np.abs(p) >= local[:, None]
        total = np.zeros(size, dtype=np.float32)
        for row in p * selected:
            total += row
        if number % period == 0:
            overall = kth(total[selected.any(0)], k)
        final = (np.abs(total) >= overall) & selected.any(0)
        memory = p * ~(selected & final)
        state = reducer.init([segment(drawn)]) if state is None else state
        reduced, state = reducer.reduce(inputs_of([segment(drawn)]), state, Step(0, number), communicator)
        np.testing.assert_allclose(reduced.mean["a"].numpy(), total * final / workers, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(state.residual["a"].numpy(), memory, rtol=1e-6, atol=1e-7)
        assert reduced.compressed["a"].counts.tolist() == (selected & final).sum(1).tolist()


class Counting(TorchDispatchMode):
    """Counts torch's operators."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_operators_are_in_proportion_to_the_workers_of_a_process() -> None:
    """An operator for each pair of workers took 14 to 29 s a step with 1,024 workers."""
    counts = []
    for workers in (32, 64):
        reducer, communicator = OkTopk(density=0.1), Communicator(workers)
        drawn = segment(torch.randn(workers, 300, generator=torch.Generator().manual_seed(0)))
        with Counting() as counting:
            reducer.reduce(inputs_of([drawn]), reducer.init([drawn]), Step(0, 0), communicator)
        counts.append(counting.count)
    assert counts[1] < 2.2 * counts[0]


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("crowded", [False, True])
def test_paper_volume(workers: int, crowded: bool) -> None:
    """At most 6 k (n - 1) / n values and indices leave and reach a worker in a step that reuses thresholds.

    ``crowded``: all large entries are in one eighth of the segment. Even regions would send all of them to
    one owner.
    """
    size, k, first = 8_000, 160, 2
    reducer, communicator = OkTopk(density=k / size, period=100), Communicator(workers)
    scale = torch.ones(size)
    if crowded:
        scale[: size // 8] = 100
    state = None
    for number in range(5):
        drawn = torch.randn(workers, size, generator=torch.Generator().manual_seed(number)) * scale
        state = reducer.init([segment(drawn)]) if state is None else state
        reducer.reduce(inputs_of([segment(drawn)]), state, Step(0, number), communicator)
        link, charged = communicator.take_link_bytes(), communicator.take_charges()
        bound = 4 * 6 * k * (workers - 1) / workers
        if number >= first:
            metadata = 4 * (2 * workers - 1)  # counts, which the paper does not include in the volume
            assert link.max() <= bound + metadata
            assert 0 < charged[:, :2].sum(1).max() <= bound


def test_sums_in_few_regions_are_dealt_out_before_they_are_gathered() -> None:
    """All large sums are in the region of one worker, which would otherwise send 8 times the mean to all."""
    workers, size, k = 8, 8_000, 160
    reducer, communicator = OkTopk(density=k / size, period=100, partition_period=100), Communicator(workers)
    drawn = torch.randn(workers, size, generator=torch.Generator().manual_seed(0))
    state = reducer.init([segment(drawn)])
    reducer.reduce(inputs_of([segment(drawn)]), state, Step(0, 0), communicator)
    communicator.take_link_bytes()
    crowded = torch.zeros(workers, size)
    crowded[:, : size // 8] = torch.randn(workers, size // 8, generator=torch.Generator().manual_seed(1))
    reduced, _ = reducer.reduce(inputs_of([segment(crowded)]), state, Step(0, 1), communicator)
    num_sums = np.count_nonzero(reduced.mean["a"])
    left = communicator.take_link_bytes()[:, 0]
    assert left.max() < 8 * (workers - 1) * num_sums / 2


def test_nothing_is_lost_over_steps_and_segments() -> None:
    reducer, communicator = ErrorFeedback(OkTopk(density=0.05, period=4)), Communicator(5)
    generator, state = torch.Generator().manual_seed(0), None
    total, moved = torch.zeros(230, dtype=torch.float64), torch.zeros(230, dtype=torch.float64)
    for number in range(12):
        rows = torch.randn(5, 230, generator=generator)
        total += rows.double().mean(0)
        parts = [
            Segment(str(i), part, ((part.shape[1],),)) for i, part in enumerate(rows.split([200, 1, 29], 1))
        ]
        state = reducer.init(parts) if state is None else state
        found, state = reducer.reduce(inputs_of(parts), state, Step(0, number), communicator)
        moved += torch.cat(list(found.mean.values()))
    left = torch.cat([part.double().mean(0) for part in state.residual.values()])
    torch.testing.assert_close(moved + left, total, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["period", "partition_period"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
def test_periods_outside_their_range(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"OkTopk\.{name} must be an integer >= 1, got"):
        OkTopk(density=0.1, **{name: value})


def test_moves_leave_every_worker_an_even_part() -> None:
    """Each segment is evened out, in order, only if a worker has more than twice its share."""
    lengths = np.array([[9, 0, 0, 0], [1, 0, 0, 0], [2, 3, 3, 1], [0, 0, 7, 4]])
    moves = moves_of(lengths)
    assert moves.sum(2).tolist() == lengths.tolist()
    assert moves.sum(1).tolist() == [[2, 2, 2, 3], [1, 0, 0, 0], [2, 3, 3, 1], [2, 3, 3, 3]]
    assert moves[3].tolist() == [[0] * 4, [0] * 4, [2, 3, 2, 0], [0, 0, 1, 3]]
