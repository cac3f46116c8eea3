"""The histogram of magnitudes: against NumPy's histogram, and the compiled kernel against the reference."""

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.api import Input, Segment
from compressors.kernels.choice import backend_of, chosen
from compressors.parts import magnitudes
from compressors.parts.magnitudes import BINS, EDGES, FULL, SQUARES_ERROR, Histogram, Magnitudes

SIZES = (1, 7, 300, 2000)


def inputs(rows: Tensor, gradient: Tensor | None, scope: str, scale: float = 1.0) -> list[Input]:
    """Inputs of ``rows`` [W, D], or of ``rows`` + ``scale`` ``gradient``, with a segment per layer or one."""
    if scope == "global":
        parts = [(rows, gradient)]
    elif gradient is None:
        parts = [(part, None) for part in rows.split(SIZES, 1)]
    else:
        parts = list(zip(rows.split(SIZES, 1), gradient.split(SIZES, 1), strict=True))
    found = []
    for number, (own, added) in enumerate(parts):
        shapes = tuple((size,) for size in SIZES) if scope == "global" else ((own.shape[1],),)
        if added is None:
            found.append(Input(Segment(str(number), own, shapes)))
        else:
            found.append(Input(Segment(str(number), added, shapes), own, scale))
    return found


def drawn(seed: int, dtype: torch.dtype) -> Tensor:
    """[3, D] with magnitudes of many octaves, zeros, and entries outside the range of the bins."""
    random = torch.Generator().manual_seed(seed)
    shape = (3, sum(SIZES))
    x = torch.randn(shape, generator=random) * 2.0 ** torch.randint(-30, 10, shape, generator=random)
    x[:, ::50] = 0
    x[0, 10:16] = torch.tensor([1e-30, -1e-40, 1e13, -3e38, torch.inf, torch.nan])
    return x.to(dtype)


def counted(steps: list[list[Input]], kernels: str) -> Magnitudes:
    histogram = Histogram(len(steps[0][0].rows))
    with chosen(kernels):
        for given in steps:
            backend_of(torch.device("cpu")).count_magnitudes(given, histogram)
    return histogram.magnitudes


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [None, 1.0, 0.3])
def test_kernels_and_reference_count_the_same_bits(
    scope: str, dtype: torch.dtype, factor: float | None
) -> None:
    gradients = [drawn(100 + step, dtype) if factor is not None else None for step in range(4)]
    steps = [
        inputs(drawn(step, dtype), gradient, scope, factor or 1.0) for step, gradient in enumerate(gradients)
    ]
    by_kernel, by_torch = (counted(steps, kernels) for kernels in ("auto", "reference"))
    assert by_kernel.counts.sum() == 4 * 3 * sum(SIZES)
    for own, other in zip(by_kernel, by_torch, strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize("threads", [1, 3])
def test_words_are_emptied_before_they_are_full(threads: int) -> None:
    """One bin gets more entries than a word can count, in four steps of several pieces."""
    rows = torch.full((2, FULL // 2 + 5), 1.99999)
    given = [Input(Segment("model", rows, ((3,), (rows.shape[1] - 3,))))]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = [counted([given] * 4, kernels) for kernels in ("auto", "reference")]
    finally:
        torch.set_num_threads(before)
    for own, other in zip(*found, strict=True):
        assert torch.equal(own, other)
    (bin_,) = found[0].counts[0].nonzero()
    assert found[0].counts[0, bin_] == 4 * rows.shape[1]
    expected = 4 * rows.shape[1] * np.float64(np.float32(1.99999)) ** 2
    assert found[0].squares[0, bin_].item() == pytest.approx(expected, rel=SQUARES_ERROR)


def test_torch_counts_small_layers_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many calls as for one layer; a call counts at most as many entries of a worker as a word can."""
    calls: list[int] = []
    count = magnitudes._count
    monkeypatch.setattr(
        magnitudes,
        "_count",
        lambda pieces, histogram: (calls.append(sum(p.shape[1] for p in pieces)), count(pieces, histogram)),
    )
    layers = inputs(drawn(0, torch.float32), drawn(1, torch.float32), "layer")
    large = torch.ones(3, FULL)
    counted([[*layers, Input(Segment("large", large, ((FULL,),)))]], "reference")
    assert calls == [sum(SIZES) + 2**18, FULL - 2**18]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_bins_are_between_their_edges(dtype: torch.dtype) -> None:
    x = drawn(0, torch.float32).clamp_(-1000, 1000).nan_to_num_().to(dtype)
    x[x.abs() < 1e-20] = 0
    counts, squares = counted([inputs(x, None, "layer")], "auto")
    entries = x.double().abs().numpy()
    if dtype == torch.float64:
        entries = entries.astype(np.float32).astype(np.float64)
    for row, own in enumerate(entries):
        nonzero = own[own > 0]
        expected, _ = np.histogram(nonzero, EDGES)
        sums, _ = np.histogram(nonzero, EDGES, weights=nonzero**2)
        assert counts[row, 1:].tolist() == expected[1:].tolist()
        assert counts[row, 0] == (own == 0).sum() and squares[row, 0] == 0
        np.testing.assert_allclose(squares[row].numpy(), sums, rtol=SQUARES_ERROR)


def test_what_no_bin_has_is_nothing_or_infinite() -> None:
    x = torch.tensor([[1e-30, 1e-40, 0.0, 1e13, torch.inf, torch.nan, -1.0]])
    for kernels in ("auto", "reference"):
        counts, squares = counted([[Input(Segment("a", x, ((7,),)))]], kernels)
        assert (counts[0, 0], counts[0, BINS - 1], counts.sum()) == (3, 3, 7)
        assert squares[0, 0] == 0 and squares[0, BINS - 1] == torch.inf
        assert squares[0, 1 : BINS - 1].sum() == pytest.approx(1, rel=SQUARES_ERROR)
