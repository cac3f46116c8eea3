"""The reducer of a codec: compression of every worker's input, and the mean of the payloads."""

from dataclasses import dataclass

from compressors.core.checks import MethodError
from compressors.core.codec import Codec, Plan, Traits, kinds_of
from compressors.core.communicator import Communicator
from compressors.core.fields import declared
from compressors.core.reducer import Reduced, Reducer
from compressors.core.segments import Input, Segment, State, Step
from compressors.core.transports import Transport
from compressors.kernels.choice import backend_of


@dataclass(frozen=True)
class Compress(Reducer):
    """Compression by ``codec`` and the mean by ``transport``.

    Raises ``ValueError`` for a codec whose payload does not declare its fields, or that does not fit the
    transport.
    """

    codec: Codec
    transport: Transport

    def __post_init__(self) -> None:
        self.transport.require_fit(self.codec)

    @property
    def traits(self) -> Traits:
        own = self.codec.traits
        return own._replace(exact=own.exact and not self.transport.rounds)

    @property
    def kinds(self) -> tuple[str, ...]:
        return kinds_of(self.codec)

    @property
    def has_a_value_each(self) -> bool:
        return declared(self.codec.payload).has_a_value_each

    @property
    def uses_learning_rate(self) -> bool:
        return self.codec.uses_learning_rate

    def check(self, plan: Plan) -> None:
        self.codec.check(plan)

    def init(self, segments: list[Segment]) -> State:
        return self.codec.init(segments)

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        backend = backend_of(inputs[0].rows.device)
        codecs, state = self._choose(inputs, state, step, communicator)
        compressed = backend.compress(codecs, inputs, step, communicator.local_workers)
        means = self.transport.mean(inputs, compressed, step, communicator)
        if self.transport.rounds:  # p - C(p) now contains the rounding errors, so its norm is computed again
            left = [given.segment._replace(rows=given.rows) for given in inputs]
            errors = zip(compressed, backend.squared_norms(left), strict=True)
            compressed = [own._replace(error=error) for own, error in errors]
        names = [given.name for given in inputs]
        return Reduced(
            dict(zip(names, means, strict=True)),
            {given.name: given.rows for given in inputs},
            dict(zip(names, compressed, strict=True)),
        ), state

    def _choose(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], State]:
        """``codec.choose``. Raises ``MethodError`` unless it returns a codec per segment, and the state."""
        chosen = self.codec.choose(inputs, state, step, communicator)
        if isinstance(chosen, tuple) and len(chosen) == 2:
            codecs, state = chosen
            if isinstance(codecs, list) and len(codecs) == len(inputs):
                return codecs, state
        rule = f"return a list of {len(inputs)} codecs, one for each segment, and the state"
        raise MethodError(f"{type(self.codec).__name__}.choose must {rule}")
