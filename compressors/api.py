"""The words of the algebra: segments, codecs, payloads, reducers.

W is the number of workers that live in this process, n the number of all workers, d the number of elements
of one segment, L the number of its layers. A *codec* turns one worker's vector into a payload. A *reducer*
turns what all workers have into the mean of what they send, which is where bytes move. ``Compress``
(``compress.py``) makes a reducer of a codec; a method of several rounds is a reducer itself; feedback is a
reducer around another.

Everything works in place: what was not sent is left in the buffer that came in, so that no further tensor of
size n x D is needed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from compressors.communicator import Communicator
from compressors.fields import PayloadType, declared
from compressors.randomness import derive_seed
from compressors.rules import Rule
from compressors.shapes import Shapes, edges_of, sizes_of

# NamedTuples and dicts of tensors [W, ...], ``Shared``, or (): a checkpoint is these tensors, row by row.
State = Any


class Segment(NamedTuple):
    """The elements that are compressed together: one layer, or the whole model."""

    name: str
    rows: Tensor  # [W, d], one row per local worker
    shapes: Shapes  # of the L layers that lie in a row, one after the other

    @property
    def edges(self) -> np.ndarray:
        """Where the layers begin and end in a row, [L + 1] int64: 0, ..., d."""
        return edges_of(self.shapes)

    @property
    def num_elements(self) -> np.ndarray:
        """Elements per worker and layer, [W, L] int64."""
        return sizes_of(self.shapes)[None].repeat(self.rows.shape[0], 0)

    def layers(self) -> list[Tensor]:
        """The layers of all rows, views [W, *shape]."""
        parts = self.rows.split([math.prod(shape) for shape in self.shapes], 1)
        return [part.unflatten(1, shape or (1,)) for part, shape in zip(parts, self.shapes, strict=True)]


class Input(NamedTuple):
    """What a reducer is given of one segment: p = memory + scale * gradient, or the gradient by itself.

    The sum is formed in ``memory`` by who reads it first: a compiled loop does so on its way.
    """

    segment: Segment  # whose rows are the gradients; a reduction consumes them
    memory: Tensor | None = None  # [W, d]
    scale: float = 1.0

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def size(self) -> int:
        """d."""
        return self.segment.rows.shape[1]

    @property
    def rows(self) -> Tensor:
        """Where p comes to lie, and p - C(p) after it, [W, d]."""
        return self.segment.rows if self.memory is None else self.memory

    def formed(self) -> Segment:
        """The segment whose rows are p. To be called once."""
        if self.memory is None:
            return self.segment
        return self.segment._replace(rows=self.memory.add_(self.segment.rows, alpha=self.scale))

    def seen(self) -> Segment:
        """The same for who looks on: the sum is a tensor of its own, and nothing else changes."""
        if self.memory is None:
            return self.segment
        return self.segment._replace(rows=self.memory.add(self.segment.rows, alpha=self.scale))


class Step(NamedTuple):
    """What a method may know of the step beside the gradients; equal for every layout."""

    seed: int
    number: int  # counted from 0
    learning_rate: float = 1.0
    epoch: float = 0.0  # epochs done before the step, fractional
    segment: str = ""  # which ``Codec.encode`` is asked for
    shapes: Shapes = ()  # of the layers that lie in it
    worker: int = 0  # whose vector it is

    def layers(self, x: Tensor) -> Sequence[Tensor]:
        """The layers that lie in ``x`` [d], one after the other; all of it where none are named."""
        return x.split([math.prod(shape) for shape in self.shapes] or [x.numel()])

    @property
    def whole_epochs(self) -> int:
        """Epochs that were over before the step; a sum of steps that falls short by rounding counts."""
        return int(self.epoch + 1e-9)

    def derive_seed(self, *, shared: bool) -> int:
        """The seed of this step and segment, the same on all workers or this worker's own."""
        salt = (self.seed, self.number, self.segment)
        return derive_seed("shared", *salt) if shared else derive_seed("own", *salt, self.worker)


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
    room: Tensor | None = None  # [d] zeros for the mean, where a compiled loop has left some

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


