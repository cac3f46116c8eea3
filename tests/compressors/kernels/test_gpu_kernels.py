"""Triton's kernels against the reference, bit for bit: on a GPU, or in Triton's interpreter without one.

The interpreter's fused multiplication and addition rounds twice. Gradients and factors here have so few
digits that their products are exact, so both ways of rounding give the same result.
"""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import interpreter
import numpy as np
import pytest
import torch
from few_digits import DEVICE, few_digits, segment
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from compressors import random_k
from compressors.api import Codec, Input, Segment, Step, inputs_of
from compressors.core import randomness
from compressors.core.codec import Compressed
from compressors.core.norms import layer_norms, squared_norm
from compressors.core.payloads import Sparse
from compressors.core.rules import AtLeast, SignsAtLeast
from compressors.dgc import DGC
from compressors.hard_threshold import HardThreshold
from compressors.kernels import choice
from compressors.kernels.cpu.sums import total_up
from compressors.kernels.reference import Backend
from compressors.parts.above import Above
from compressors.parts.surveys import Survey
from compressors.random_block import RandomBlock
from compressors.random_k import RandomK
from compressors.top_k import TopK

pytest.importorskip("triton", reason="a GPU's kernels are Triton's")

from compressors.kernels.gpu import backend as gpu
from compressors.kernels.gpu import blocks as triton_blocks
from compressors.kernels.gpu import largest as triton_largest
from compressors.kernels.gpu import ranking, reading, taking, trial
from compressors.kernels.gpu import sums as triton_sums
from compressors.kernels.gpu import table as device_table
from compressors.kernels.gpu.backend import GpuKernels, _can_run

interpreter.install()
KERNELS = GpuKernels()
W, FACTOR = 2, 0.375
LAYERS = {  # the second row of the first one is not aligned
    "more than a piece": [4099, 0],
    "one element": [1],
    "an empty layer, a block, less and more": [0, 256, 200, 300],
}
CODECS = {
    "threshold 1": HardThreshold(threshold=1.0),
    "threshold 0": HardThreshold(threshold=0.0),
    "threshold that nothing reaches": HardThreshold(threshold=1e9),
    "top 1": TopK(density=1e-9),
    "top 3 %": TopK(density=0.03),
    "top all": TopK(density=1.0),
    "random": RandomK(density=0.1),
    "own random": RandomK(density=0.1, shared_coordinates=False),
    "sampled": DGC(density=0.03, sample=0.1),
    "sampled all": DGC(density=1.0),
    "a whole sample": DGC(density=0.03, sample=1.0),
    "block": RandomBlock(density=0.4),
    "own block": RandomBlock(density=0.4, shared_coordinates=False),
}


def inputs(dtype: torch.dtype, ties: bool = False) -> list[Input]:
    """One input for each of ``LAYERS``; all gradients are views of one tensor, as in a trainer."""
    sizes = [sum(layers) for layers in LAYERS.values()]
    rest = few_digits(W, sum(sizes), seed=1, ties=ties).to(DEVICE, dtype).split(sizes, 1)
    gradients = few_digits(W, sum(sizes), seed=2, ties=ties).to(DEVICE, dtype).split(sizes, 1)
    return [
        Input(Segment(name, gradient, tuple((size,) for size in layers)), rows.contiguous(), FACTOR)
        for (name, layers), rows, gradient in zip(LAYERS.items(), rest, gradients, strict=True)
    ]


def positions_in_layers(payloads: list, each: Input) -> list[list[int]]:
    """Number of positions that each worker sends of each layer, [W][L]."""
    edges, size = each.segment.edges.tolist(), each.size
    sent = [payload.positions(size).tolist() for payload in payloads]
    return [[sum(begin <= p < end for p in own) for begin, end in pairwise(edges)] for own in sent]


