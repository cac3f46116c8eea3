"""Reducers: all workers' segments to the mean of what they send; wrappers around other reducers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from compressors.core.codec import Compressed, Plan, Traits
from compressors.core.communicator import Communicator
from compressors.core.segments import Input, Segment, State, Step


class Reduced(NamedTuple):
    """One step's outcome, by segment name."""

    mean: dict[str, Tensor]  # [d] mean over all n workers of C(p), equal everywhere
    residual: dict[str, Tensor]  # [W, d] p - C(p), in the buffer that held p if anything is left
    compressed: dict[str, Compressed]


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
