"""Base classes of sparsifiers with a density: schedule, checks and error bound."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from compressors.core.checks import require_density
from compressors.core.codec import Codec, Plan
from compressors.core.density import density_schedule, elements_of, unsent_share
from compressors.core.norms import squared_norm
from compressors.core.reducer import Reducer
from compressors.core.segments import Step
from compressors.parts.knob import DENSITY, Knob


@dataclass(frozen=True, kw_only=True)
class WithDensity:
    """A method with a budget of k = max(1, floor(density * d)) of d elements.

    ``schedule`` varies the density over the epochs. Raises ``ValueError`` for a density outside (0, 1].
    """

    density: float
    schedule: Any = field(default="constant", repr=False)  # of the density; see density.py

    def __post_init__(self) -> None:
        require_density(type(self).__name__, self.density)
        object.__setattr__(self, "schedule", density_schedule(self.schedule, self.density))

    @property
    def knob(self) -> Knob | None:
        return DENSITY

    def check(self, plan: Plan) -> None:
        self.schedule.check_num_epochs(len(plan.rates))

    def density_at(self, step: Step) -> float:
        """The density in the epoch of ``step``."""
        return self.schedule.at(step.whole_epochs, self.density)

    def elements_at(self, step: Step, size: int) -> int:
        """k of ``size`` elements in the epoch of ``step``."""
        return elements_of(self.density_at(step), size)


@dataclass(frozen=True, kw_only=True)
class CodecWithDensity(WithDensity, Codec):
    """A codec that sends k = max(1, floor(density * d)) of d elements. A (1 - k / d)-contraction."""

    def error_bound(self, x: Tensor, step: Step) -> float:
        return unsent_share(self.density_at(step), x.numel()) * squared_norm(x).item()


@dataclass(frozen=True, kw_only=True)
class ReducerWithDensity(WithDensity, Reducer):
    """A reducer whose workers choose k = max(1, floor(density * d)) of d elements."""
