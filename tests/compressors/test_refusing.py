"""Entries that are not finite are found before anything is sent, by kernels and by the reference."""

from functools import partial

import pytest
import torch
from methods import Case, cases, is_codec

from compressors.api import Context, Fault, Segment
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.wire import Wire
from trainers.communicator import Communicator

W, SIZES = 3, [300, 1, 5000, 256]
CODECS = [pytest.param(case, id=str(case)) for case in cases() if is_codec(case.method())]


class Refused(Exception):
    """What is told of faults."""


def refuse(faults: list[Fault]) -> None:
    if faults:
        raise Refused(faults)


def segments_of(flat: torch.Tensor, scope: str) -> list[Segment]:
    if scope == "global":
        return [Segment("model", flat, torch.tensor([0, *SIZES]).cumsum(0))]
    rows = flat.split(SIZES, 1)
    return [Segment(str(i), r, torch.tensor([0, r.shape[1]])) for i, r in enumerate(rows)]


@pytest.mark.parametrize("poison", [float("nan"), float("-inf")])
@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize("case", CODECS)
def test_a_fault_is_named_and_nothing_sent(case: Case, kernels: str, scope: str, poison: float) -> None:
    reducer = build_reducer(case.method(), sum(SIZES), ErrorFeedback, kernels)
    flat = torch.randn(W, sum(SIZES), generator=torch.Generator().manual_seed(1))
    state, communicator = reducer.init(segments_of(flat, scope)), Communicator(W)
    step = partial(Context, 3, learning_rate=0.5, refuse=refuse)
    for number in range(2):
        _, state = reducer.reduce(segments_of(flat.clone(), scope), state, step(number), communicator)
    assert communicator.take_charges().any()
    flat[0, 300] = poison  # layer 1
    flat[1, 700] = poison  # layer 2, in a whole block
    flat[2, 5300] = poison  # layer 2's last
    with pytest.raises(Refused) as raised:
        reducer.reduce(segments_of(flat.clone(), scope), state, step(2), communicator)
    (faults,) = raised.value.args
    layers = (
        [("1", 0), ("2", 0), ("2", 0)] if scope == "layer" else [("model", 1), ("model", 2), ("model", 2)]
    )
    assert sorted(faults) == [(worker, *layer) for worker, layer in enumerate(layers)]
    assert not communicator.take_charges().any()


@pytest.mark.parametrize("case", CODECS)
def test_looking_changes_nothing(case: Case) -> None:
    flat = torch.randn(W, sum(SIZES), generator=torch.Generator().manual_seed(2))
    means = []
    for told in (None, refuse):
        reducer = build_reducer(case.method(), sum(SIZES), ErrorFeedback)
        state, context = reducer.init(segments_of(flat, "layer")), Context(3, 0, refuse=told)
        reduced, _ = reducer.reduce(segments_of(flat.clone(), "layer"), state, context, Communicator(W))
        means.append(torch.cat([*reduced.mean.values()]).clone())
    assert torch.equal(*means)


@pytest.mark.parametrize("case", CODECS)
def test_who_looks_says_so(case: Case) -> None:
    """By kernels it takes no time of its own; the reference leaves it to who computes the gradients."""
    for kernels in ("auto", "reference"):
        for feedback in (ErrorFeedback, lambda inner: inner):
            reducer = build_reducer(case.method(), sum(SIZES), feedback, kernels)
            looks = hasattr(case.method(), "rule") and kernels == "auto"
            assert getattr(reducer, "checks_input", False) == looks


def test_a_coded_wire_looks_too() -> None:
    (case,) = (c for c in cases() if c.name == "hard_threshold")
    reducer = build_reducer(
        case.method(), sum(SIZES), ErrorFeedback, wire=Wire(indices="rice", values="int8")
    )
    flat = torch.full((W, sum(SIZES)), torch.inf)
    segments = segments_of(flat, "layer")
    state = reducer.init(segments)
    assert reducer.checks_input
    with pytest.raises(Refused):
        reducer.reduce(segments, state, Context(3, 0, refuse=refuse), Communicator(W))
