"""Reducers, which map all workers' segments to the mean of their C(p), and wrappers around reducers."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from compressors.core.codec import Compressed, Method, Plan, Traits
from compressors.core.communicator import Communicator
from compressors.core.segments import Input, Segment, State, Step


class Reduced(NamedTuple):
    """The result of a step, by segment name."""

    mean: dict[str, Tensor]  # [d] mean over all n workers of C(p), equal everywhere
    residual: dict[str, Tensor]  # [W, d] p - C(p), in the buffer of p unless it is zero
    compressed: dict[str, Compressed]


class Reducer(Method):
    """Maps all workers' segments to the mean of their C(p). State is passed in and out."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of its bytes in addition to ``fields.KINDS``."""
        return ()

    @property
    def has_a_value_each(self) -> bool:
        """Whether every element sent is a separate entry of a field of values."""
        return self.traits.exact

    @property
    def keeps_residual(self) -> bool:
        """Whether entries that were not sent are kept and sent later."""
        return False

    def layers(self) -> Iterator["Reducer"]:
        """This reducer and its inner reducers, from the outside in."""
        yield self

    @property
    def innermost(self) -> "Reducer":
        """The reducer inside all wrappers."""
        return list(self.layers())[-1]

    def note(self, learning_rate: float) -> str:
        """One line to print before a training with this base rate; empty for none."""
        return ""

    def carried(self, inputs: list[Input], state: State, step: Step) -> list[Input]:
        """p of each segment, the compressor's input, for observers; no sum is computed in place."""
        return inputs

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        """Reduce all segments given to ``init``, or some of them.

        ``inputs`` and ``state`` are consumed: their tensors are reused for the result.
        """
        raise NotImplementedError


class Wrapper(Reducer):
    """A reducer around ``inner``. Its traits are those of ``inner`` unless it overrides them."""

    inner: Reducer
    needs_contraction = False  # whether its residuals grow unless ||x - C(x)|| < ||x||

    @property
    def is_idle(self) -> bool:
        """Whether it has no effect around this inner reducer, so it can be omitted."""
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

    @property
    def uses_learning_rate(self) -> bool:
        return self.inner.uses_learning_rate

    def layers(self) -> Iterator[Reducer]:
        yield self
        yield from self.inner.layers()

    def check(self, plan: Plan) -> None:
        self.inner.check(plan)

    def note(self, learning_rate: float) -> str:
        return self.inner.note(learning_rate)

    def init(self, segments: list[Segment]) -> State:
        return self.inner.init(segments)

    def carried(self, inputs: list[Input], state: State, step: Step) -> list[Input]:
        return self.inner.carried(inputs, state, step)
