"""Ok-Topk against its definition and its published volume."""

import numpy as np
import pytest
import torch
from methods import segment

from compressors.api import Step, inputs_of
from compressors.feedback import ErrorFeedback
from compressors.ok_topk import OkTopk
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
