"""Properties of the sparsifiers on generated vectors."""

import hypothesis.extra.numpy as arrays
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods import cases, is_exact

from compressors.api import Codec, Step, elements_of
from compressors.core.norms import squared_norm
from compressors.hard_threshold import HardThreshold
from compressors.random_block import RandomBlock
from contract.cases import weights_of

numbers = st.floats(-1e3, 1e3, width=32)
vectors = arrays.arrays("float32", st.integers(1, 200), elements=numbers).map(torch.from_numpy)
few_magnitudes = arrays.arrays(
    "float32", st.integers(1, 200), elements=st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0])
).map(torch.from_numpy)
densities = st.floats(1e-3, 1.0)
EXACT = [case for case in cases() if is_exact(case.method()) and type(case.method()).choose is Codec.choose]
steps = st.builds(
    Step, st.integers(0, 9), st.integers(0, 9), st.just(1.0), st.floats(0, 99), worker=st.integers(0, 9)
)


def encode(codec, x, where=None):
    """The payload, the residual, and the vector C(x)."""
    rest, where = x.clone(), where or Step(0, 0)
    payload = codec.encode(rest, where)
    sent = torch.zeros_like(x)
    codec.add(payload, sent, where)
    return payload, rest, sent


@settings(deadline=None, max_examples=50)  # each example builds every method
@given(vectors, densities, steps)
def test_every_sparsifier_sends_or_keeps_each_entry(x, density, where):
    for case in EXACT:
        codec = case.method(density=density, threshold=density)
        where = where._replace(shapes=((len(x),),), weights=weights_of(((len(x),),)))
        payload, rest, sent = encode(codec, x, where)
        positions = codec.positions(payload, len(x), where)
        assert torch.equal(rest + sent, x)
        assert len(positions.unique()) == len(positions) == len(payload.values)
        assert torch.equal(sent[positions], payload.values)
        assert (rest[positions] == 0).all()


@given(vectors | few_magnitudes, st.floats(0, 1e3, width=32))
def test_hard_threshold_keeps_magnitudes_from_lambda_on(x, threshold):
    payload, rest, _ = encode(HardThreshold(threshold=threshold), x)
    expected = (x.abs() >= threshold).nonzero().squeeze(1)
    assert payload.indices.tolist() == expected.tolist()
    assert squared_norm(rest) <= HardThreshold(threshold=threshold).error_bound(x, Step(0, 0))


@given(st.integers(1, 300), densities, st.integers(0, 50))
def test_random_block_is_contiguous_and_wraps(size, density, step):
    codec = RandomBlock(density=density)
    positions = codec.encode(torch.ones(size), Step(0, step)).positions(size)
    assert ((positions.diff() == 1) | (positions.diff() == 1 - size)).all()


def test_number_of_elements_by_hand():
    given = {(0.001, 11_173_962): 11173, (0.07, 100): 7, (0.29, 100): 29, (1e-9, 5): 1}
    assert {(d, n): elements_of(d, n) for d, n in given} == given