ENTRIES = {  # dtype, and whether many magnitudes are equal
    "fp32": (torch.float32, False),
    "fp32, tied": (torch.float32, True),
    "fp64": (torch.float64, False),
}
# Each kernel with fp32, and kernels that compare magnitudes with all entries; other pairs are slow tests
QUICK = {
    "fp32": ("threshold 1", "top 1", "top 3 %", "sampled", "random", "own block"),
    "fp32, tied": ("top 3 %", "sampled"),
    "fp64": ("threshold 1", "top 3 %"),
}
CROSSED = [
    pytest.param(
        CODECS[codec],
        *ENTRIES[entries],
        id=f"{codec}-{entries}",
        marks=[] if codec in QUICK[entries] else pytest.mark.slow,
    )
    for codec in CODECS
    for entries in ENTRIES
]


def test_pieces_are_of_all_kinds() -> None:
    """``test_equals_reference`` has pieces that are aligned, whole at odd addresses, and shorter."""
    given = inputs(torch.float32)
    table = device_table.DeviceTable(given)
    table.point(given)
    kinds = (triton_blocks.ALIGNED, triton_blocks.WHOLE, triton_blocks.PARTIAL)
    assert [kind for _, kind in table.launches] == [kind.value for kind in kinds]
    assert sorted(table.pieces[:, triton_blocks.NUMBER.value].tolist()) == list(range(len(table.counts)))


@pytest.mark.parametrize(("codec", "dtype", "ties"), CROSSED)
def test_equals_reference(codec: object, dtype: torch.dtype, ties: bool) -> None:
    require_equal(KERNELS, codec, dtype, ties)


def require_equal(kernels: GpuKernels, codec: object, dtype: torch.dtype, ties: bool) -> None:
    ours, reference = inputs(dtype, ties), inputs(dtype, ties)
    compressed = kernels.compress([codec] * len(ours), ours, Step(3, 7), range(W))
    for own, other, found in zip(ours, reference, compressed, strict=True):
        segment = other.formed()
        rows, step = segment.rows, Step(3, 7, segment=other.name)
        norms = layer_norms(rows, segment.edges)
        expected = [codec.encode(row, step._replace(worker=w)) for w, row in enumerate(rows)]
        (payload,) = found.payloads  # a kernel makes one payload for all workers
        for name, field in payload._asdict().items():
            parts = torch.cat([getattr(part, name) for part in expected])
            assert field.dtype == parts.dtype and torch.equal(field, parts), name
        assert torch.equal(own.rows, rows)
        assert found.sent.tolist() == positions_in_layers(expected, other)
        assert torch.equal(found.error, layer_norms(rows, segment.edges))
        assert torch.equal(found.input_norm, norms)


