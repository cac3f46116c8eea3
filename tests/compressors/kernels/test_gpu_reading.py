"""Triton's kernels that read p without computing it, against the reference.

On a GPU, or in Triton's interpreter without one; see ``test_gpu_kernels.py`` on the entries.
"""

import interpreter
import numpy as np
import pytest
import torch
from few_digits import DEVICE, few_digits

from compressors.api import Input, Segment
from compressors.kernels.cpu.backend import CpuKernels
from compressors.kernels.reference import Backend
from compressors.parts import magnitudes
from compressors.parts.magnitudes import Histogram

pytest.importorskip("triton", reason="a GPU's kernels are Triton's")

from compressors.kernels.gpu import reading, trial
from compressors.kernels.gpu.backend import GpuKernels
from compressors.kernels.gpu.table import DeviceTable

interpreter.install()
KERNELS, REFERENCE, CPU = GpuKernels(), Backend(), CpuKernels()
WORKERS, LAYERS, FACTOR = 2, ([4000, 0, 5100], [300], [1]), 0.375


def inputs(dtype: torch.dtype, device: torch.device = DEVICE, *, ties: bool = False) -> list[Input]:
    found = []
    for number, layers in enumerate(LAYERS):
        rest, gradient = (few_digits(WORKERS, sum(layers), seed=10 * number + i, ties=ties) for i in (0, 1))
        segment = Segment(f"{number}", gradient.to(device, dtype), tuple((size,) for size in layers))
        found.append(Input(segment, rest.to(device, dtype), FACTOR))
    return found


@pytest.mark.parametrize(
    ("dtype", "squares", "ties", "number"),
    [
        (torch.float32, True, False, 60),
        (torch.float64, False, False, 60),
        (torch.float32, False, True, 2000),  # most of the largest magnitudes are equal
        (torch.float32, True, False, 10_000),  # all entries
        (torch.float32, False, False, 0),
    ],
)
def test_surveys(dtype: torch.dtype, squares: bool, ties: bool, number: int) -> None:
    """The sums have the CPU kernels' bits; tails have the largest entries in descending order."""
    sizes = np.repeat([sum(layers) for layers in LAYERS], WORKERS)
    wanted = np.minimum(number, sizes)
    for level in (0.0, 0.75):
        levels = np.full(len(sizes), level)
        found = KERNELS.survey(inputs(dtype, ties=ties), levels, wanted, squares)
        same = CPU.survey(inputs(dtype, torch.device("cpu"), ties=ties), levels, wanted, squares)
        assert found.counts.tolist() == same.counts.tolist()
        assert found.excesses.tolist() == same.excesses.tolist()
        for own, other in ((found.totals, same.totals), (found.squares, same.squares)):
            assert np.array_equal(own, other, equal_nan=True)
        rows = [row for given in inputs(dtype, ties=ties) for row in given.seen().rows.abs().cpu().numpy()]
        for row, tail, floor, k in zip(rows, found.tails, found.floors, wanted, strict=True):
            ordered = np.sort(row)[::-1]
            assert len(tail) >= k or k == 0
            assert np.array_equal(tail, ordered[: len(tail)])
            assert k == 0 or np.array_equal(tail[tail > floor], ordered[ordered > floor])


def test_a_tail_without_room_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_ranks", lambda sizes, wanted: (0 * sizes + 500, np.minimum(sizes, 10)))
    found = KERNELS.survey(inputs(torch.float32), np.zeros(6), np.full(6, 1), False)
    assert [len(tail) for tail in found.tails] == [0, 0, 0, 0, 1, 1]
    assert np.isinf(found.floors[:4]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_magnitudes_are_counted_in_the_groups_of_the_reference(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are full after some pieces, also of an earlier step, and hold few groups at a time."""
    monkeypatch.setattr(magnitudes, "PIECE", 4096)
    monkeypatch.setattr(magnitudes, "FULL", 5200)
    monkeypatch.setattr(reading, "GROUPS", 2)
    own, expected = Histogram(WORKERS, DEVICE), Histogram(WORKERS)
    for value in (float("nan"), float("inf"), 1e-40):
        given = inputs(dtype)
        given[0].segment.rows[1, 4099] = value
        KERNELS.count_magnitudes(given, own)
        REFERENCE.count_magnitudes(on_cpu(given), expected)
        assert own.filled.tolist() == expected.filled.tolist()
        assert torch.equal(own.words.cpu(), expected.words)
        assert all(torch.equal(a.cpu(), b) for a, b in zip(own.flushed, expected.flushed, strict=True))
    assert own.magnitudes.counts.sum().item() == 3 * WORKERS * sum(map(sum, LAYERS))


def test_the_trial_notices_wrong_counts() -> None:
    def wrong(table: DeviceTable, factor: torch.Tensor, histogram: Histogram) -> None:
        reading.add_magnitudes(table, 2 * factor, histogram)

    assert trial.counts_right(reading.add_magnitudes, torch.float32, torch.device(DEVICE))
    assert not trial.counts_right(wrong, torch.float32, torch.device(DEVICE))


def on_cpu(given: list[Input]) -> list[Input]:
    return [
        each._replace(segment=each.segment._replace(rows=each.segment.rows.cpu()), memory=each.memory.cpu())
        for each in given
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_positions_of_large_entries(dtype: torch.dtype) -> None:
    """Rows of one, several and no large entries, and a NaN."""
    given = inputs(dtype)
    given[0].segment.rows[0, 4099] = float("nan")
    before = [own.rows.clone() for own in given]
    thresholds = np.array([1.5, 9.0, 0.5, 1.0, 0.0, 9.0])
    found = KERNELS.search(given, thresholds)
    assert all(map(torch.equal, found, REFERENCE.search(given, thresholds)))
    assert 4099 in found[0] and len(found[1]) == 0
    assert all(torch.equal(own.rows, old) for own, old in zip(given, before, strict=True))
