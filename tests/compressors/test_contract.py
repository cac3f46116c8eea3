"""What every compressor in conf/compressor has to keep, found by looking into that folder."""

import math

import numpy as np
import pytest
import torch
from methods import FEEDBACKS, Case, cases, is_codec, reduce_once, segment

from compressors.api import Codec, Step, inputs_of
from compressors.backends import backend_of
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.fields import KINDS, declared
from compressors.norms import squared_norm
from trainers.communicator import Communicator

CASES = [pytest.param(case, id=str(case)) for case in cases()]
CODECS = [pytest.param(case, id=str(case)) for case in cases() if is_codec(case.method())]
every_method = pytest.mark.parametrize("case", CASES)
every_codec = pytest.mark.parametrize("case", CODECS)
W, D = 3, 500


def current(codec: Codec, x: torch.Tensor) -> Codec:
    """C of the first step."""
    segments = [segment(x.reshape(1, -1).clone())]
    (own,), _ = codec.choose(inputs_of(segments), codec.init(segments), Step(0, 0), Communicator(1))
    return own


def gradients(step: int = 0, workers: int = W, size: int = D) -> torch.Tensor:
    return torch.randn(workers, size, generator=torch.Generator().manual_seed(step))


@every_method
@pytest.mark.parametrize("scale", ["gradient", "step"])
def test_conservation(case: Case, scale: str) -> None:
    """sent + residual = gradient + old residual, exactly, over several steps."""
    reducer = ErrorFeedback(build_reducer(case.method(), D), scale=scale)
    learning_rate = 0.25  # a power of two: dividing by it is exact
    residual, state = torch.zeros(1, D), None
    for step in range(4):
        g = gradients(step, workers=1)
        p = residual + g * (learning_rate if scale == "step" else 1.0)
        reduced, state, _ = reduce_once(reducer, g, state, step, learning_rate)
        sent = reduced.mean["a"] * (learning_rate if scale == "step" else 1.0)  # one worker: its own
        residual = state.residual["a"].clone()
        if reducer.traits.exact:
            assert torch.equal(sent + residual, p)
        else:
            torch.testing.assert_close(sent + residual, p, rtol=0, atol=1e-6 * p.abs().max().item())
        assert torch.equal(residual, reduced.remainder["a"])


@every_method
def test_conservation_over_workers(case: Case) -> None:
    """The mean is that of what was sent; where that is exact, entries are sent or kept as they are."""
    g = gradients()
    reducer = ErrorFeedback(build_reducer(case.method(), D))
    reduced, _, _ = reduce_once(reducer, g)
    kept = reduced.remainder["a"]
    torch.testing.assert_close(reduced.mean["a"], (g - kept).mean(0))
    if reducer.traits.exact:
        assert ((kept == g) | (kept == 0)).all()
        assert reduced.compressed["a"].counts.tolist() == (kept == 0).sum(1).tolist()


@every_method
def test_lossless_limit_is_dense(case: Case) -> None:
    g = gradients()
    for feedback in FEEDBACKS.values():
        reduced, _, _ = reduce_once(build_reducer(case.lossless(), D, feedback), g)
        torch.testing.assert_close(reduced.mean["a"], g.mean(0))
        assert squared_norm(reduced.remainder["a"]).sum() == 0 == reduced.compressed["a"].error.sum()
        assert reduced.compressed["a"].sent.tolist() == [[D]] * W


@every_codec
def test_declared_property(case: Case) -> None:
    """||x - C(x)||^2 stays below the declared bound; on average over the draws where it is random."""
    codec = case.method()
    if math.isinf(codec.error_bound(gradients(1)[0], Step(0, 0))):
        pytest.skip(f"{case} promises no bound")
    for x in (gradients(1)[0], gradients(2)[0] ** 3, torch.linspace(-1, 1, D)):
        errors = []
        for step in range(400 if codec.traits.seeded else 1):
            rest = x.clone()
            current(codec, rest).encode(rest, Step(0, step))
            errors.append(squared_norm(rest).item())
        mean = sum(errors) / len(errors)
        spread = math.sqrt(sum((e - mean) ** 2 for e in errors) / max(1, len(errors) - 1) / len(errors))
        assert mean <= codec.error_bound(x, Step(0, 0)) + 4 * spread + 1e-6
        assert mean > 0


@every_codec
def test_property_flags(case: Case) -> None:
    """``linear`` and ``ragged`` say what the codec really does."""
    a, b = gradients(1)[0], 10 * gradients(2)[0]
    codec = current(case.method(), a)
    payloads = [codec.encode(x.clone(), Step(0, 0, worker=w)) for w, x in enumerate((a, b))]
    positions = [payload.positions(D) for payload in payloads]
    if len(positions[0]) == len(positions[1]) == D:
        pytest.skip(f"{case} sends something of all elements")
    assert (len(positions[0]) != len(positions[1])) == codec.traits.ragged
    if not codec.traits.ragged:
        assert torch.equal(positions[0], positions[1]) == codec.traits.linear


