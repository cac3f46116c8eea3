"""CPU kernels against the reference: means, residuals, counts, bytes and errors, bit for bit."""

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods import CONF, Case, cases, communicator_for, is_exact, segment
from torch import Tensor

from compressors.api import Codec, Input, Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.core.norms import squared_norm
from compressors.feedback import ErrorFeedback, no_feedback
from compressors.hard_threshold import HardThreshold
from compressors.kernels.choice import backend_of, choose, chosen, describe
from compressors.kernels.cpu.table import PIECE, PieceTables
from compressors.top_k import TopK
from contract.cases import weights_of

CPU = torch.device("cpu")
BACKEND = backend_of(CPU)
W, STEPS = 3, 3
RATE = 0.37  # not a power of two, so that products are not exact and a fused multiply-add shows
SIZES = {
    "one element": [1],
    "less than a block": [200],
    "layers around a block's size": [1, 256, 255, 257, 1024, 3],
    "sampled": [20_000, 1, 3000],
}
CASES = [case for case in cases() if is_exact(case.method()) or case.method().traits.ragged]
CODECS = [pytest.param(case, id=str(case)) for case in CASES]


def normal(step: int, size: int) -> Tensor:
    return torch.randn(W, size, generator=torch.Generator().manual_seed(step))


def tied(step: int, size: int) -> Tensor:
    return torch.randint(-2, 3, (W, size), generator=torch.Generator().manual_seed(step)).float()


def in_blocks(step: int, size: int) -> Tensor:
    """All large entries are adjacent, so a sample of the vector gives a bad estimate of the threshold."""
    x = 1e-3 * normal(step, size)
    x[:, size // 3 : size // 3 + 30] *= 1e6
    return x


DRAWS = (normal, tied, in_blocks)


def run(reducer, gradients: list[Tensor], sizes: list[int], scope: str) -> list[dict[str, Tensor]]:
    """Means, residuals, errors, norms, counts and bytes of each step."""
    flat = torch.zeros_like(gradients[0])
    if scope == "global":
        shapes = tuple((size,) for size in sizes)
        segments = [Segment("model", flat, shapes, weights_of(shapes))]
    else:
        segments = [segment(rows, str(i)) for i, rows in enumerate(flat.split(sizes, 1))]
    state, communicator, found = reducer.init(segments), communicator_for(reducer, W), []
    for step, gradient in enumerate(gradients):
        flat.copy_(gradient)
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(3, step, RATE), communicator)
        found.append({"bytes": torch.from_numpy(communicator.take_charges())})
        for name, own in reduced.compressed.items():
            found[-1] |= {
                f"{name} mean": reduced.mean[name].clone(),
                f"{name} residual": reduced.residual[name].clone(),
                f"{name} error": own.error.clone(),
                f"{name} input norm": own.input_norm.clone(),
                f"{name} sent": torch.as_tensor(reduced.compressed[name].sent).clone(),
            }
    return found


def assert_equal(one: list[dict[str, Tensor]], other: list[dict[str, Tensor]]) -> None:
    for step, (a, b) in enumerate(zip(one, other, strict=True)):
        assert a.keys() == b.keys()
        for name in a:
            assert torch.equal(a[name], b[name]), f"step {step}: {name}"


