"""Contract tests for every compressor, which depend on its traits.

A package tests its methods by a class that pytest collects:

    from total_error.testing import Contract, cases_of
    from my_compressor.stride import Stride

    class TestStride(Contract):
        cases = cases_of(Stride)

``pytest --pyargs contract`` tests the methods of all installed packages with an entry point
``total_error.compressors`` and a conf folder.
"""

import copy
import dataclasses
from functools import reduce
from typing import Any

import pytest
import torch
from torch import Tensor

from compressors.api import Reducer, Step, inputs_of
from compressors.core.norms import squared_norm
from compressors.feedback import ErrorFeedback
from contract.cases import (
    FEEDBACKS,
    Case,
    cases_of,
    communicator_for,
    is_codec,
    reduce_once,
    reducer_of,
    segment,
)
from contract.codecs import METADATA, VALUES, CodecContract, D, W, gradients
from contract.processes import compare_layouts
from contract.recording import RecordingCommunicator
from trainers.checkpoint.form import first_form, require_form
from trainers.checkpoint.tree import walk

__all__ = ["Case", "Contract", "cases_of"]


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

    A worker may send a zero, so the number of senders is between that of entries other than 0 and W. Skips
    the test if coordinates of another basis have senders.
    """
    if reducer.traits.of_senders and reducer.traits.dense:
        pytest.skip("its mean is over the senders of each coefficient, in another basis")
    total, senders = sent.sum(0), torch.full_like(mean, len(sent))
    if reducer.traits.of_senders:
        fewest = (sent != 0).sum(0).clamp(min=1)
        senders = (total / mean.where(mean != 0, 1)).round().clamp(min=fewest, max=senders)
    torch.testing.assert_close(mean, total / senders, rtol=rtol, atol=atol)


class Contract(CodecContract):
    """Tests of each of ``cases``."""

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
        copied = copy.deepcopy(state)
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
        value = knob and reduce(getattr, knob.setting.split("."), case.method())
        if value is None:
            pytest.skip(f"{case} has no knob, or no value of it")
        sent = []
        for at in (value, 2 * value) if isinstance(value, int) and value < 4 else (value / 2, value):
            method = case.method(first_threshold=None)  # of MiCRO, which follows from the density
            for name, factor in knob.factors.items():
                method = with_setting(method, name, type(value)(at * factor))
            reducer = reducer_of(method, D)
            communicator = communicator_for(reducer, W)
            reduce_once(reducer, gradients() ** 3, communicator=communicator)
            sent.append(communicator.take_charges().sum())
        assert (sent[1] > sent[0]) == (knob.slope > 0) and sent[1] != sent[0]

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
