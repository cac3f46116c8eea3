"""The reducer of a codec whose density goes by a schedule."""

from dataclasses import dataclass, field, replace
from typing import Any

from compressors.api import Codec, Context, Reduced, Reducer, Segment
from compressors.density import Constant, DensitySchedule
from compressors.encoding import can_check
from compressors.means import mean_of
from compressors.wire import PLAIN, Wire


@dataclass(frozen=True)
class ScheduledMean:
    """``codec``, which has a density, with the one that ``schedule`` gives it in the epoch at hand."""

    codec: Codec
    schedule: DensitySchedule
    kernels: str = field(default="auto", repr=False)  # which change no result
    wire: Wire = PLAIN
    _made: dict[float, Reducer] = field(default_factory=dict, init=False, repr=False, compare=False)

    adds_gradient = measures_input = True

    @property
    def checks_input(self) -> bool:
        return can_check(self.codec, self.kernels)

    def refuse_idle(self, rates: list[float]) -> None:
        """Raise ``ValueError`` where the density never changes in as many epochs as there are ``rates``."""
        self.schedule.refuse_idle(len(rates))

    def init(self, segments: list[Segment]) -> tuple[()]:
        return ()

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        return self._at(context).reduce(segments, state, context, communicator)

    def codec_of_step(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> Codec:
        """C of the step that ``context`` names."""
        return self._at(context).codec

    def _at(self, context: Context) -> Any:
        density = self.schedule.at(context.whole_epochs, self.codec.density)
        if density not in self._made:
            codec = replace(self.codec, density=density, schedule=Constant())
            self._made[density] = mean_of(codec, self.kernels, self.wire)
        return self._made[density]
