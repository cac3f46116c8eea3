"""Payload declarations: missing ones are refused, and bytes are counted by the declared kind."""

import re
from typing import Annotated, Any, NamedTuple

import pytest
import torch
from methods import segment
from torch import Tensor

from compressors.api import Codec, Step, Traits, inputs_of
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.core.fields import Field
from compressors.core.payloads import Sparse
from compressors.ef_sign import EFSign, Signs
from compressors.encoding.settings import Encoding
from compressors.feedback import ErrorFeedback
from compressors.random_block import RandomBlock
from compressors.strom import Strom
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

D, W = 500, 4


class Undeclared(NamedTuple):
    values: Annotated[Tensor, Field("values", 1)]
    bits: Tensor


class Unnamed(NamedTuple):
    values: Annotated[Tensor, Field("Entropy Bound")]


class Odd(NamedTuple):
    values: Annotated[Tensor, Field("values", 0)]


class Encoded(EFSign):
    """Encodes without compiled loops."""

    def rounding(self, size: int, step: Step) -> None:
        return None


def codec_of(payload: Any) -> Any:
    class Made(Codec):
        def encode(self, x: Tensor, step: Step) -> object:
            raise AssertionError("bytes are about to move")

    Made.payload = payload
    return Made()


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (Undeclared, "Undeclared.bits must be declared, as Annotated[Tensor, Field(KIND)] with the kind"),
        (Unnamed, "Unnamed.values must be of a kind in lower case, got Field(kind='Entropy Bound'"),
        (Odd, "Odd.values must have elements_per_entry >= 1 or None, got 0"),
        (dict, "a payload must be a NamedTuple of tensors, got dict"),
    ],
)
def test_what_is_not_declared_is_refused_when_the_reducer_is_built(payload: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build_reducer(codec_of(payload), D)


def test_another_payload_than_the_declared_one_is_refused_before_bytes_move() -> None:
    class Another(Encoded):
        payload = Sparse

    communicator = Communicator(W)
    rows = [segment(torch.ones(W, D))]
    with pytest.raises(
        ValueError, match=r"Another\.encode must return Another\.payload, which is Sparse, got Signs"
    ):
        build_reducer(Another(), D).reduce(inputs_of(rows), (), Step(0, 0), communicator)
    assert not communicator.take_charges().any()


def test_fields_of_different_lengths_are_refused_where_none_are_declared() -> None:
    class Short(Encoded):
        def encode(self, x: Tensor, step: Step) -> Signs:
            signs = super().encode(x, step)
            return signs._replace(scales=signs.scales.repeat(1 + step.worker % 2))

    communicator = Communicator(W)
    communicator.declare_kinds(("signs",))
    with pytest.raises(ValueError, match=r"Signs\.scales must have the same length on all workers"):
        build_reducer(Short(), D).reduce(inputs_of([segment(torch.ones(W, D))]), (), Step(0, 0), communicator)


def test_the_largest_number_sent_is_that_of_all_segments() -> None:
    """Elements of two segments, for the worker that sends most."""
    rows = torch.zeros(2, 100)
    rows[0, :62] = rows[1, :47] = 1
    segments = [segment(rows.clone(), "a"), segment(rows.clone(), "b")]
    communicator = Communicator(2)
    build_reducer(Strom(threshold=0.5), 200).reduce(inputs_of(segments), (), Step(0, 0), communicator)
    assert communicator.take_largest_sent() == 2 * 62


class Inexact(TopK):
    """Top-k of a package, which rounds its values itself."""

    traits = Traits(exact=False)


def test_methods_that_need_one_value_an_element_say_so() -> None:
    with pytest.raises(ValueError, match="wire must be plain with EFSign: it does not send one value per"):
        build_reducer(EFSign(), D, encoding=Encoding(indices="auto"))
    with pytest.raises(ValueError, match=r"wire\.values must be fp32 with Inexact: its values are not"):
        build_reducer(Inexact(density=0.5), D, encoding=Encoding(values="bf16"))
    rule = r"Chain\.first must be a codec that sends one exact value per element, got 'EFSign'"
    with pytest.raises(ValueError, match=rule):
        Chain(first=EFSign(), second=TopK(density=0.5))
    rule = r"Chain\.second after RandomBlock must be a sparsifier, got 'EFSign'"
    with pytest.raises(ValueError, match=rule):  # the length of RandomBlock's block is not sent
        Chain(first=RandomBlock(density=0.5, shared_coordinates=False), second=EFSign())

    class Summed(EFSign):
        traits = Traits(linear=True)

    with pytest.raises(ValueError, match="AllReduce needs a codec that sends one field of values"):
        build_reducer(Summed(), D)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_a_sign_of_every_element_is_a_density_of_1_and_a_bit_each(scope: str) -> None:
    """Mean, total error and bytes by hand: ceil(d / 8) bytes per segment and 4 bytes per layer."""
    model = torch.nn.Linear(50, 9)
    layout, communicator = Layout(dict(model.named_parameters()), scope), Communicator(W)
    reducer = build_reducer(EFSign(), layout.num_parameters, ErrorFeedback)
    communicator.declare_kinds(reducer.kinds)
    ledger, size, state = Ledger(layout, communicator, reducer), layout.num_parameters, None
    residual, total = torch.zeros(W, size), 0.0
    layers = [slice(0, 450), slice(450, 459)]
    for step in range(3):
        flat = torch.randn(W, size, generator=torch.Generator().manual_seed(step))
        p = residual + flat
        sent = torch.cat([p[:, own].sign() * p[:, own].abs().mean(1, keepdim=True) for own in layers], 1)
        residual = p - sent
        total += residual.double().square().sum(1).mean().item()
        segments = layout.segments(flat.clone())
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step), communicator)
        torch.testing.assert_close(torch.cat(list(reduced.mean.values())), sent.mean(0))
        ledger.record(reduced)
        ledger.close_step()
    found = ledger.metrics()
    per_step = {"layer": 57 + 2, "global": 58}[scope] + 4 * 2
    assert found["compression/density"] == found["compression/density_mean"] == 1
    assert found["compression/total_error"] == pytest.approx(total, rel=1e-5)
    assert found["comm/bytes_sent"] == per_step and found["comm/bytes_sent_total"] == 3 * per_step
    assert found["comm/link_bytes_sent_total"] == 3 * 3 * per_step
    assert found["comm/signs_bytes_total"] == 3 * (per_step - 4 * 2)
    assert found["comm/metadata_bytes_total"] == 3 * 4 * 2
    assert found["comm/values_bytes_total"] == 0
    assert found["comm/bits_per_parameter"] == 8 * per_step / size < 1.3
    assert not found.keys() & {f"comm/{name}" for name in MEANINGLESS}
    assert all(layer["density_mean"] == 1 for layer in ledger.layers().values())