def combinations() -> Iterator[Any]:
    """All combinations of methods, sizes, dtypes, scopes and draws.

    Six of them are not slow tests: every size, dtype, scope and draw, and all draws of the largest size. For
    a method that does more than follow a rule, only one combination is not a slow test.
    """
    dtypes = (torch.float32, torch.float64)
    for case in CASES:
        method = case.method()
        chooses = not isinstance(method, Codec) or type(method).choose is not Codec.choose
        for size, wide, whole, drawn in product(range(len(SIZES)), range(2), range(2), range(len(DRAWS))):
            sizes, dtype, draw = list(SIZES)[size], dtypes[wide], DRAWS[drawn]
            scope = ("layer", "global")[whole]
            is_paired = (wide, whole) == ((size + drawn) % 2, (size // 2 + drawn) % 2)
            is_paired = is_paired and (sizes == "sampled" or drawn == size % 2)
            is_usual = (sizes, dtype, scope, draw) == ("sampled", torch.float32, "layer", normal)
            name = f"{case}-{sizes}-{str(dtype).removeprefix('torch.')}-{scope}-{draw.__name__}"
            marks = [] if (is_usual if chooses else is_paired) else [pytest.mark.slow]
            yield pytest.param(case, SIZES[sizes], dtype, scope, draw, marks=marks, id=name)


@pytest.mark.parametrize(("case", "sizes", "dtype", "scope", "draw"), [*combinations()])
def test_equals_reference(case: Case, sizes: list[int], dtype: torch.dtype, scope: str, draw) -> None:
    gradients = [draw(step, sum(sizes)).to(dtype) for step in range(STEPS)]
    feedbacks = [partial(ErrorFeedback, scale="step"), no_feedback]
    for feedback in feedbacks[: 2 if dtype == torch.float32 else 1]:
        found = []
        for kernels in ("auto", "reference"):
            with chosen(kernels):
                found.append(run(build_reducer(case.method(), sum(sizes), feedback), gradients, sizes, scope))
        assert_equal(*found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("few", [0, 1, 40, 100, 101])
def test_zeros_are_sent_if_there_is_nothing_else(few: int, scope: str, dtype: torch.dtype) -> None:
    """As in an embedding's gradient; 100 entries of the whole are sent. Zeros of both signs, subnormals."""
    sizes, gradients = [300, 9_000, 700, 10_000], []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        x = torch.zeros(W, sum(sizes), dtype=dtype)
        x[torch.rand(x.shape, generator=generator) < 0.5] = -0.0
        for row in x:
            places = torch.randperm(len(row), generator=generator)[:few]
            row[places] = torch.randn(few, generator=generator, dtype=dtype)
            row[places[::3]] = torch.finfo(dtype).smallest_normal * 2**-20
        gradients.append(x)
    found = []
    for kernels in ("auto", "reference"):
        with chosen(kernels):
            reducer = build_reducer(TopK(density=0.005), sum(sizes), partial(ErrorFeedback, scale="step"))
            found.append(run(reducer, gradients, sizes, scope))
    assert_equal(*found)


@pytest.mark.parametrize("case", CODECS)
def test_threads_change_nothing(case: Case) -> None:
    """The layer is longer than a piece, so that several threads work on it."""
    sizes = [2 * PIECE + 300, 7]
    gradients = [normal(step, sum(sizes)) for step in range(2)]
    threads, found = torch.get_num_threads(), []
    for number in (1, 3):
        torch.set_num_threads(number)
        reducer = build_reducer(case.method(), sum(sizes), ErrorFeedback)
        found.append(run(reducer, gradients, sizes, "global"))
    torch.set_num_threads(threads)
    assert_equal(*found)


@given(
    arrays.arrays(
        "float32", st.integers(1, 600), elements=st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0])
    ),
    st.floats(1e-3, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_ties_go_to_the_lowest_index(entries: np.ndarray, density: float) -> None:
    """``encode`` and the backend select the same entries as a stable sort, which neither uses."""
    k = TopK(density=density).rule(len(entries), Step(0, 0), range(1)).number
    expected = sorted(sorted(range(len(entries)), key=lambda i: (-abs(entries[i]), i))[:k])
    rows = torch.from_numpy(entries.copy())
    alone = TopK(density=density).encode(rows.clone(), Step(0, 0))
    several = inputs_of([segment(rows.repeat(2, 1))])
    (compressed,) = BACKEND.compress([TopK(density=density)], several, Step(0, 0), range(2))
    (payload,) = compressed.payloads
    assert len(expected) == k and alone.indices.tolist() == expected
    assert payload.indices.tolist() == 2 * expected


def test_a_nan_counts_as_larger_than_any_number() -> None:
    """It is sent before infinity, and the norm of the input is not finite."""
    x = torch.tensor([1.0, float("nan"), float("inf"), -3.0] + 300 * [0.5])
    for codec, kept in (
        (HardThreshold(threshold=2.0), [1, 2, 3]),
        (TopK(density=2 / 304), [1, 2]),
        (TopK(density=1 / 304), [1]),
    ):
        rest, left = x.clone(), segment(x[None].clone())
        payload = codec.encode(rest, Step(0, 0))
        (compressed,) = BACKEND.compress([codec], inputs_of([left]), Step(0, 0), range(1))
        assert payload.indices.tolist() == compressed.payloads[0].indices.tolist() == kept
        assert torch.equal(left.rows[0], rest)
        assert compressed.error.item() == squared_norm(rest).item()
        assert not compressed.input_norm.isfinite().any()


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 5000, 300_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squared_norms(size: int, dtype: torch.dtype) -> None:
    rows = torch.randn(2, size, dtype=dtype, generator=torch.Generator().manual_seed(0))
    (found,) = BACKEND.squared_norms([segment(rows)])
    assert torch.equal(found[:, 0], squared_norm(rows))
    torch.testing.assert_close(found[:, 0], rows.double().square().sum(1), rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_copy_with_norms(dtype: torch.dtype) -> None:
    sizes, generator = [0, 1, 255, 256, 257, 5000, 300_000], torch.Generator().manual_seed(0)
    rows = [torch.randn(size, generator=generator).to(dtype) for size in sizes]
    rows[2][7], rows[5] = math.inf, torch.randn(2 * 5000, generator=generator).to(dtype)[::2]
    targets = [torch.empty(size, dtype=dtype) for size in sizes]
    norms = BACKEND.copy_with_norms(rows, targets)
    assert all(map(torch.equal, targets, rows))
    assert norms.dtype == torch.float64
    assert norms.tolist() == [squared_norm(row).item() for row in rows]
    assert math.isinf(norms[2])


@pytest.mark.parametrize(("dtype", "tiny"), [(torch.float32, 1e-40), (torch.float64, 1e-160)])
def test_norms_have_the_bits_of_the_reference(dtype: torch.dtype, tiny: float) -> None:
    """With several workers and layers, subnormal entries or squares, and entries that are not finite."""
    sizes = [1, 255, 256, 257, 5000, 300_000, 600, 600]
    rows, memory = torch.randn(2, W, sum(sizes), generator=torch.Generator().manual_seed(0)).to(dtype)
    layers = rows.split(sizes, 1)
    layers[3][:], layers[4][1] = tiny * layers[3], tiny * layers[4][1]
    layers[6][0, 3], layers[7][2, 599] = torch.inf, torch.nan
    whole = Segment("model", rows, tuple((size,) for size in sizes))
    separate = [segment(layer, str(number)) for number, layer in enumerate(layers)]
    for inputs in (inputs_of([whole]), inputs_of(separate), [Input(whole, memory, RATE)]):
        with chosen("reference"):
            expected = backend_of(CPU).norms_of(inputs)
        for own, other in zip(BACKEND.norms_of(inputs), expected, strict=True):
            torch.testing.assert_close(own, other, rtol=0, atol=0, equal_nan=True)


def test_choices() -> None:
    assert "numba" in describe(CPU) and "numba" in backend_of(CPU).name
    assert describe(torch.device("mps")) == "reference (there are no compiled loops for mps)"
    with chosen("reference"):
        assert describe(CPU) == backend_of(CPU).name == "reference"
    assert "numba" in describe(CPU)
    with pytest.raises(ValueError, match="kernels must be one of auto, reference, got 'fast'"):
        choose("fast")


@pytest.mark.slow
def test_without_a_place_to_keep_compiled_code(tmp_path: Path) -> None:
    """The kernels work without any writable cache folder."""
    shutil.copytree(CONF.parent / "compressors", tmp_path / "compressors", ignore=lambda *_: ["__pycache__"])
    script = (
        "import numba.core.caching as caching\n"
        "def nowhere(*_): raise OSError('read-only')\n"
        "for kind in caching.CacheImpl._locator_classes: kind.ensure_cache_path = nowhere\n"
        "import torch\n"
        "from compressors.api import Segment\n"
        "from compressors.kernels.choice import backend_of\n"
        "rows = torch.ones(1, 300)\n"
        "print(backend_of(rows.device).squared_norms([Segment('a', rows, ((300,),))])[0].item())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "300.0", done.stderr
    assert not list(tmp_path.glob("**/*.nbi"))


def test_rows_of_a_segment_that_nothing_is_sent_of() -> None:
    """The sum of rows without entries is empty: a linear method may send nothing of a short layer."""
    assert backend_of(torch.device("cpu")).add_rows(torch.ones(3, 0)).shape == (0,)


def test_threads_have_tables_of_their_own() -> None:
    """The hooks of two process groups are two threads, and two models may have equal names and sizes."""
    tables, given = PieceTables(), [Input(Segment("a", torch.ones(1, 300), ((300,),)))]
    with ThreadPoolExecutor(1) as other:
        assert tables.of(given) is tables.of(given) is not other.submit(tables.of, given).result()
