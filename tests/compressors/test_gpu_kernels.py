"""Triton's kernels against the reference, bit for bit: on a GPU, or in Triton's interpreter without one.

The interpreter's fused multiplication and addition rounds twice. Gradients and factors here have so few
digits that their products are exact, and both ways round alike.
"""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from methods import Case, cases, is_codec, segment
from torch import Tensor

from compressors.api import Context, Segment, squared_norm
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.kernels import choice
from compressors.kernels.sums import total_up
from compressors.payloads import Sparse
from compressors.random_block import RandomBlock
from compressors.random_k import RandomK
from compressors.rules import AtLeast, Largest
from compressors.top_k import TopK
from trainers.communicator import Communicator

pytest.importorskip("triton", reason="a GPU's kernels are Triton's")

from compressors.kernels import triton_blocks, triton_largest
from compressors.kernels.gpu import GpuKernels

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
KERNELS = GpuKernels()
W, FACTOR = 2, 0.375
LAYERS = {
    "one element": [1],
    "an empty layer, a block, less and more": [0, 256, 200, 300],
    "more than a piece": [4100, 0],
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
    "block": RandomBlock(density=0.4),
    "own block": RandomBlock(density=0.4, shared_coordinates=False),
}


def few_digits(*shape: int, seed: int, ties: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if ties:
        return torch.randint(-2, 3, shape, generator=generator).float()
    return torch.randn(shape, generator=generator).bfloat16().float()


def segments_of(dtype: torch.dtype, ties: bool = False) -> list[Segment]:
    """One segment for each of ``LAYERS``; gradients lie side by side in one tensor, as a trainer has them."""
    sizes = [sum(layers) for layers in LAYERS.values()]
    rest = few_digits(W, sum(sizes), seed=1, ties=ties).to(DEVICE, dtype).split(sizes, 1)
    gradients = few_digits(W, sum(sizes), seed=2, ties=ties).to(DEVICE, dtype).split(sizes, 1)
    return [
        Segment(name, rows.contiguous(), torch.tensor([0, *layers]).cumsum(0), gradient, FACTOR)
        for (name, layers), rows, gradient in zip(LAYERS.items(), rest, gradients, strict=True)
    ]


def positions_in_layers(payloads: list, each: Segment) -> list[list[int]]:
    """How many positions each worker sends of each layer, counted one by one."""
    edges, size = each.edges.tolist(), each.rows.shape[1]
    sent = [payload.positions(size).tolist() for payload in payloads]
    return [[sum(begin <= p < end for p in own) for begin, end in pairwise(edges)] for own in sent]


ENTRIES = {  # dtype, and whether many magnitudes are equal
    "fp32": (torch.float32, False),
    "fp32, tied": (torch.float32, True),
    "fp64": (torch.float64, False),
}


@pytest.mark.parametrize(("dtype", "ties"), ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_equals_reference(codec: object, dtype: torch.dtype, ties: bool) -> None:
    ours, reference = segments_of(dtype, ties), segments_of(dtype, ties)
    assert KERNELS.can_run(ours)
    rules = [codec.rule(s.rows.shape[1], Context(3, 7, segment=s.name), range(W)) for s in ours]
    for own, other, rule, found in zip(ours, reference, rules, KERNELS.select(ours, rules), strict=True):
        rows = other.added().rows
        context = Context(3, 7, segment=other.name)
        expected = [codec.encode(row, context._replace(worker=w)) for w, row in enumerate(rows)]
        if found.indices is None:
            payload = rule.payload(found.values, W)
        else:
            payload = Sparse(found.values, found.indices)
        for name, field in payload._asdict().items():
            parts = torch.cat([getattr(part, name) for part in expected])
            assert field.dtype == parts.dtype and torch.equal(field, parts), name
        assert torch.equal(own.rows, rows)
        assert found.sent.tolist() == positions_in_layers(expected, other)
        layers = rows.split(other.edges.diff().tolist(), 1)
        assert torch.equal(found.error, torch.stack([squared_norm(layer) for layer in layers], 1))


@pytest.mark.parametrize("case", [pytest.param(c, id=str(c)) for c in cases() if is_codec(c.method())])
def test_reducers(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean, remainder, error, counts and bytes of three steps with feedback."""
    found = []
    for kernels in ("auto", "reference"):
        with monkeypatch.context() as patch:
            patch.setattr(choice, "_of_device", lambda device: (KERNELS, ""))
            reducer = build_reducer(case.method(), 600, ErrorFeedback, kernels)
            flat = torch.zeros(W, 600, device=DEVICE)
            segments = [segment(rows, str(i)) for i, rows in enumerate(flat.split([300, 1, 299], 1))]
            state, communicator = reducer.init(segments), Communicator(W)
            for step in range(3):
                flat.copy_(few_digits(W, 600, seed=step))
                reduced, state = reducer.reduce(segments, state, Context(3, step), communicator)
            assert (reduced.error is None) == (kernels == "reference" or not hasattr(case.method(), "rule"))
            found.append(
                [torch.as_tensor(communicator.take_charges())]
                + [
                    torch.as_tensor(x[s.name])
                    for s in segments
                    for x in (reduced.mean, reduced.remainder, reduced.sent)
                ]
            )
    for ours, reference in zip(*found, strict=True):
        assert torch.equal(ours, reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_nan_counts_as_larger_than_any_number(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, float("nan"), float("-inf"), -3.0] + 300 * [0.5], dtype=dtype, device=DEVICE)
    for rule, kept in ((AtLeast(2.0), [1, 2, 3]), (Largest(2), [1, 2]), (Largest(1), [1])):
        left = segment(x[None].clone())
        (selected,) = KERNELS.select([left], [rule])
        rest = x.clone()
        rest[kept] = 0
        assert selected.indices.tolist() == kept
        assert torch.equal(left.rows[0].nan_to_num(7), rest.nan_to_num(7))
        assert torch.equal(selected.error[0, 0].nan_to_num(7), squared_norm(rest).nan_to_num(7))


@pytest.mark.parametrize("size", [0, 1, 257, 9000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squared_norms(size: int, dtype: torch.dtype) -> None:
    """Also of rows whose neighbours in memory belong to others."""
    whole = torch.randn(W, size + 5, dtype=dtype, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    rows = whole[:, 2 : 2 + size]
    (found,) = KERNELS.squared_norms([segment(rows)])
    assert torch.equal(found[:, 0], squared_norm(rows))


def test_totals_of_many_blocks() -> None:
    """In more than one tile."""
    sizes = [20_000, 0, 1, 9, 8193]
    ends = np.cumsum(sizes)
    parts = np.stack([ends - sizes, ends], 1)
    sums = torch.rand(sum(sizes), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    totals = torch.empty(len(sizes), dtype=torch.float64, device=DEVICE)
    triton_blocks.total_up[(len(sizes),)](
        torch.from_numpy(parts).to(DEVICE), sums.clone().to(DEVICE), totals, TILE=1024
    )
    expected = np.empty(len(sizes))
    total_up(parts, 0, len(sizes), sums.numpy(), expected)
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
    triton_largest.share_ties[(3,)](torch.from_numpy(edges).to(DEVICE), *ours, TILE=1024)
    assert ours[2].tolist() == expected.tolist()
    assert ours[1].tolist() == (above + expected).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_added_one_after_the_other(dtype: torch.dtype) -> None:
    values = torch.randn(3, 1500, dtype=dtype, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    assert torch.equal(KERNELS.add_rows(values), (values[0] + values[1]) + values[2])


def test_what_takes_the_reference() -> None:
    rows = torch.ones(W, 10, device=DEVICE)
    assert KERNELS.can_run([segment(rows)])
    assert not KERNELS.can_run([segment(rows.half())])
    assert not KERNELS.can_run([segment(rows.t().contiguous().t())])
    assert not KERNELS.can_run([segment(rows)._replace(gradient=rows.bfloat16())])
    assert not KERNELS.can_sum(rows)
    assert not KERNELS.can_average(Sparse(rows[0], torch.arange(10, dtype=torch.int32)))


def test_choice() -> None:
    assert isinstance(choice.kernels_for("auto", "cuda"), GpuKernels)
    assert "triton" in choice.describe("auto", "cuda")
    assert choice.kernels_for("reference", "cuda") is None
    assert choice.describe("reference", "cuda") == "reference"


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    monkeypatch.setattr(choice, "_of_device", choice._of_device.__wrapped__)
    assert choice.kernels_for("auto", "cuda") is None
    assert choice.describe("auto", "cuda") == "reference, as triton is not installed"


@pytest.mark.slow
def test_compiles_for_gpus() -> None:
    """To machine code, which needs no GPU; the interpreter takes more than the compiler does."""
    script = Path(__file__).parents[1] / "helpers" / "compile_kernels.py"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 60