@every_codec
def test_a_payload_of_several_workers_is_theirs_in_a_row(case: Case) -> None:
    """What a backend sends and leaves for all workers at once is what ``encode`` does, bit for bit."""
    rows, workers, step = gradients(1), range(2, 2 + W), Step(3, 5, segment="a")
    codec = current(case.method(), rows[0])
    left = rows.clone()
    alone = [codec.encode(x, step._replace(worker=w)) for x, w in zip(left, workers, strict=True)]
    together = segment(rows.clone())
    (found,) = backend_of(rows.device).compress([codec], inputs_of([together]), step, workers)
    assert torch.equal(together.rows, left)
    assert found.counts.tolist() == [p.num_sent(D) for p in alone]
    assert torch.equal(found.positions(D), torch.cat([p.positions(D) for p in alone]))
    sums = [torch.zeros(D), torch.zeros(D)]
    for total, payloads in zip(sums, (found.payloads, alone), strict=True):
        for payload in payloads:
            payload.add_to(total)
    assert torch.equal(*sums)
    if len(found.payloads) == 1:
        for field, pieces in zip(found.payloads[0], zip(*alone, strict=True), strict=True):
            assert torch.equal(field, torch.cat(pieces))


@every_method
def test_what_was_compressed_is_measured(case: Case) -> None:
    """||p||^2 is that of the gradient plus what feedback added."""
    reducer = ErrorFeedback(build_reducer(case.method(), D))
    g, state = gradients(), None
    _, state, _ = reduce_once(reducer, g)
    residual = state.residual["a"].clone() if state else torch.zeros_like(g)
    segments, communicator = [segment(g.clone())], Communicator(W)
    reduced, _ = reducer.reduce(inputs_of(segments), state, Step(0, 1), communicator)
    assert torch.equal(reduced.compressed["a"].input_norm, squared_norm(residual + g).unsqueeze(1))
    assert torch.equal(reduced.compressed["a"].error, squared_norm(reduced.remainder["a"]).unsqueeze(1))


@every_method
def test_deterministic_and_new_each_step(case: Case) -> None:
    g = gradients()
    means = [reduce_once(build_reducer(case.method(), D), g, step=step)[0].mean["a"] for step in (0, 0, 1)]
    assert torch.equal(means[0], means[1])
    assert torch.equal(means[0], means[2]) != case.method().traits.seeded


@every_method
def test_state_round_trip(case: Case) -> None:
    """A copy of the state goes on as the original does: the state is all there is."""
    reducer = ErrorFeedback(build_reducer(case.method(), D))
    state = None
    for step in range(2):
        _, state, _ = reduce_once(reducer, gradients(step), state, step)
    copied = state._replace(residual={name: e.clone() for name, e in state.residual.items()})
    again = ErrorFeedback(build_reducer(case.method(), D))
    one, state, _ = reduce_once(reducer, gradients(2), state, 2)
    other, copied, _ = reduce_once(again, gradients(2), copied, 2)
    assert torch.equal(one.mean["a"], other.mean["a"])
    assert torch.equal(state.residual["a"], copied.residual["a"])


@every_method
def test_zeros(case: Case) -> None:
    """A zero gradient is fine, and a sparse one whose workers send nothing at all."""
    reduced, _, communicator = reduce_once(build_reducer(case.method(), D), torch.zeros(W, D))
    assert torch.equal(reduced.mean["a"], torch.zeros(D))
    if case.method().traits.ragged and not reduced.compressed["a"].sent.any():
        charged = communicator.take_charges()
        assert charged[:, KINDS.index("values")].tolist() == [0] * W
        assert charged[:, KINDS.index("metadata")].min() >= 4  # the count of nothing


@every_method
def test_one_worker_sends_nothing(case: Case) -> None:
    g = gradients()
    g[1] = 0
    reduced, _, _ = reduce_once(build_reducer(case.method(), D), g)
    torch.testing.assert_close(reduced.mean["a"], (g - reduced.remainder["a"]).mean(0))


@every_method
def test_one_element(case: Case) -> None:
    """A segment of one element, of which something is sent or nothing."""
    g = torch.tensor([[2.0], [3.0], [4.0]])
    reduced, _, _ = reduce_once(build_reducer(case.method(), 1), g)
    torch.testing.assert_close(reduced.mean["a"], (g - reduced.remainder["a"]).mean(0))
    assert set(reduced.compressed["a"].counts.tolist()) <= {0, 1}


