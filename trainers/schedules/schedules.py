"""Learning-rate schedules: the factor on the base rate at a step or a fractional epoch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from compressors.core.checks import LARGEST, is_real, require

STEP, EPOCH = "step", "epoch"  # units in which a schedule counts the progress of a training


@runtime_checkable
class Schedule(Protocol):
    """Interface of learning-rate schedules."""

    @property
    def unit(self) -> str:
        """Unit of the arguments of ``factor``: ``STEP`` or ``EPOCH``."""

    def factor(self, done: float, total: float, /) -> float:
        """Factor on the base learning rate after ``done`` of ``total`` units."""


def factor_at(schedule: Schedule, step: int, num_steps: int, epochs_per_step: float) -> float:
    """The factor on the base rate in ``step``, counted from 0."""
    if schedule.unit == STEP:
        return schedule.factor(step, num_steps)
    return schedule.factor(step * epochs_per_step, num_steps * epochs_per_step)


@dataclass(frozen=True, kw_only=True)
class ConstantRate:
    """The base rate in every step."""

    unit: ClassVar[str] = EPOCH

    def factor(self, epoch: float, total_epochs: float) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class WarmupStep:
    """Linear warm-up from 1x to ``peak``x over ``warmup_epochs``, then ``decay`` at each milestone.

    Goyal et al., 2017, https://arxiv.org/abs/1706.02677; per iteration, with fractional epochs:
    (1 + (peak - 1) min(epoch / warmup_epochs, 1)) * decay ^ (milestones reached). Raises
    ``ValueError`` for a negative warm-up, a peak or decay that is not positive, and milestones that
    do not increase.
    """

    unit: ClassVar[str] = EPOCH
    peak: float = 1.0
    warmup_epochs: float = 0.0
    milestones: Sequence[float] = ()
    decay: float = 0.1

    def __post_init__(self) -> None:
        _require_warmup("WarmupStep", self.peak, self.warmup_epochs)
        require(is_real(self.decay) and self.decay > 0, "WarmupStep.decay", "> 0", self.decay)
        is_list = isinstance(self.milestones, Sequence) and not isinstance(self.milestones, str)
        valid = is_list and all(is_real(m) and m >= 0 for m in self.milestones)
        rising = valid and list(self.milestones) == sorted(set(self.milestones))
        require(rising, "WarmupStep.milestones", "epochs >= 0 in rising order", self.milestones)
        highest = math.log(self.peak) + len(self.milestones) * math.log(self.decay)
        rule = "so small that the rate stays finite at all milestones"
        require(highest <= math.log(LARGEST), "WarmupStep.decay", rule, self.decay)

    def factor(self, epoch: float, total_epochs: float) -> float:
        reached = sum(epoch + 1e-9 >= milestone for milestone in self.milestones)  # 49 * (1 / 49) is below 1
        return _warmup(epoch, self.peak, self.warmup_epochs) * self.decay**reached


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Linear warm-up from 1x to ``peak``x, then half a cosine down to 0 at the last epoch.

    Loshchilov and Hutter, 2017, https://arxiv.org/abs/1608.03983. Raises ``ValueError`` for a
    negative warm-up and a peak that is not positive.
    """

    unit: ClassVar[str] = EPOCH
    peak: float = 1.0
    warmup_epochs: float = 0.0

    def __post_init__(self) -> None:
        _require_warmup("Cosine", self.peak, self.warmup_epochs)

    def factor(self, epoch: float, total_epochs: float) -> float:
        if epoch < self.warmup_epochs:
            return _warmup(epoch, self.peak, self.warmup_epochs)
        progress = (epoch - self.warmup_epochs) / max(total_epochs - self.warmup_epochs, 1e-12)
        return self.peak * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Linear warm-up from 0 to the base rate, then a straight line down to 0 at the last epoch.

    Devlin et al., 2019, https://arxiv.org/abs/1810.04805. The warm-up takes ``warmup_epochs`` or, if
    it is None, ``warmup_share`` of the training. Raises ``ValueError`` for a negative warm-up and for
    a share outside [0, 1).
    """

    unit: ClassVar[str] = EPOCH
    warmup_share: float = 0.1
    warmup_epochs: float | None = None

    def __post_init__(self) -> None:
        if self.warmup_epochs is None:
            valid = is_real(self.warmup_share) and 0 <= self.warmup_share < 1
            require(valid, "Linear.warmup_share", "in [0, 1)", self.warmup_share)
        else:
            valid = is_real(self.warmup_epochs) and self.warmup_epochs >= 0
            require(valid, "Linear.warmup_epochs", ">= 0 or null", self.warmup_epochs)

    def factor(self, epoch: float, total_epochs: float) -> float:
        warmup = self.warmup_share * total_epochs if self.warmup_epochs is None else self.warmup_epochs
        if epoch < warmup:
            return epoch / warmup
        progress = (epoch - warmup) / max(total_epochs - warmup, 1e-12)
        return max(1 - progress, 0.0)


@dataclass(frozen=True, kw_only=True)
class InversePower:
    """A rate that falls as a power of the time t: (1 + ``decay`` t)^-``exponent``, t in ``unit``.

    Exponents of 1 and 1/2 give the decreasing rates of convergence proofs, O(1 / t) and
    O(1 / sqrt(t)); Alistarh et al., 2018, https://arxiv.org/abs/1809.10505, use them for Top-k. Over
    the first ``warmup`` units the factor rises linearly from 0 to 1, and t counts from there; with
    ``decay`` = 1 / ``warmup`` and an exponent of 1/2 this is sqrt(``warmup`` / t) of all units, the rate
    of Vaswani et al., 2017, https://arxiv.org/abs/1706.03762. Raises ``ValueError`` for a decay or
    exponent that is not positive, a negative warm-up, and another unit.
    """

    decay: float
    exponent: float
    warmup: float
    unit: str

    def __post_init__(self) -> None:
        for name in ("decay", "exponent"):
            value = getattr(self, name)
            require(is_real(value) and value > 0, f"InversePower.{name}", "> 0", value)
        require(is_real(self.warmup) and self.warmup >= 0, "InversePower.warmup", ">= 0", self.warmup)
        require(self.unit in (STEP, EPOCH), "InversePower.unit", f"{STEP} or {EPOCH}", self.unit)

    def factor(self, done: float, total: float, /) -> float:
        if done < self.warmup:
            return done / self.warmup
        return float((1 + self.decay * (done - self.warmup)) ** -self.exponent)


def _require_warmup(owner: str, peak: float, warmup_epochs: float) -> None:
    require(is_real(peak) and peak > 0, f"{owner}.peak", "> 0", peak)
    valid = is_real(warmup_epochs) and warmup_epochs >= 0
    require(valid, f"{owner}.warmup_epochs", ">= 0", warmup_epochs)


def _warmup(epoch: float, peak: float, warmup_epochs: float) -> float:
    share = min(epoch / warmup_epochs, 1.0) if warmup_epochs > 0 else 1.0
    return 1 + (peak - 1) * share
