"""Codecs, which map a worker's vector to a payload and back, and their declared traits."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from compressors.core.communicator import Communicator
from compressors.core.fields import PayloadType, declared
from compressors.core.rules import Rounding, Rule
from compressors.core.segments import Input, Segment, State, Step
from compressors.parts.knob import Knob


class Traits(NamedTuple):
    """Declared properties of a method, used by tests, transports and the ledger."""

    linear: bool = False  # all workers choose the same elements, so the mean of values is the mean of C(p)
    ragged: bool = False  # the number of elements sent depends on their values
    exact: bool = True  # elements are sent as they are, and their residual is 0
    drawn: bool = False  # the seed determines the positions of the elements sent, whatever the input
    drawn_in_part: bool = False  # the seed determines some elements that are not sent
    individual: bool = False  # the codec differs between workers in a step
    dense: bool = False  # the payload has information on every element
    signs_only: bool = False  # no magnitude is sent, so a mean of zeros is not zero
    relays: bool = False  # the mean is not that of C(p): parts of C(p) arrive in later steps
    # C(x) depends on the number of the step or on a draw. ``error_bound`` and ``unbiased`` then hold on
    # average over steps or draws.
    seeded: bool = False
    unbiased: bool = False  # the mean of C(x) over draws is x
    of_senders: bool = False  # the mean of a coordinate is over the workers that sent it
    lossless_at: Mapping[str, Any] | None = None  # settings with residual 0; None: no such settings

    @property
    def lossless(self) -> bool:
        """Whether the residual is always 0."""
        return self.lossless_at == {}


class Payload(Protocol):
    """A NamedTuple of tensors that a worker sends for one segment, each annotated with its ``Field``.

    An element is *sent* if the payload represents it: k values and k indices represent k of d elements, and d
    sign bits represent all d. A payload has these methods if it can be decoded without the codec, as those of
    sparsifiers can. If decoding needs settings or the layers' shapes, the codec has ``num_sent``, ``add`` and
    ``positions`` instead.
    """

    def num_sent(self, size: int) -> int:
        """Number of elements that the payload represents, out of ``size``, over all of its workers."""

    def add_to(self, out: Tensor) -> None:
        """Add the decoded payload to ``out`` [d] of the same or a wider float dtype, in place."""

    def positions(self, size: int) -> Tensor:
        """The same as ``Codec.positions``."""


class Plan(NamedTuple):
    """Settings of a training, which a method checks before the training."""

    scope: str  # layer or global
    feedback: str  # name of the wrapper; empty without feedback
    optimizer: str  # the class's name, such as SGD
    momentum: float  # of the optimizer, not of the feedback
    rates: Sequence[float]  # factors on the learning rate at the first step of every epoch
    lowest_rate: float  # the smallest of these factors in any step
    needs_contraction: bool  # whether residuals grow under the feedback unless ||x - C(x)|| < ||x||


class Method:
    """Members that codecs and reducers have in common; the defaults suit most methods."""

    examples: Sequence[Mapping[str, Any]] = ({},)  # settings for tests, in addition to those of its yaml
    usual_feedback = "ef"  # the feedback that its yaml chooses, for scripts
    # The host's waits for a GPU in a step, with and without kernels, as formulas of docs/gpu.md; which step
    waits: tuple[str, str, str] = ("1", "1 + G", "")

    @property
    def traits(self) -> Traits:
        return Traits()

    @property
    def knob(self) -> Knob | None:
        """The setting that changes the bytes; None if there is none."""
        return None

    @property
    def uses_learning_rate(self) -> bool:
        """Whether what is sent depends on the learning rate of the step."""
        return False

    def check(self, plan: Plan) -> None:
        """Raise ``ValueError``, one line, if the method cannot be trained with ``plan``."""

    def init(self, segments: list[Segment]) -> State:
        """The state before the first step; later ones have the same names, shapes and dtypes."""
        return ()


class Codec(Method):
    """C: maps one worker's vector to a payload, and a payload to a vector.

    A method is a frozen dataclass of its settings that extends this class. It defines ``payload`` and
    ``encode`` and, if it has any, ``traits`` and ``error_bound``. A quantiser also defines ``add``. The
    defaults of all other members suit most methods.
    """

    @property
    def payload(self) -> PayloadType:
        """The class of the payloads that ``encode`` returns."""
        raise NotImplementedError

    def encode(self, x: Tensor, step: Step) -> Any:
        """Return the payload of ``x`` [d] and leave x - C(x) in ``x``.

        A method whose ``choose`` returns other codecs has no own one.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define encode, or choose, which returns other codecs"
        )

    def add(self, payload: Any, out: Tensor, step: Step) -> None:
        """Add the decoded ``payload`` to ``out`` [d] of the same or a wider float dtype, in place."""
        payload.add_to(out)

    def subtract(self, payload: Any, x: Tensor, step: Step) -> None:
        """Subtract the decoded ``payload`` from ``x`` [d], which then holds x - C(x)."""
        sent = torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
        self.add(payload, sent, step)
        x -= sent

    def num_sent(self, payload: Any, size: int, step: Step) -> int:
        """Number of elements that ``payload`` represents, out of ``size``, over all of its workers."""
        return size if self.traits.dense else payload.num_sent(size)

    def positions(self, payload: Any, size: int, step: Step) -> Tensor:
        """Positions [num_sent] int64 in ``range(size)`` of the elements sent, each once per worker.

        If every element is a separate entry of the field of values, the positions have the same order.
        """
        return torch.arange(size, device=payload[0].device) if self.traits.dense else payload.positions(size)

    def error_bound(self, x: Tensor, step: Step) -> float:
        """An upper bound of ||x - C(x)||^2 for any ``x`` [d]; infinite if there is none."""
        return math.inf

    def norm_bound(self, size: int, step: Step) -> tuple[float, float]:
        """(a, b) such that ||x - C(x)|| <= a ||x|| + b for any x of ``size`` elements; a is infinite if
        there is no bound. (sqrt(1 - delta), 0) for a contraction, (0, b) for an absolute compressor."""
        return math.inf, 0.0

    def variance_bound(self, size: int, step: Step) -> float:
        """omega in ``step``, for an unbiased C and d = ``size``: E ||x - C(x)||^2 <= omega ||x||^2."""
        return math.inf

    def require_contraction(self, plan: Plan, omega: float) -> None:
        """Raise ``ValueError`` under feedback that needs a contraction, unless ``omega`` is below 1."""
        if plan.needs_contraction and not omega < 1:
            bound = f"{type(self).__name__}'s variance of up to {omega:.3g} ||x||^2 would let residuals grow"
            raise ValueError(f"feedback must be none, got {plan.feedback}: {bound}")

    def rule(self, size: int, step: Step, workers: range) -> Rule | None:
        """The selection among ``size`` elements as data for compiled loops; ``encode`` is the definition."""
        return None

    def rule_on(self, device: torch.device, size: int, step: Step, workers: range) -> Rule | None:
        """The same for loops on ``device``, which may get positions that were drawn there."""
        return self.rule(size, step, workers)

    def rounding(self, size: int, step: Step) -> Rounding | None:
        """The rounding of ``size`` elements as data for compiled loops; ``encode`` is the definition."""
        return None

    def for_model(self, num_parameters: int) -> Self:
        """The same method with all settings that depend on D = ``num_parameters`` filled in."""
        return self

    def choose(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[list["Codec"], State]:
        """The codec of every segment in this step; by default itself. Adaptive methods override it."""
        return [self] * len(inputs), state


class Compressed(NamedTuple):
    """The local workers' payloads of one segment, with counts and norms."""

    sent: np.ndarray  # [W, L] int64, elements sent per layer
    error: Tensor  # [W, L] float64, ||p - C(p)||^2 per layer
    input_norm: Tensor  # [W, L] float64, ||p||^2 per layer
    payloads: Sequence[Any] = ()  # one per worker, or one joined payload of all; none of a dense method
    codec: Codec | None = None  # the codec that encoded the payloads
    step: Step | None = None  # of the encoding, for the first local worker
    out: Tensor | None = None  # [d] zeros, memory for the mean, if a compiled loop provides it

    @property
    def origin(self) -> tuple[Codec, Step]:
        """The codec that encoded the payloads, and its step, with the segment's name."""
        assert self.codec is not None and self.step is not None, "there are payloads"
        return self.codec, self.step

    @property
    def counts(self) -> np.ndarray:
        """[W] int64, elements that each worker sends."""
        return self.sent[:, 0] if self.sent.shape[1] == 1 else self.sent.sum(1)

    def positions(self, size: int) -> Tensor:
        """Positions of all elements sent, [sum of ``counts``] int64 in ``range(size)``, in worker order."""
        if not self.payloads:
            return torch.arange(size).repeat(len(self.sent))
        if self.codec is None:
            return torch.cat([payload.positions(size) for payload in self.payloads])
        codec, step = self.origin
        first = step.worker
        found = [
            codec.positions(payload, size, step._replace(worker=first + row))
            for row, payload in enumerate(self.payloads)
        ]
        return torch.cat(found) if len(found) > 1 else found[0]


def kinds_of(codec: Codec) -> tuple[str, ...]:
    """The kinds of a codec's bytes in addition to ``fields.KINDS``."""
    return declared(codec.payload).kinds