@every_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_float_dtype(case: Case, dtype: torch.dtype) -> None:
    g = gradients().to(dtype)
    reducer = ErrorFeedback(build_reducer(case.method(), D))
    reduced, state, communicator = reduce_once(reducer, g)
    assert reduced.mean["a"].dtype == state.residual["a"].dtype == dtype
    residual = state.residual["a"]
    sent = (g.double() - residual.double()).mean(0).to(dtype)
    torch.testing.assert_close(reduced.mean["a"], sent, rtol=1e-2, atol=1e-2)
    if reducer.traits.exact:
        elements = reduced.compressed["a"].sent.sum().item()
        assert communicator.take_charges()[:, 0].sum() == elements * g.itemsize


@every_method
def test_non_contiguous_rows(case: Case) -> None:
    """Segments are views of a flat buffer; every other view does as well."""
    dense = gradients()
    wide = torch.zeros(W, 2 * D)
    wide[:, ::2] = dense
    reducer = build_reducer(case.method(), D)
    communicator = Communicator(W)
    expected, _, _ = reduce_once(reducer, dense)
    rows = wide[:, ::2]
    reduced, _ = reducer.reduce(
        inputs_of([segment(rows)]), reducer.init([segment(rows)]), Step(0, 0), communicator
    )
    assert torch.equal(reduced.mean["a"], expected.mean["a"])
    assert torch.equal(reduced.remainder["a"], expected.remainder["a"])
    assert torch.equal(wide[:, 1::2], torch.zeros(W, D))


@every_method
def test_bytes_are_those_of_the_tensors(case: Case) -> None:
    """Charged per worker and kind, as the payload declares: its fields, and a count where these are ragged.

    Of what all workers choose alike the values alone travel, as they do where there is no codec.
    """
    reducer = build_reducer(case.method(), D)
    reduced, _, communicator = reduce_once(reducer, gradients())
    expected = np.zeros((W, len(communicator.kinds)), dtype=int)
    codec = reduced.compressed["a"].codec
    if codec is None:
        expected[:, KINDS.index("values")] = 4 * reduced.compressed["a"].sent.squeeze(1)
        assert communicator.take_charges().tolist() == expected.tolist()
        return
    fields = declared(codec.payload).fields
    for worker, x in enumerate(gradients()):
        payload = codec.encode(x, Step(0, 0, segment="a", worker=worker))
        assert reduced.compressed["a"].sent[worker] == payload.num_sent(D) == len(payload.positions(D))
        for tensor, field in zip(payload, fields.values(), strict=True):
            if field.elements_per_entry is not None:
                assert len(tensor) == -(-payload.num_sent(D) // field.elements_per_entry)
            if field.kind == "values" or not codec.traits.linear:
                expected[worker, communicator.kinds.index(field.kind)] += tensor.nbytes
        expected[worker, KINDS.index("metadata")] += 4 * codec.traits.ragged
    assert communicator.take_charges().tolist() == expected.tolist()


@every_method
def test_what_is_exact_travels_as_one_value_an_element(case: Case) -> None:
    if not case.method().traits.exact:
        pytest.skip(f"{case} rounds")
    for dtype in (torch.float32, torch.float64):
        reducer = build_reducer(case.method(), D)
        reduced, _, communicator = reduce_once(reducer, gradients().to(dtype))
        assert reducer.has_a_value_each
        values = communicator.take_charges()[:, KINDS.index("values")]
        assert values.tolist() == (dtype.itemsize * reduced.compressed["a"].sent.squeeze(1)).tolist()


@every_method
def test_some_segments_now_and_some_later(case: Case) -> None:
    """A hook reduces bucket by bucket; the state of the other segments stays as it is."""
    reducer = ErrorFeedback(build_reducer(case.method(), D))
    rows = {name: gradients(i) for i, name in enumerate("abc")}
    segments = [segment(r.clone(), name) for name, r in rows.items()]
    together, whole = reducer.reduce(inputs_of(segments), reducer.init(segments), Step(0, 0), Communicator(W))
    segments = [segment(r.clone(), name) for name, r in rows.items()]
    state = reducer.init(segments)
    for bucket in (segments[2:], segments[:2]):
        part, state = reducer.reduce(inputs_of(bucket), state, Step(0, 0), Communicator(W))
        for name, mean in part.mean.items():
            assert torch.equal(mean, together.mean[name])
    for name in rows:
        assert torch.equal(state.residual[name], whole.residual[name])


@every_method
def test_repr_says_the_settings(case: Case) -> None:
    text = repr(build_reducer(case.method(), D))
    assert type(case.method()).__name__ in text
    assert "object at 0x" not in text
