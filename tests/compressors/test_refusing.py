"""Entries that are not finite: the norms of p show their worker and layer, for kernels and the reference."""

from itertools import product

import pytest
import torch
from methods import Case, cases, communicator_for, is_codec
from torch import nn

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.encoding.settings import Encoding
from compressors.feedback import ErrorFeedback
from compressors.kernels.choice import chosen
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

W, SIZES = 3, [300, 1, 5000, 256]
METHODS = [pytest.param(case, id=str(case)) for case in cases()]
WIRES = {"plain": Encoding(), "int8": Encoding(indices="auto", values="int8")}


class Layers(nn.Module):
    """Parameters of ``SIZES``."""

    def __init__(self) -> None:
        super().__init__()
        for number, size in enumerate(SIZES):
            self.register_parameter(f"p{number}", nn.Parameter(torch.zeros(size)))


# Contains every pair of values of any two settings; the other combinations are slow tests
PAIRS = {
    ("plain", "auto", "layer", "nan"),
    ("plain", "reference", "global", "-inf"),
    ("int8", "auto", "global", "nan"),
    ("int8", "reference", "layer", "nan"),
    ("int8", "auto", "layer", "-inf"),
}
SETTINGS = [
    pytest.param(*setting, id="-".join(setting), marks=[pytest.mark.slow] * (setting not in PAIRS))
    for setting in product(WIRES, ("auto", "reference"), ("layer", "global"), ("nan", "-inf"))
]


@pytest.mark.parametrize(("wire", "kernels", "scope", "poison"), SETTINGS)
@pytest.mark.parametrize("case", METHODS)
def test_a_fault_is_named(case: Case, wire: str, kernels: str, scope: str, poison: str) -> None:
    method, traits = case.method(), case.method().traits
    if wire != "plain" and (not is_codec(method) or traits.linear or traits.of_senders or not traits.exact):
        pytest.skip("only exact values that are gathered are coded")
    layout = Layout(dict(Layers().named_parameters()), scope)
    reducer = build_reducer(method, sum(SIZES), ErrorFeedback, WIRES[wire])
    communicator = communicator_for(reducer, W)
    ledger = Ledger(layout, communicator, reducer)
    flat = layout.new_buffer(W)
    segments: list[Segment] = layout.segments(flat)
    state = reducer.init(segments)
    with chosen(kernels):
        for number, faults in enumerate([[], [(0, 300, 1)], [(1, 700, 2), (0, 300, 1)], [(2, 5300, 2)]]):
            flat.copy_(torch.randn(flat.shape, generator=torch.Generator().manual_seed(number)))
            for row, place, _ in faults:
                flat[row, place] = float(poison)
            fresh = reducer.init(segments) if number else state
            reduced, _ = reducer.reduce(inputs_of(segments), fresh, Step(3, number, 0.5), communicator)
            ledger.record(reduced)
            assert ledger.fault() == ((faults[0][0], faults[0][2]) if faults else None)