@pytest.mark.parametrize("codec", ["random", "own random"])
def test_positions_drawn_on_the_device(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of two segments, one of which has several layers; those of one entry are drawn on the host."""
    taken: list[bool] = []

    def on_device(device: torch.device, size: int, count: int) -> bool:
        taken.append(4 * count < size)
        return taken[-1]

    monkeypatch.setattr(random_k, "are_drawn_on", on_device)
    monkeypatch.setattr(randomness, "are_drawn_on", lambda device, size, count: 4 * count < size)
    randomness.coordinates_on.cache_clear()
    require_equal(GpuKernels(), CODECS[codec], torch.float32, False)
    assert taken == [True, False, True]


@pytest.mark.parametrize("ties", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("guess", ["good", "too high", "of too many"])
def test_the_largest_are_found_from_any_guess(
    guess: str, dtype: torch.dtype, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample of some of 4,099 entries; a guess that is of no use leads to a search among all entries."""
    monkeypatch.setattr(ranking, "SAMPLE", 1024 if guess == "too high" else 32)
    ranks, kernels = ranking._ranks, GpuKernels()

    def given(sizes: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, int]:
        found, capacity = ranks(sizes, wanted)
        if guess == "too high":
            found = np.where(sizes > ranking.SAMPLE, 1, found).astype(np.int32)
        return found, 20 if guess == "of too many" else capacity

    monkeypatch.setattr(ranking, "_ranks", given)
    require_equal(kernels, TopK(density=0.03), dtype, ties)
    missed = missed_rows(kernels)
    assert ties or any(missed) == (guess != "good")
    assert not all(missed) or guess == "of too many"


@pytest.mark.slow
@pytest.mark.parametrize("kind", trial.RULES)
def test_the_trial_of_a_gpu_notices_what_is_wrong(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    take, cpu = gpu.TAKES[kind], torch.device(DEVICE)
    takes = [take] if kind is AtLeast else [take, partial(take, room=0)]
    for dtype in (torch.float32, torch.float64):
        assert all(trial.is_right(kind, own, dtype, cpu) for own in takes)

    def wrong(number: int, change: int) -> bool:
        def taken(*words: object) -> tuple:
            found = [list(own) for own in take(*words)]
            found[number][0] = found[number][0] + change
            return tuple(found)

        return trial.is_right(kind, taken, torch.float32, cpu)

    assert [wrong(number, 1) for number in range(4)] == 4 * [False]


@pytest.mark.slow
def test_the_trial_notices_wrong_signs() -> None:
    def compress(change: int, given: Input, rule: SignsAtLeast) -> Compressed:
        found = KERNELS._signs([Codec()], [given], [Step(0, 0)], [rule])[0]
        given.rows[0, 0] += change // 2
        return found._replace(sent=found.sent + change % 2)

    cpu = torch.device(DEVICE)
    assert all(
        trial.signs_right(partial(compress, 0), dtype, cpu) for dtype in (torch.float32, torch.float64)
    )
    assert not any(trial.signs_right(partial(compress, change), torch.float32, cpu) for change in (1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_trial_notices_wrong_surveys_and_searches(dtype: torch.dtype) -> None:
    def survey(change: int, *words: Any) -> Survey:
        found = reading.survey(*words)
        tails = [tail + change // 2 for tail in found.tails]
        return found._replace(counts=found.counts + change % 2, tails=tails)

    def search(change: int, *words: Any) -> list[torch.Tensor]:
        return [where + change for where in reading.search(*words)]

    def is_right(of_survey: int, of_search: int) -> bool:
        wrong = partial(survey, of_survey), partial(search, of_search)
        return trial.reads_right(*wrong, dtype, torch.device(DEVICE))

    assert [is_right(*change) for change in ((0, 0), (1, 0), (2, 0), (0, 1))] == [True, False, False, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_nan_counts_as_larger_than_any_number(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, float("nan"), float("-inf"), -3.0] + 300 * [0.5], dtype=dtype, device=DEVICE)
    for codec, kept in (
        (HardThreshold(threshold=2.0), [1, 2, 3]),
        (TopK(density=2 / 304), [1, 2]),
        (TopK(density=1 / 304), [1]),
    ):
        left = segment(x[None].clone())
        (found,) = KERNELS.compress([codec], inputs_of([left]), Step(0, 0), range(1))
        rest = x.clone()
        rest[kept] = 0
        assert found.payloads[0].indices.tolist() == kept
        assert torch.equal(left.rows[0].nan_to_num(7), rest.nan_to_num(7))
        assert torch.equal(found.error[0, 0].nan_to_num(7), squared_norm(rest).nan_to_num(7))


def test_a_threshold_estimated_from_a_nan_takes_all_entries() -> None:
    """As in the reference: no magnitude is below NaN."""
    x = torch.tensor([[float("nan")] + 300 * [0.5], 301 * [0.25]], device=DEVICE)
    (found,) = KERNELS.compress(
        [Above(thresholds=(math.nan, 0.5), first=0)], inputs_of([segment(x)]), Step(0, 0), range(2)
    )
    assert found.sent.tolist() == [[301], [0]]


@pytest.mark.parametrize("size", [0, 1, 257, 9000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squared_norms(size: int, dtype: torch.dtype) -> None:
    """Rows are views into a longer tensor: entries beside them in memory do not count."""
    whole = torch.randn(W, size + 5, dtype=dtype, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    rows = whole[:, 2 : 2 + size]
    (found,) = KERNELS.squared_norms([segment(rows)])
    assert torch.equal(found[:, 0], squared_norm(rows))


def test_totals_of_many_blocks() -> None:
    """Sums of more than one tile equal those of the CPU kernel."""
    sizes = [20_000, 0, 1, 9, 8193]
    ends = np.cumsum(sizes)
    parts = np.stack([ends - sizes, ends], 1)
    sums = torch.rand(sum(sizes), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    totals = torch.empty(len(sizes), dtype=torch.float64, device=DEVICE)
    triton_sums.total_up[(len(sizes),)](
        torch.from_numpy(parts).to(DEVICE), sums.clone().to(DEVICE), totals, TILE=1024
    )
    expected = np.empty(len(sizes))
    total_up(parts, sums.numpy()[None], expected[None])
    assert totals.tolist() == expected.tolist()


def test_long_parts_are_halved_by_many_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 1 sum, of 40 sums (the most for one program), of more, and of enough for three rounds."""
    monkeypatch.setattr(device_table, "ALONE", 40)
    monkeypatch.setattr(device_table, "TILE", 16)
    monkeypatch.setattr(taking, "TILE", 16)
    sizes = [1, 40, 41, 0, 333, 8 * 40 + 1, 64 * 40 + 5]
    ends = np.cumsum(sizes)
    parts = np.stack([ends - sizes, ends], 1)
    sums = torch.rand(sum(sizes), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    adding = device_table.Adding(parts, DEVICE)
    assert len(adding.levels) == 3
    assert (adding.parts[:, 1] - adding.parts[:, 0]).max() <= 40
    totals = taking.add_up(sums.clone().to(DEVICE), adding)
    expected = np.empty(len(sizes))
    total_up(parts, sums.numpy()[None], expected[None])
    assert totals.tolist() == expected.tolist()


def test_ties_of_many_pieces_go_to_the_first() -> None:
    generator = np.random.default_rng(0)
    equal, above = generator.integers(0, 4, 3000), generator.integers(0, 4, 3000)
    edges, left = np.array([0, 2500, 2501, 3000]), np.array([2000, 0, 10])
    expected = np.concatenate(
        [
            np.diff(np.minimum(equal[a:b].cumsum(), most), prepend=0)
            for (a, b), most in zip(pairwise(edges), left, strict=True)
        ]
    )
    ours = [torch.from_numpy(x).to(DEVICE, torch.int32) for x in (left, above, equal)]
    taken = above + expected
    places = taken.cumsum() - taken
    of_rows = [torch.from_numpy(x).to(DEVICE) for x in (edges, places[edges[:-1]])]
    begins = torch.empty(3001, dtype=torch.int64, device=DEVICE)
    triton_largest.share_ties[(3,)](*of_rows, *ours, begins, TILE=1024)
    assert ours[2].tolist() == expected.tolist()
    assert ours[1].tolist() == taken.tolist()
    assert begins[:-1].tolist() == places.tolist()


@pytest.mark.parametrize(
    ("codec", "dtype"),
    [
        (HardThreshold(threshold=2.0), torch.float64),
        pytest.param(HardThreshold(threshold=2.0), torch.float32, marks=pytest.mark.slow),
        (TopK(density=0.3), torch.float32),
        pytest.param(TopK(density=0.3), torch.float64, marks=pytest.mark.slow),
    ],
)
def test_what_was_sent_is_added_in_the_workers_order(
    codec: Codec, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several tiles, different numbers of entries, and none; the bits depend on the order of the sum."""
    monkeypatch.setattr(taking, "TILE", 256)
    rows = torch.randn(3, 1305, dtype=dtype, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    rows[:, 100:102] = 0
    inputs = inputs_of([segment(own, str(i)) for i, own in enumerate(rows.split([100, 2, 3, 1200], 1))])
    found = KERNELS.compress([codec] * 4, inputs, Step(0, 0), range(3))
    joined = [own.payloads[0] for own in found]
    counts = np.array([own.sent.sum(1) for own in found])  # [S, n]
    assert (counts.max() > 256) == isinstance(codec, TopK)
    apart = [
        [Sparse(*of) for of in zip(p.values.split(c), p.indices.split(c), strict=True)]
        for p, c in zip(joined, counts.tolist(), strict=True)
    ]
    given = None if isinstance(codec, TopK) else counts
    ours = KERNELS.means_of_joined(joined, given, inputs, found, 3)
    assert KERNELS.adds_joined(joined[0], found[0])
    assert all(map(torch.equal, ours, Backend().means(apart, inputs, found, 3)))


def test_nothing_sent_is_a_mean_of_zeros() -> None:
    inputs = inputs_of([segment(torch.ones(W, 7, device=DEVICE))])
    found = KERNELS.compress([HardThreshold(threshold=2.0)], inputs, Step(0, 0), range(W))
    (mean,) = KERNELS.means_of_joined([found[0].payloads[0]], np.zeros((1, W), int), inputs, found, W)
    assert mean.tolist() == 7 * [0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_added_one_after_the_other(dtype: torch.dtype) -> None:
    values = torch.randn(3, 1500, dtype=dtype, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    assert torch.equal(KERNELS.add_rows(values), (values[0] + values[1]) + values[2])


def test_what_takes_the_reference() -> None:
    rows = torch.ones(W, 10, device=DEVICE)
    assert _can_run([Input(segment(rows))])
    assert not _can_run([Input(segment(rows.half()))])
    assert not _can_run([Input(segment(rows.t().contiguous().t()))])
    assert not _can_run([Input(segment(rows.bfloat16()), rows)])
    assert _can_run([Input(segment(torch.empty(1, 2**31 - 4096, device="meta")))])
    assert not _can_run([Input(segment(torch.empty(1, 2**31 - 1, device="meta")))])  # int32 would overflow


def test_choice() -> None:
    cuda = torch.device("cuda")
    assert isinstance(choice.backend_of(cuda), GpuKernels)
    assert "triton" in choice.describe(cuda)
    with choice.chosen("reference"):
        assert choice.describe(cuda) == choice.backend_of(cuda).name == "reference"


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    monkeypatch.setattr(choice, "_of_type", choice._of_type.__wrapped__)
    cuda = torch.device("cuda")
    assert choice.backend_of(cuda).name == "reference"
    assert choice.describe(cuda) == "reference (triton is not installed)"


def rows_of(name: str) -> torch.Tensor:
    """Two rows of 4,100 entries each; a sample has 256 of a row."""
    x = torch.randn(W, 4100, generator=torch.Generator().manual_seed(0))
    if name == "all equal":
        x.fill_(-1.0)
    elif name == "two values":
        x = torch.where(x > 1, 2.0, -1.0)
    elif name == "few entries that are not 0, in the last piece":
        x[:, :4097] = 0
    elif name == "sorted":
        x = x.sort(1).values
    elif name == "large entries where no sample is":
        x *= 1e-3
        x[:, 1000:1030] *= 1e6
    elif name == "not finite":
        x[0, 7], x[0, 4099], x[1, 99], x[1, 100] = torch.nan, torch.inf, -torch.inf, -torch.nan
    elif name == "mostly NaN":
        x[:, ::3] = torch.nan
        x[:, 1::3] = -torch.nan
    elif name == "subnormal":
        x *= 1e-42
    elif name == "half precision":
        x = x.half().float()
    return x.to(DEVICE)


ODD = {  # and whether rows are missed, in which all entries are searched
    "all equal": True,
    "two values": True,
    "few entries that are not 0, in the last piece": True,
    "sorted": False,
    "large entries where no sample is": False,
    "not finite": False,
    "subnormal": True,
    "half precision": False,
}


@pytest.mark.parametrize("name", ODD)
def test_the_largest_of_odd_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "SAMPLE", 256)
    kernels = GpuKernels()
    require_same_bits(kernels, TopK(density=0.003), name)
    assert any(missed_rows(kernels)) == ODD[name]


@pytest.mark.parametrize(
    ("name", "density"),
    [
        ("mostly NaN", 0.003),  # the threshold is a NaN, which all entries reach; the largest are taken
        *(
            pytest.param(name, density, marks=pytest.mark.slow)
            for name, density in (("mostly NaN", 0.9), *((own, 0.003) for own in ODD))
        ),
    ],
)
def test_entries_above_a_sampled_magnitude_of_odd_rows(name: str, density: float) -> None:
    require_same_bits(KERNELS, DGC(density=density, sample=0.1), name)


def require_same_bits(kernels: GpuKernels, codec: Codec, name: str) -> None:
    ours, expected = rows_of(name), rows_of(name)
    (found,) = kernels.compress([codec], inputs_of([segment(ours)]), Step(0, 0), range(W))
    (own,) = Backend().compress([codec], inputs_of([segment(expected)]), Step(0, 0), range(W))
    sent = [torch.cat(fields) for fields in zip(*own.payloads, strict=True)]
    for one, other in zip((*found.payloads[0], ours), (*sent, expected), strict=True):
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))  # the bits of NaN too
    for one, other in ((found.error, own.error), (found.input_norm, own.input_norm)):
        assert torch.equal(one.nan_to_num(-1), other.nan_to_num(-1))


def missed_rows(kernels: GpuKernels) -> list[int]:
    (table,) = kernels._tables._known.values()
    _, search = table._kept["search"]
    return search.keys.missed.tolist()


class _Operators(TorchDispatchMode):
    """Notes torch's operators that compute or copy."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = op._schema.name.removeprefix("aten::")
        if not op.is_view and name not in ("empty", "empty_like", "new_empty", "detach", "_to_copy"):
            self.found.append(name)
        return op(*args, **(kwargs or {}))


LAUNCHES = {  # "marks" are as many launches as there are kinds of pieces; the host waits after "index"
    "threshold": (HardThreshold(threshold=1.0), "marks add_counts total_up index pack"),
    "top k": (
        TopK(density=0.03),
        "guess marks add_counts gather count_digits count_digits count_digits count_digits settle mark "
        "compare share_ties pack total_up",
    ),
}


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("name", LAUNCHES)
def test_launches_of_a_step(name: str, is_global: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of all segments are in each launch, and later steps copy no table to the device."""
    codec, expected = LAUNCHES[name]
    kernels, found, given = GpuKernels(), [], inputs(torch.float32)
    if is_global:
        rest = torch.cat([x.rows for x in given], 1)
        gradient = torch.cat([x.segment.rows for x in given], 1)
        given = [Input(Segment("whole", gradient, tuple((x.size,) for x in given)), rest, FACTOR)]
    else:
        given = [x._replace(segment=x.segment._replace(shapes=((x.size,),))) for x in given]
    kernels.compress([codec] * len(given), given, Step(0, 0), range(W))
    kind = type(triton_blocks.mark)
    run = kind.run

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(self.fn.__name__)
        with _disable_current_modes():  # the interpreter copies arguments
            return run(self, *args, **kwargs)

    monkeypatch.setattr(kind, "run", noted)
    with _Operators(found):
        kernels.compress([codec] * len(given), given, Step(0, 0), range(W))
    (table,) = kernels._tables._known.values()
    words = expected.replace("marks", " ".join(len(table.launches) * ["mark"])).split()
    # The host knows how many entries of a row are the largest, but not how many of a layer of the row.
    assert found == [*words, *(["index"] if name == "top k" and is_global else [])]
