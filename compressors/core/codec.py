"""Codecs: one worker's vector to a payload and back, with the traits that they declare."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from compressors.core.communicator import Communicator
from compressors.core.fields import PayloadType, declared
from compressors.core.rules import Rule
from compressors.core.segments import Input, Segment, State, Step


class Traits(NamedTuple):
    """What a method promises of everything that it sends. Tests, transports and the ledger ask these."""

    linear: bool = False  # all workers choose the same elements, so the mean of values is the mean of C(p)
    ragged: bool = False  # how many elements are sent depends on their values
    exact: bool = True  # an element sent travels as it is, and none of it is left
    drawn: bool = False  # the seed tells which elements are sent
    drawn_in_part: bool = False  # the seed tells which elements are not
    individual: bool = False  # in a step it is another method for every worker
    dense: bool = False  # something of every element is sent
    relays: bool = False  # the mean is not that of C(p): it takes up what arrived before, or leaves some
    seeded: bool = False  # ``error_bound`` and ``unbiased`` hold on average over draws, or over steps
    unbiased: bool = False  # the mean of C(x) over draws is x
    lossless_at: Mapping[str, Any] | None = None  # settings that leave nothing behind; None: there are none

    @property
    def lossless(self) -> bool:
        """Whether nothing is ever left behind."""
        return self.lossless_at == {}


class Payload(Protocol):
    """A NamedTuple of tensors that a worker sends for one segment, each annotated with its ``Field``.

    An element is *sent* when the payload informs of it: k of d elements in k values and k indices, all d of
    them in d bits. These methods are for payloads that explain themselves, as those of sparsifiers do. Where
    settings or the layers' shapes are needed for it, the codec has ``num_sent``, ``add`` and ``positions``.
    """

    def num_sent(self, size: int) -> int:
        """How many of ``size`` elements it informs of, over all of its workers."""

    def add_to(self, out: Tensor) -> None:
        """Add what was sent to ``out`` [d] of the same or a wider float dtype, in place."""

    def positions(self, size: int) -> Tensor:
        """Positions [num_sent] int64 in ``range(size)`` of the elements sent, each once for a worker.

        Where each has an entry of its own in the field of values, in the order of these.
        """


class Plan(NamedTuple):
    """What a method is to be trained with, for requirements that are checked before training."""

    scope: str  # layer or global
    feedback: str  # the wrapper's name, empty without
    optimizer: str  # the class's name, such as SGD
    momentum: float  # of the optimizer outside of the method
    rates: Sequence[float]  # factors on the learning rate at the first step of every epoch
    lowest_rate: float  # the smallest of such factors in any step


class Codec:
    """C: one worker's vector to a payload and, through the payload, back to a vector.

    A method is a frozen dataclass of its settings that extends this class and has ``payload``, ``encode``
    and, where it promises anything, ``traits`` and ``error_bound``. A quantiser, whose payload says something
    of every element, has ``add`` besides. The others have defaults that fit most.
    """

    examples: Sequence[Mapping[str, Any]] = ({},)  # settings, beside those of its yaml, to be tested with

    @property
    def payload(self) -> PayloadType:
        """The class of what ``encode`` returns."""
        raise NotImplementedError

    @property
    def traits(self) -> Traits:
        return Traits()

    def encode(self, x: Tensor, step: Step) -> Any:
        """Return the payload of ``x`` [d] and leave x - C(x) in ``x``."""
        raise NotImplementedError

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        """Add what ``payload`` says to ``out`` [d] of the same or a wider float dtype, in place."""
        payload.add_to(out)

    def subtract(self, payload: Any, x: Tensor, step: Step) -> None:
        """Take what ``payload`` says away from ``x`` [d], in which x - C(x) is left then."""
        sent = torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
        self.add(payload, sent, step)
        x -= sent

    def num_sent(self, payload: Any, size: int, step: Step) -> int:
        """How many of ``size`` elements ``payload`` informs of, over all of its workers."""
        return size if self.traits.dense else payload.num_sent(size)

    def positions(self, payload: Any, size: int, step: Step) -> Tensor:
        """Positions [num_sent] int64 in ``range(size)`` of the elements sent, each once for a worker.

        Where each has an entry of its own in the field of values, in the order of these.
        """
        return torch.arange(size, device=payload[0].device) if self.traits.dense else payload.positions(size)

    def error_bound(self, x: Tensor, step: Step) -> float:
        """An upper bound of ||x - C(x)||^2 for any ``x`` [d]; infinite where nothing is promised."""
        return math.inf

    def rule(self, size: int, step: Step, workers: range) -> Rule | None:
        """What is kept of ``size`` elements, for compiled loops, of which ``encode`` is the definition."""
        return None

    def for_model(self, num_parameters: int) -> Self:
        """The same method with everything filled in that D = ``num_parameters`` decides."""
        return self

    def check(self, plan: Plan) -> None:
        """Raise ``ValueError``, one line, where it cannot be trained so."""

    def init(self, segments: list[Segment]) -> State:
        """What it remembers from step to step; its names and shapes stay."""
        return ()

    def choose(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[list["Codec"], State]:
        """C of this step for every segment; itself, unless its settings follow what it sees."""
        return [self] * len(inputs), state


class Compressed(NamedTuple):
    """What the local workers send for one segment, and what is to be told of it."""

    sent: np.ndarray  # [W, L] int64, elements sent per layer
    error: Tensor  # [W, L] float64, ||p - C(p)||^2 per layer
    input_norm: Tensor  # [W, L] float64, ||p||^2 per layer
    payloads: Sequence[Any] = ()  # one for each worker, or one of all in a row
    codec: Codec | None = None  # that made these
    step: Step | None = None  # in which it did, as the first local worker's
    out: Tensor | None = None  # [d] zeros for the mean, where a compiled loop has left some

    @property
    def origin(self) -> tuple[Codec, Step]:
        """The codec that made the payloads, and the step and segment in which it did."""
        assert self.codec is not None and self.step is not None, "there are payloads"
        return self.codec, self.step

    @property
    def counts(self) -> np.ndarray:
        """[W] int64, elements that each worker sends."""
        return self.sent[:, 0] if self.sent.shape[1] == 1 else self.sent.sum(1)

    def positions(self, size: int) -> Tensor:
        """Of all elements sent, [sum of ``counts``] int64 in ``range(size)``, one worker after the other."""
        if self.codec is None:
            return torch.arange(size).repeat(len(self.sent))
        codec, step = self.origin
        first = step.worker
        found = [
            codec.positions(payload, size, step._replace(worker=first + row))
            for row, payload in enumerate(self.payloads)
        ]
        return torch.cat(found) if len(found) > 1 else found[0]


def kinds_of(codec: Codec) -> tuple[str, ...]:
    """The kinds of a codec's bytes that not every ledger has."""
    return declared(codec.payload).kinds