class Reduced(NamedTuple):
    """One step's outcome, by segment name."""

    mean: dict[str, Tensor]  # [d] mean over all n workers of C(p), equal everywhere
    residual: dict[str, Tensor]  # [W, d] p - C(p), in the buffer that held p if anything is left
    compressed: dict[str, Compressed]


class Shared(NamedTuple):
    """A part of a state that is no worker's own: equal in all processes, saved once and not dealt out."""

    state: State


class Reducer:
    """All workers' segments to the mean of what they send. State is passed in and out."""

    examples: Sequence[Mapping[str, Any]] = ({},)  # settings, beside those of its yaml, to be tested with

    @property
    def traits(self) -> Traits:
        return Traits()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of bytes that it sends beside those that every ledger has (``fields.KINDS``)."""
        return ()

    @property
    def has_a_value_each(self) -> bool:
        """Whether every element sent travels as an entry of its own in a field of values."""
        return self.traits.exact

    @property
    def keeps_residual(self) -> bool:
        """Whether what was not sent is remembered and sent later."""
        return False

    def layers(self) -> Iterator["Reducer"]:
        """Itself and what it is wrapped around, from the outside in."""
        yield self

    @property
    def innermost(self) -> "Reducer":
        """What all feedback is wrapped around."""
        return list(self.layers())[-1]

    def check(self, plan: Plan) -> None:
        """Raise ``ValueError``, one line, where it cannot be trained so."""

    def init(self, segments: list[Segment]) -> State:
        """The state before the first step; later ones have the same names and shapes."""
        return ()

    def carried(self, inputs: list[Input], state: State, step: Step) -> list[Input]:
        """What is about to be compressed, p of each segment, for who looks on; nothing is formed."""
        return inputs

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        """Reduce these segments, all of those given to ``init`` or some of them.

        ``inputs`` and ``state`` are consumed: their tensors are reused for the result.
        """
        raise NotImplementedError


class Wrapper(Reducer):
    """A reducer around a declared ``inner``, whose promises are its own unless it says otherwise."""

    inner: Reducer

    @property
    def is_idle(self) -> bool:
        """Whether it changes nothing around this inner reducer, so that its memory can be spared."""
        return False

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    @property
    def kinds(self) -> tuple[str, ...]:
        return self.inner.kinds

    @property
    def has_a_value_each(self) -> bool:
        return self.inner.has_a_value_each

    @property
    def keeps_residual(self) -> bool:
        return self.inner.keeps_residual

    def layers(self) -> Iterator[Reducer]:
        yield self
        yield from self.inner.layers()

    def check(self, plan: Plan) -> None:
        self.inner.check(plan)

    def init(self, segments: list[Segment]) -> State:
        return self.inner.init(segments)

    def carried(self, inputs: list[Input], state: State, step: Step) -> list[Input]:
        return self.inner.carried(inputs, state, step)


def zeros_of(segments: list[Segment]) -> dict[str, Tensor]:
    """A memory of the size of the gradients, by segment name, [W, d] each."""
    return {s.name: torch.zeros_like(s.rows, memory_format=torch.contiguous_format) for s in segments}


def inputs_of(segments: list[Segment]) -> list[Input]:
    """Gradients by themselves."""
    return [Input(segment) for segment in segments]


def kinds_of(codec: Codec) -> tuple[str, ...]:
    """The kinds of a codec's bytes that not every ledger has."""
    return declared(codec.payload).kinds


def elements_of(density: float, size: int) -> int:
    """k = max(1, floor(density * d)); the tolerance keeps 0.07 * 100 from becoming 6."""
    return max(1, min(size, int(density * size + 1e-9 * max(1.0, density * size))))


def unsent_share(density: float, size: int) -> float:
    """1 - k / d, what a contraction that keeps k = ``elements_of(density, size)`` leaves behind."""
    return 1 - elements_of(density, size) / size