MEANINGLESS = ("entropy_bound_bytes", "entropy_bound_bytes_total", "paper_bits_total")


@pytest.mark.parametrize(
    ("method", "values", "absent"),
    [
        (TopK(density=0.5), "fp32", set()),
        (TopK(density=0.5), "bf16", {"paper_bits_total"}),  # the paper counts 32 bits per value
        (TopK(density=0.5), "int8", {"paper_bits_total"}),
        (Strom(threshold=0.1), None, set(MEANINGLESS)),
    ],
)
def test_a_total_that_has_no_meaning_is_absent(method: Codec, values: str | None, absent: set[str]) -> None:
    layout, communicator = Layout(dict(torch.nn.Linear(40, 1).named_parameters()), "global"), Communicator(2)
    wire = Encoding(indices="auto", values=values) if values else Encoding()
    reducer = build_reducer(method, 41, encoding=wire)
    communicator.declare_kinds(reducer.kinds)
    ledger = Ledger(layout, communicator, reducer)
    reduced, _ = reducer.reduce(inputs_of(layout.segments(torch.randn(2, 41))), (), Step(0, 0), communicator)
    ledger.record(reduced)
    ledger.close_step()
    found = ledger.metrics()
    assert {name for name in MEANINGLESS if f"comm/{name}" not in found} == absent
    if values:
        assert 0 < found["comm/entropy_bound_bytes"] < found["comm/bytes_sent"]
