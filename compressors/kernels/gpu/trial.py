"""A trial of the kernels on the machine's GPU, before a method uses them for the first time.

The kernels were tested on few GPUs and with few versions of Triton. The entries have so few digits that their
sums are exact, so the expected bits follow from torch's operators in any order of additions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Codec, Compressed
from compressors.core.norms import layer_norms
from compressors.core.rules import AtLeast, AtLeastSampled, Largest, Rule, SignsAtLeast
from compressors.core.segments import Input, Segment, Step
from compressors.kernels.gpu import rounding as rounding
from compressors.kernels.gpu.table import DeviceTable
from compressors.kernels.gpu.taking import Taken
from compressors.parts.magnitudes import Histogram, count_pieces
from compressors.parts.searches import search_rows
from compressors.parts.surveys import Survey, survey_rows

WORKERS, SIZES, FACTOR = 2, (20_000, 700), 0.5  # layers of more and of fewer entries than a sample
NUMBER, THRESHOLD = 300, 2.0
PLACES, RANK, MOST = (
    np.arange(0, sum(SIZES), 29),
    15,
    400,
)  # of the first worker more entries than MOST are above
RULES: dict[type, Rule] = {  # rules that are tried
    AtLeast: AtLeast(THRESHOLD),
    AtLeastSampled: AtLeastSampled(np.stack(WORKERS * [PLACES]), RANK, MOST, NUMBER),
    Largest: Largest(NUMBER),
}


def is_right(kind: type, take: Callable[..., Taken], dtype: torch.dtype, device: torch.device) -> bool:
    """Whether ``take`` selects as the rule says: values, positions, numbers, the rest and its norms."""
    given, p = _given(dtype, device)
    rest, edges = given.rows, given.segment.edges
    (values,), (indices,), (sent,), (errors, norms) = take(*_table(given, [RULES[kind]]))
    marks = _expected(kind, p)
    assert indices is not None
    rows, where = marks.nonzero(as_tuple=True)
    kept = torch.where(marks, 0, p)
    return (
        torch.equal(values, p[rows, where])
        and torch.equal(indices, where.int())
        and np.array_equal(sent, _counts(marks))
        and torch.equal(rest, kept)
        and torch.equal(errors.view(WORKERS, -1), layer_norms(kept, edges))
        and torch.equal(norms.view(WORKERS, -1), layer_norms(p, edges))
    )


def signs_right(
    compress: Callable[[Input, SignsAtLeast], Compressed], dtype: torch.dtype, device: torch.device
) -> bool:
    """Whether ``compress`` sends the signs of the large entries, and subtracts them."""
    given, p = _given(dtype, device)
    found = compress(given, SignsAtLeast(THRESHOLD, lambda words: (words,)))
    marks = p.abs() >= THRESHOLD
    rows, where = marks.nonzero(as_tuple=True)
    rest = torch.where(marks, p - p.sign() * THRESHOLD, p)
    return (
        torch.equal(found.payloads[0][0], (2 * where + (p[rows, where] < 0)).int())
        and np.array_equal(found.sent, _counts(marks))
        and torch.equal(given.rows, rest)
        and torch.equal(found.error, layer_norms(rest, given.segment.edges))
        and torch.equal(found.input_norm, layer_norms(p, given.segment.edges))
    )


def reads_right(
    survey: Callable[..., Survey],
    search: Callable[..., list[Tensor]],
    dtype: torch.dtype,
    device: torch.device,
) -> bool:
    """Whether the kernels that read p have the reference's sums, counts, largest magnitudes and positions."""
    given, _ = _given(dtype, device)
    levels, wanted = np.full(WORKERS, THRESHOLD), np.full(WORKERS, NUMBER)
    found = survey(*_table(given), levels, wanted, True)
    expected = survey_rows([given], levels, wanted, True)
    tails = zip(found.tails, expected.tails, strict=True)
    positions = zip(search(*_table(given), levels), search_rows([given], levels), strict=True)
    return (
        all(np.array_equal(own, other) for own, other in zip(found[:4], expected[:4], strict=True))
        and all(np.array_equal(own[:NUMBER], other) for own, other in tails)
        and all(torch.equal(own, other) for own, other in positions)
    )


def counts_right(count: Callable[..., None], dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the histogram of magnitudes is that of torch's operators."""
    given, p = _given(dtype, device)
    own, expected = Histogram(WORKERS, device), Histogram(WORKERS, device)
    count(*_table(given), own)
    count_pieces([Input(given.segment._replace(rows=p))], expected)
    return all(map(torch.equal, own.magnitudes, expected.magnitudes))


def _given(dtype: torch.dtype, device: torch.device) -> tuple[Input, Tensor]:
    """An input, and its p, which is exact and has many equal magnitudes."""
    generator = torch.Generator().manual_seed(0)
    rest, gradient = (
        torch.randn(WORKERS, sum(SIZES), generator=generator, device="cpu")
        .mul_(8)
        .round_()
        .div_(8)
        .to(device, dtype)
        for _ in range(2)
    )
    segment = Segment("trial", gradient, tuple((size,) for size in SIZES))
    return Input(segment, rest, FACTOR), rest + FACTOR * gradient


def _table(given: Input, *others: Any) -> tuple[Any, ...]:
    """The table of the input, others, and the factor."""
    table = DeviceTable([given])
    table.point([given])
    return table, *others, given.rows.new_full((1,), FACTOR)


def _counts(marks: Tensor) -> np.ndarray:
    """Number of marks in each layer, [W, L]."""
    return np.stack([own.sum(1).cpu().numpy() for own in marks.split(list(SIZES), 1)], 1)


def rounds_right(codec: Codec, device: torch.device) -> bool:
    """Whether the kernels of a quantiser have the bits of its definition on the CPU."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(sum(SIZES), generator=generator, device="cpu")
    step = Step(0, 0, segment="trial", shapes=tuple((size,) for size in SIZES))
    kind = codec.rounding(len(p), step)
    assert kind is not None
    rest, out = p.to(device, copy=True), torch.zeros(len(p), device=device)
    payload = [field for field, _ in rounding.encode([kind], [rest])]
    rounding.decode([kind], [[payload]], [out])
    expected, total = codec.encode(p, step), torch.zeros(len(p), device="cpu")
    codec.add(expected, total, step)
    pairs = zip([*payload, rest, out], [*expected, p, total], strict=True)
    return all(torch.equal(own.cpu(), other) for own, other in pairs)


def _expected(kind: type, p: Tensor) -> Tensor:
    """Marks of the selected entries of ``p`` [W, d]."""
    magnitudes = p.abs()
    if kind is AtLeast:
        return magnitudes >= THRESHOLD
    order = magnitudes.argsort(dim=1, descending=True, stable=True)[:, :NUMBER]
    largest = torch.zeros_like(p, dtype=torch.bool).scatter_(1, order, True)
    if kind is Largest:
        return largest
    sampled = magnitudes[:, :: PLACES[1]].sort(1, descending=True).values
    reached = magnitudes >= sampled[:, RANK - 1 : RANK]
    return torch.where(reached.sum(1, keepdim=True) > MOST, largest, reached)
