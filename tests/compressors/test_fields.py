"""What payloads declare: refused where it is missing, and counted as it is said."""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from methods import Case, reduce_once, segment
from processes import run_in_processes
from signs import ScaledSign, SignAbove, Signs, packed, unpacked
from torch import Tensor

from compressors.api import Context
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.feedback import ErrorFeedback
from compressors.fields import KINDS, Field, declared, fields
from compressors.payloads import Sparse
from compressors.reducers import AllReduceMean
from compressors.top_k import TopK
from compressors.wire import Wire
from trainers.communicator import Communicator

D, W = 500, 4


class Undeclared(NamedTuple):
    values: Tensor
    bits: Tensor

    FIELDS = fields(values=Field("values", 1))


class Nothing(NamedTuple):
    values: Tensor


class TooMuch(NamedTuple):
    values: Tensor

    FIELDS = fields(values=Field("values", 1), bits=Field("signs"))


class Unnamed(NamedTuple):
    values: Tensor

    FIELDS = fields(values=Field("Entropy Bound"))


class Clash(NamedTuple):
    values: Tensor

    FIELDS = fields(values=Field("entropy_bound"))


class Odd(NamedTuple):
    values: Tensor

    FIELDS = fields(values=Field("values", 0))


def codec_of(payload: Any) -> Any:
    class Codec:
        linear = ragged = randomized = False

        def encode(self, x: Tensor, context: Context) -> Any:
            raise AssertionError("bytes are about to move")

    Codec.payload = payload
    return Codec()


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (Undeclared, "Undeclared.bits must be declared: Undeclared.FIELDS says the kind of its bytes"),
        (Nothing, "Nothing.values must be declared: Nothing.FIELDS says the kind of its bytes"),
        (TooMuch, "TooMuch.FIELDS declares bits, which is no field of TooMuch"),
        (Unnamed, "Unnamed.FIELDS must say a kind in lower case for values, got Field(kind='Entropy Bound'"),
        (Clash, "Clash.FIELDS must say a kind in lower case for values, got Field(kind='entropy_bound'"),
        (Odd, "Odd.FIELDS must say elements_per_entry >= 1 or None for values, got 0"),
        (dict, "a payload must be a NamedTuple of tensors, got dict"),
        (None, "Codec.payload must be the class of what encode returns, got None"),
    ],
)
def test_what_is_not_declared_is_refused_when_the_reducer_is_built(payload: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build_reducer(codec_of(payload), D)


def test_another_payload_than_the_declared_one_is_refused_before_bytes_move() -> None:
    class Another(ScaledSign):
        payload = Sparse

    communicator = Communicator(W)
    rows = [segment(torch.ones(W, D))]
    with pytest.raises(
        ValueError, match="Another.encode must return what Another.payload names, Sparse, got Signs"
    ):
        build_reducer(Another(), D).reduce(rows, (), Context(0, 0), communicator)
    assert not communicator.take_charges().any()


def test_fields_of_different_lengths_are_refused_where_none_are_declared() -> None:
    class Short(ScaledSign):
        def encode(self, x: Tensor, context: Context) -> Signs:
            signs = super().encode(x, context)
            return signs._replace(scale=signs.scale.repeat(1 + context.worker % 2))

    communicator = Communicator(W)
    communicator.declare_kinds(("signs",))
    with pytest.raises(ValueError, match=r"Signs\.scale must be as long on all workers"):
        build_reducer(Short(), D).reduce([segment(torch.ones(W, D))], (), Context(0, 0), communicator)


def test_methods_that_need_one_value_an_element_say_so() -> None:
    with pytest.raises(ValueError, match="wire must be plain with ScaledSign: it does not send one value an"):
        build_reducer(ScaledSign(), D, wire=Wire(indices="auto"))
    with pytest.raises(ValueError, match="Chain must be of codecs that send one value an element"):
        Chain(first=TopK(density=0.5), second=ScaledSign())

    class Summed(ScaledSign):
        linear = True

    with pytest.raises(ValueError, match="AllReduceMean.codec must send one field of values"):
        AllReduceMean(Summed())
