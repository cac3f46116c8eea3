"""Density schedules: the share of elements sent in each epoch.

Exponential warm-up: Lin, Han, Mao, Wang and Dally, "Deep gradient compression", ICLR 2018,
https://arxiv.org/abs/1712.01887, who send 25 %, 6.25 %, 1.6 %, 0.4 % in the first four epochs and 0.1 % from
then on. Every schedule works with every sparsifier that has a density.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from compressors.core.checks import is_count, is_real, require


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The budget's density in every epoch."""

    def check(self, density: float) -> None:
        pass

    def check_num_epochs(self, num_epochs: int) -> None:
        pass

    def at(self, epoch: int, density: float) -> float:
        return density


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """From ``start`` down to the budget's density, by the same factor after each of ``epochs`` epochs.

    Raises ``ValueError`` for a start outside (0, 1] and for less than one epoch.
    """

    start: float = 0.25
    epochs: int = 4

    def __post_init__(self) -> None:
        valid = is_real(self.start) and 0 < self.start <= 1
        require(valid, "budget.schedule.start", "in (0, 1]", self.start)
        require(is_count(self.epochs), "budget.schedule.epochs", "an integer >= 1", self.epochs)

    def check(self, density: float) -> None:
        """Raise ``ValueError`` unless the start is above ``density``."""
        rule = f"above the density at its end ({density})"
        require(self.start > density, "budget.schedule.start", rule, self.start)

    def check_num_epochs(self, num_epochs: int) -> None:
        pass  # the density changes from the first epoch on

    def at(self, epoch: int, density: float) -> float:
        """The density in this epoch, counted from 0."""
        if epoch >= self.epochs:
            return density
        return self.start * (density / self.start) ** (epoch / self.epochs)


@dataclass(frozen=True, kw_only=True)
class StepDensity:
    """The budget's density, times ``factor`` at each of ``milestones``, in epochs.

    Raises ``ValueError`` for milestones that are not rising integers >= 1, for a factor that is 1 or not
    positive, and for one that leads to a density above 1.
    """

    milestones: Sequence[int]
    factor: float

    def __post_init__(self) -> None:
        stones = self.milestones
        valid = isinstance(stones, (list, tuple)) and len(stones) > 0 and all(map(is_count, stones))
        rising = valid and list(stones) == sorted(set(stones))
        require(rising, "budget.schedule.milestones", "epochs >= 1 in rising order", stones)
        valid = is_real(self.factor) and self.factor > 0 and self.factor != 1
        require(valid, "budget.schedule.factor", "> 0 and not 1", self.factor)
        object.__setattr__(self, "milestones", tuple(stones))

    def check(self, density: float) -> None:
        """Raise ``ValueError`` if the factors lead from ``density`` to more than 1."""
        rule = f"so small that no density exceeds 1 (the first one is {density})"
        try:
            highest = self.at(self.milestones[-1], density)
        except OverflowError:
            highest = math.inf
        require(highest <= 1, "budget.schedule.factor", rule, self.factor)

    def check_num_epochs(self, num_epochs: int) -> None:
        """Raise ``ValueError`` if training ends before the first milestone."""
        if self.milestones[0] >= num_epochs:
            raise ValueError(
                f"budget.schedule.milestones has no effect: the first comes after {self.milestones[0]} "
                f"epochs, but the run has {num_epochs}"
            )

    def at(self, epoch: int, density: float) -> float:
        """The density in this epoch, counted from 0."""
        return density * self.factor ** sum(epoch >= milestone for milestone in self.milestones)


DensitySchedule = Constant | Exponential | StepDensity
KINDS = {"constant": Constant, "exponential": Exponential, "step": StepDensity}


def density_schedule(settings: object, density: float) -> DensitySchedule:
    """The schedule of ``settings``, checked against the budget's ``density``.

    ``settings`` is a schedule, the name of a kind, or ``{kind: NAME, ...}``. Raises ``ValueError`` otherwise.
    """
    schedule = settings if isinstance(settings, DensitySchedule) else _made(settings)
    schedule.check(density)
    return schedule


def _made(settings: object) -> DensitySchedule:
    given = {"kind": settings} if isinstance(settings, str) else settings
    known = isinstance(given, dict) and isinstance(given.get("kind"), str) and given["kind"] in KINDS
    rule = f"{', '.join(KINDS)}, or {{kind: one of these, and its settings}}"
    require(known, "budget.schedule", rule, settings)
    assert isinstance(given, dict)
    name = given["kind"]
    fields = {field.name: field for field in dataclasses.fields(KINDS[name])}
    values = {key: value for key, value in given.items() if key != "kind"}
    for key in sorted(map(str, values.keys() - fields.keys())):
        raise ValueError(f"budget.schedule.{key} has no effect: {name} has no such setting")
    for key, field in fields.items():
        if key not in values and field.default is dataclasses.MISSING:
            raise ValueError(f"budget.schedule.{key} is missing: {name} needs it")
    return KINDS[name](**values)


def elements_of(density: float, size: int) -> int:
    """k = max(1, floor(density * d)); the tolerance keeps 0.07 * 100 from becoming 6."""
    return max(1, min(size, int(density * size + 1e-9 * max(1.0, density * size))))


def unsent_share(density: float, size: int) -> float:
    """1 - k / d, the contraction factor for k = ``elements_of(density, size)``."""
    return 1 - elements_of(density, size) / size
