"""Contract tests for every compressor, which depend on its traits.

A package tests its methods by a class that pytest collects:

    from total_error.testing import Contract, cases_of
    from my_compressor.stride import Stride

    class TestStride(Contract):
        cases = cases_of(Stride)

``pytest --pyargs contract`` tests the methods of all installed packages with an entry point
``total_error.compressors`` and a conf folder.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.api import Codec, Reducer, Shared, State, Step, inputs_of
from compressors.core.fields import KINDS, declared
from compressors.core.norms import squared_norm
from compressors.feedback import ErrorFeedback
from compressors.kernels.choice import backend_of
from contract.cases import (
    FEEDBACKS,
    Case,
    cases_of,
    communicator_for,
    is_codec,
    layer_shape,
    reduce_once,
    reducer_of,
    segment,
)
from contract.processes import compare_layouts
from contract.recording import RecordingCommunicator
from trainers.checkpoint.form import first_form, require_form
from trainers.checkpoint.tree import walk

__all__ = ["Case", "Contract", "cases_of"]
W, D = 3, 500
DRAWS = 100  # draws of a seeded method, for averages of its error and mean
METADATA, VALUES = KINDS.index("metadata"), KINDS.index("values")


def gradients(step: int = 0, workers: int = W, size: int = D) -> Tensor:
    return torch.randn(workers, size, generator=torch.Generator().manual_seed(step))


def current(codec: Codec, rows: Tensor, step: Step) -> Codec:
    """The codec that ``choose`` returns in the first step, ``step``, for workers with ``rows`` [W, d]."""
    segments = [segment(rows.clone())]
    communicator = communicator_for(reducer_of(codec, rows.shape[1]), len(rows))
    (own,), _ = codec.choose(inputs_of(segments), codec.init(segments), step, communicator)
    return own


def step_of(x: Tensor, number: int = 0, **changes: Any) -> Step:
    """The step that ``encode`` gets for a segment of one layer."""
    return Step(0, number, segment="a", shapes=(layer_shape(x.numel()),), **changes)


def codec_of(case: Case) -> Codec:
    """The codec of a case. Skips the test if the method is a reducer."""
    method = case.method()
    if not is_codec(method):
        pytest.skip(f"{case} is not a codec")
    return method


def with_setting(method: Any, name: str, value: object) -> Any:
    """A copy of ``method`` with another value of a field, such as density, or first.density of a part."""
    name, _, rest = name.partition(".")
    return dataclasses.replace(
        method, **{name: with_setting(getattr(method, name), rest, value) if rest else value}
    )


def require_conserving(reducer: Reducer) -> None:
    """Skip the test if the mean is not that of the payloads of the same step."""
    if reducer.traits.relays:
        pytest.skip("it relays: parts of C(p) arrive in later steps")


def require_mean(reducer: Reducer, mean: Tensor, sent: Tensor, rtol: float, atol: float) -> None:
    """Assert that ``mean`` [d] is that of C(p), ``sent`` [W, d], or its mean over the senders of each entry.

    A worker may send a zero, so the number of senders is between that of entries other than 0 and W.
    """
    total, senders = sent.sum(0), torch.full_like(mean, len(sent))
    if reducer.traits.of_senders:
        fewest = (sent != 0).sum(0).clamp(min=1)
        senders = (total / mean.where(mean != 0, 1)).round().clamp(min=fewest, max=senders)
    torch.testing.assert_close(mean, total / senders, rtol=rtol, atol=atol)


class Contract:
    """Tests of each of ``cases``."""

    cases: ClassVar[Sequence[Case]] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", [pytest.param(case, id=str(case)) for case in self.cases])

    @pytest.mark.parametrize("scale", ["gradient", "step"])
    def test_conservation(self, case: Case, scale: str) -> None:
        """sent + residual = gradient + old residual over several steps: exactly, or up to rounding."""
        reducer: Reducer = ErrorFeedback(reducer_of(case.method(), D), scale=scale)
        require_conserving(reducer)
        rate = 0.25  # a power of two: dividing by it is exact
        residual, state = torch.zeros(1, D), None
        for step in range(4):
            g = gradients(step, workers=1)
            p = residual + g * (rate if scale == "step" else 1.0)
            reduced, state, _ = reduce_once(reducer, g, state, step, rate)
            sent = reduced.mean["a"] * (rate if scale == "step" else 1.0)  # one worker: its own
            residual = state.residual["a"].clone()
            if reducer.traits.exact:
                assert torch.equal(sent + residual, p)
            else:
                torch.testing.assert_close(sent + residual, p, rtol=0, atol=1e-5 * p.abs().max().item())
            assert torch.equal(residual, reduced.residual["a"])

    def test_conservation_over_workers(self, case: Case) -> None:
        """The mean is that of C(p); an exact method sends or keeps each entry unchanged."""
        g = gradients()
        reducer = ErrorFeedback(reducer_of(case.method(), D))
        require_conserving(reducer)
        reduced, _, _ = reduce_once(reducer, g)
        kept = reduced.residual["a"]
        require_mean(reducer, reduced.mean["a"], g - kept, rtol=1e-5, atol=1e-5)
        if reducer.traits.exact:
            assert ((kept == g) | (kept == 0)).all()
            assert reduced.compressed["a"].counts.tolist() == (kept == 0).sum(1).tolist()

    def test_lossless_limit_is_dense(self, case: Case) -> None:
        g = gradients()
        for feedback in FEEDBACKS.values():
            reduced, _, _ = reduce_once(reducer_of(case.lossless(), D, feedback), g)
            torch.testing.assert_close(reduced.mean["a"], g.mean(0))
            assert squared_norm(reduced.residual["a"]).sum() == 0 == reduced.compressed["a"].error.sum()
            assert reduced.compressed["a"].sent.tolist() == [[D]] * W

    def test_error_bound(self, case: Case) -> None:
        """||x - C(x)||^2 stays below the declared bound; for a random method, on average over draws."""
        codec = codec_of(case)
        if math.isinf(codec.error_bound(gradients(1)[0], step_of(gradients()[0]))):
            pytest.skip(f"{case} declares no bound")
        for x in (gradients(1)[0], gradients(2)[0] ** 3, torch.linspace(-1, 1, D)):
            errors = []
            for number in range(DRAWS if codec.traits.seeded else 1):
                rest = x.clone()
                current(codec, rest[None], step_of(x)).encode(rest, step_of(x, number))
                errors.append(squared_norm(rest).item())
            mean = sum(errors) / len(errors)
            standard_error = math.sqrt(
                sum((e - mean) ** 2 for e in errors) / max(1, len(errors) - 1) / len(errors)
            )
            assert mean <= codec.error_bound(x, step_of(x)) + 5 * standard_error + 1e-6
            assert mean > 0

    def test_unbiased(self, case: Case) -> None:
        """The squared error of the mean of C(x) over ``DRAWS`` draws is about the variance / ``DRAWS``.

        An entry's mean is nearly Gaussian: the sum over D = 500 independent entries exceeds twice its
        expectation with a probability below 1e-6.
        """
        codec = codec_of(case)
        if not codec.traits.unbiased:
            pytest.skip(f"{case} is not declared unbiased")
        for x in (gradients(1)[0], gradients(2)[0] ** 3):
            total, variance = torch.zeros(D, dtype=torch.float64), 0.0
            for number in range(DRAWS):
                rest = x.clone()
                codec.encode(rest, step_of(x, number))
                total += rest
                variance += squared_norm(rest).item() / DRAWS
            assert squared_norm(total / DRAWS).item() <= 2 * variance / DRAWS

    def test_traits_of_what_is_sent(self, case: Case) -> None:
        """``linear``, ``ragged``, ``drawn`` and ``dense`` hold for workers with different inputs."""
        a, b = gradients(1)[0], 10 * gradients(2)[0]
        traits, step = codec_of(case).traits, step_of(a)
        codec = current(codec_of(case), torch.stack([a, a]), step)
        own = [codec.encode(x.clone(), step._replace(worker=w)) for w, x in enumerate((a, b))]
        first, second = (codec.positions(payload, D, step) for payload in own)
        assert (len(first) == len(second) == D) == traits.dense, (
            f"trait dense: two workers sent {len(first)} and {len(second)} of {D} elements"
        )
        if traits.dense:
            return
        ragged = len(first) != len(second)
        assert ragged == traits.ragged, (
            f"trait ragged: two workers sent {len(first)} and {len(second)} elements"
        )
        if not traits.ragged:
            are_equal = torch.equal(first, second)
            assert are_equal == traits.linear, (
                f"trait linear: two workers chose {'the same' if are_equal else 'different'} elements"
            )
        if codec.traits.drawn:
            again = codec.encode(b.clone(), step)
            assert torch.equal(codec.positions(again, D, step), first), (
                "trait drawn: the elements sent depend on the input"
            )

    def test_a_payload_of_several_workers_is_theirs_in_a_row(self, case: Case) -> None:
        """A backend's payloads and residuals of all workers equal those of ``encode``, bit for bit."""
        rows, workers = gradients(1), range(W)
        step = step_of(rows[0], 5)._replace(seed=3)
        codec = current(codec_of(case), rows, step._replace(number=0))
        left = rows.clone()
        alone = [codec.encode(x, step._replace(worker=w)) for x, w in zip(left, workers, strict=True)]
        together = segment(rows.clone())
        (found,) = backend_of(rows.device).compress([codec], inputs_of([together]), step, workers)
        assert torch.equal(together.rows, left)
        assert found.counts.tolist() == [codec.num_sent(payload, D, step) for payload in alone]
        assert torch.equal(found.positions(D), torch.cat([codec.positions(p, D, step) for p in alone]))
        sums = [torch.zeros(D), torch.zeros(D)]
        for total, payloads in zip(sums, (found.payloads, alone), strict=True):
            for worker, payload in zip(workers, payloads, strict=False):
                codec.add(payload, total, step._replace(worker=worker))
        assert torch.equal(*sums)
        if declared(codec.payload).joins and len(found.payloads) == 1:
            for field, pieces in zip(found.payloads[0], zip(*alone, strict=True), strict=True):
                assert torch.equal(field, torch.cat(pieces))

    def test_what_was_compressed_is_measured(self, case: Case) -> None:
        """||p||^2 is that of gradient plus residual; ||p - C(p)||^2 is that of the new residual."""
        reducer = ErrorFeedback(reducer_of(case.method(), D))
        g, state = gradients(), None
        _, state, _ = reduce_once(reducer, g)
        residual = state.residual["a"].clone() if state else torch.zeros_like(g)
        segments, communicator = [segment(g.clone())], communicator_for(reducer, W)
        reduced, _ = reducer.reduce(inputs_of(segments), state, Step(0, 1), communicator)
        assert torch.equal(reduced.compressed["a"].input_norm, squared_norm(residual + g).unsqueeze(1))
        assert torch.equal(reduced.compressed["a"].error, squared_norm(reduced.residual["a"]).unsqueeze(1))

    def test_deterministic_and_new_each_step(self, case: Case) -> None:
        g = gradients()
        means = [reduce_once(reducer_of(case.method(), D), g, step=t)[0].mean["a"] for t in (0, 0, 1)]
        assert torch.equal(means[0], means[1]), "two compressions in the same step differ"
        differ = not torch.equal(means[0], means[2])
        assert differ == case.method().traits.seeded, (
            f"trait seeded: the same gradients in two steps have {'different' if differ else 'equal'} means"
        )

    @pytest.mark.parametrize("feedback", FEEDBACKS)
    def test_state_round_trip(self, case: Case, feedback: str) -> None:
        """A copy of the state's tensors continues exactly as the original: there is no other state.

        Names, dtypes and shapes of the tensors are those of the first state, so a run can be resumed.
        """
        reducer, again = (reducer_of(case.method(), D, FEEDBACKS[feedback]) for _ in range(2))
        first = first_form(again, again.init([segment(gradients())]), W)
        state = None
        for step in range(2):
            _, state, _ = reduce_once(reducer, gradients(step), state, step)
        require_form(reducer, state, first)
        copied = copy_of(state)
        one, state, _ = reduce_once(reducer, gradients(2), state, 2)
        other, copied, _ = reduce_once(again, gradients(2), copied, 2)
        assert torch.equal(one.mean["a"], other.mean["a"])
        for shared in (False, True):
            for (name, kept), (_, own) in zip(
                walk(state, "", shared=shared), walk(copied, "", shared=shared), strict=True
            ):
                torch.testing.assert_close(kept, own, rtol=0, atol=0, equal_nan=True, msg=name)

    def test_zeros(self, case: Case) -> None:
        """A zero gradient works, also if the workers then send nothing."""
        reduced, _, communicator = reduce_once(reducer_of(case.method(), D), torch.zeros(W, D))
        if not case.method().traits.signs_only:
            assert torch.equal(reduced.mean["a"], torch.zeros(D))
        if case.method().traits.ragged and not reduced.compressed["a"].sent.any():
            charged = communicator.take_charges()
            assert charged[:, VALUES].tolist() == [0] * W
            assert charged[:, METADATA].min() >= 4  # an element count of 0

    def test_one_worker_sends_nothing(self, case: Case) -> None:
        reducer, g = reducer_of(case.method(), D), gradients()
        require_conserving(reducer)
        g[1] = 0
        reduced, _, _ = reduce_once(reducer, g)
        require_mean(reducer, reduced.mean["a"], g - reduced.residual["a"], rtol=1e-5, atol=1e-5)

    def test_one_element(self, case: Case) -> None:
        """A segment of one element works, whether it is sent or not."""
        reducer, g = reducer_of(case.method(), 1), torch.tensor([[2.0], [3.0], [4.0]])
        reduced, _, _ = reduce_once(reducer, g)
        if not reducer.traits.relays:
            torch.testing.assert_close(reduced.mean["a"], (g - reduced.residual["a"]).mean(0))
        assert set(reduced.compressed["a"].counts.tolist()) <= {0, 1}

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
    def test_any_float_dtype(self, case: Case, dtype: torch.dtype) -> None:
        g = gradients().to(dtype)
        reducer = ErrorFeedback(reducer_of(case.method(), D))
        reduced, state, communicator = reduce_once(reducer, g)
        assert reduced.mean["a"].dtype == state.residual["a"].dtype == dtype
        if not reducer.traits.relays:
            residual = state.residual["a"]
            require_mean(reducer, reduced.mean["a"].double(), g.double() - residual.double(), 1e-2, 2e-2)
        if reducer.has_a_value_each:
            elements = reduced.compressed["a"].sent.sum().item()
            assert communicator.take_charges()[:, VALUES].sum() == elements * g.itemsize

    def test_non_contiguous_rows(self, case: Case) -> None:
        """Non-contiguous rows give the same results; matrix products of reducers may round differently."""
        tolerance = 0 if is_codec(case.method()) else 1e-5
        dense = gradients()
        wide = torch.zeros(W, 2 * D)
        wide[:, ::2] = dense
        reducer = reducer_of(case.method(), D)
        expected, _, _ = reduce_once(reducer, dense)
        rows = wide[:, ::2]
        reduced, _ = reducer.reduce(
            inputs_of([segment(rows)]),
            reducer.init([segment(rows)]),
            Step(0, 0),
            communicator_for(reducer, W),
        )
        torch.testing.assert_close(reduced.mean["a"], expected.mean["a"], rtol=0, atol=tolerance)
        torch.testing.assert_close(reduced.residual["a"], expected.residual["a"], rtol=0, atol=tolerance)
        assert torch.equal(wide[:, 1::2], torch.zeros(W, D))

    def test_bytes_are_those_of_the_tensors_handed_over(self, case: Case) -> None:
        """Charges per worker and kind equal the bytes handed to the collectives."""
        reducer = reducer_of(case.method(), D)
        communicator = RecordingCommunicator(W)
        communicator.declare_kinds(reducer.kinds)
        reduced, _, _ = reduce_once(reducer, gradients(), communicator=communicator)
        charged = communicator.take_charges()
        assert charged.tolist() == communicator.recorded.astype(int).tolist()
        assert charged.any()
        if reducer.has_a_value_each:
            assert charged[:, VALUES].tolist() == (4 * reduced.compressed["a"].counts).tolist()

    def test_the_knob_changes_the_bytes_as_declared(self, case: Case) -> None:
        knob = case.method().knob
        is_first = (
            {} if knob and knob.setting == "threshold" else {"threshold": None}
        )  # of MiCRO, later adapted
        value = knob and reduce(getattr, knob.setting.split("."), case.method())
        if value is None:
            pytest.skip(f"{case} has no knob, or no value of it")
        sent = []
        for at in (value, 2 * value) if isinstance(value, int) and value < 4 else (value / 2, value):
            method = case.method(**is_first)
            for name, factor in knob.factors.items():
                method = with_setting(method, name, type(value)(at * factor))
            reducer = reducer_of(method, D)
            communicator = communicator_for(reducer, W)
            reduce_once(reducer, gradients() ** 3, communicator=communicator)
            sent.append(communicator.take_charges().sum())
        assert (sent[1] > sent[0]) == (knob.slope > 0) and sent[1] != sent[0]

    def test_bytes_are_those_of_the_payloads(self, case: Case) -> None:
        """Charges are the bytes of the payload's fields, by declared kind, and of a ragged method's counts.

        If all workers select the same elements, only values are sent.
        """
        own = codec_of(case)
        if type(own).choose is not Codec.choose:
            pytest.skip(f"{case} also sends data for choose()")
        reducer = reducer_of(own, D)
        reduced, _, communicator = reduce_once(reducer, gradients())
        codec, _ = reduced.compressed["a"].origin
        expected = np.zeros((W, len(communicator.kinds)), dtype=int)
        for worker, x in enumerate(gradients()):
            step = step_of(x, worker=worker)
            payload = codec.encode(x, step)
            sent = codec.num_sent(payload, D, step)
            assert reduced.compressed["a"].counts[worker] == sent == len(codec.positions(payload, D, step))
            for tensor, field in zip(payload, declared(codec.payload).fields.values(), strict=True):
                if field.elements_per_entry is not None:
                    assert len(tensor) == -(-sent // field.elements_per_entry)
                if field.kind == "values" or not codec.traits.linear:
                    expected[worker, communicator.kinds.index(field.kind)] += tensor.nbytes
            expected[worker, METADATA] += 4 * codec.traits.ragged
        assert communicator.take_charges().tolist() == expected.tolist()

    def test_some_segments_now_and_some_later(self, case: Case) -> None:
        """A hook reduces single buckets; the state of other segments does not change."""
        reducer = ErrorFeedback(reducer_of(case.method(), D))
        rows = {name: gradients(i) for i, name in enumerate("abc")}
        segments = [segment(r.clone(), name) for name, r in rows.items()]
        communicator = communicator_for(reducer, W)
        together, whole = reducer.reduce(
            inputs_of(segments), reducer.init(segments), Step(0, 0), communicator
        )
        segments = [segment(r.clone(), name) for name, r in rows.items()]
        state = reducer.init(segments)
        for bucket in (segments[2:], segments[:2]):
            part, state = reducer.reduce(inputs_of(bucket), state, Step(0, 0), communicator)
            for name, mean in part.mean.items():
                assert torch.equal(mean, together.mean[name])
        for name in rows:
            assert torch.equal(state.residual[name], whole.residual[name])

    def test_repr_says_the_settings(self, case: Case) -> None:
        text = repr(reducer_of(case.method(), D))
        assert type(case.method()).__name__ in text
        assert "object at 0x" not in text

    @pytest.mark.parametrize("processes", [2, 4])
    def test_processes_change_nothing(self, processes: int) -> None:
        """Means, residuals and bytes of 4 workers are bit-identical in 1, 2 and 4 processes."""
        if not self.cases:
            pytest.skip("there are no cases")
        compare_layouts(list(self.cases), processes)


def copy_of(state: State) -> State:
    """A deep copy of a state."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, Mapping):
        return {key: copy_of(part) for key, part in state.items()}
    if isinstance(state, Shared) or hasattr(state, "_fields"):
        return type(state)(*map(copy_of, state))
    if isinstance(state, tuple):
        return tuple(map(copy_of, state))
    raise TypeError(f"a state must be tensors in NamedTuples and dicts, got {type(state).__name__}")
