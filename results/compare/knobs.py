"""Knobs: the settings by which methods meet a byte budget, and the search for their values."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from results.command import answer_of

TOLERANCE = 0.05  # share of a budget by which a pilot of ``Knob.match`` may exceed it
PILOTS = 6  # the most pilots of ``Knob.match``


class UnreachableError(Exception):
    """No setting of a method meets the budget."""


@dataclass(frozen=True)
class Pilot:
    """One finished training with one value of a knob."""

    value: float
    sent: float  # bytes
    density: float = math.nan  # average over the training
    folder: str = ""


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One number that sets one or several settings of a method, and how the bytes depend on it.

    ``compressors/parts/knob.py`` describes the fields that a method declares.
    """

    factors: dict[str, float]  # by setting: the setting is the knob's value times this factor
    slope: float = 1.0  # 0: not known
    value: float | None = None  # in the yaml
    dense_at: float | None = None
    size_power: float = 0.0
    lowest: int = 1
    highest: float = math.inf
    is_whole: bool = False  # settings are rounded to whole numbers
    is_ragged: bool = True  # the numbers of entries sent depend on the gradients

    def overrides(self, value: float) -> str:
        """The settings for ``value`` as overrides of run.py, separated by blanks."""
        if self.is_whole:
            values = {key: max(self.lowest, round(value * by)) for key, by in self.factors.items()}
            return " ".join(f"{key}={whole}" for key, whole in values.items())
        return " ".join(f"{key}={value * by:.4g}" for key, by in self.factors.items())

    def first_value(self, share: float, size: int) -> float:
        """The value tried first for the bytes of dense training over ``share``, for D = ``size``."""
        if self.dense_at is not None:
            return self.dense_at * size**self.size_power * share ** (-1 / self.slope)
        assert self.value is not None, "checked where it was read"
        return self.value

    def directed(self, sent: Callable[[float], float]) -> "Knob":
        """This knob with the sign of its slope, from the bytes ``sent`` by two pilots if it is not known.

        Raises ``ValueError`` if both send the same.
        """
        if self.slope:
            return self
        value = self.first_value(1.0, 1)
        low, high = (value, 2 * value) if self.is_whole else (value / 2, value)
        less, more = sent(low), sent(high)
        if less == more:
            pair = f"{self.overrides(low)} and {self.overrides(high)}"
            raise ValueError(f"{next(iter(self.factors))} is no knob: {pair} send {less:,.0f} bytes both")
        return replace(self, slope=math.copysign(1.0, more - less))

    def match(self, sent: Callable[[float], float], wanted: float, start: float) -> float:
        """Of the values tried, the one with the most bytes up to ``wanted`` plus ``TOLERANCE``.

        ``sent`` trains a pilot with a value and returns its bytes; ``start`` is tried first. Raises
        ``UnreachableError`` if every value tried sends more.
        """
        tried: dict[float, float] = {}  # bytes by value

        def pilot(value: float) -> Pilot:
            tried[value] = max(1.0, sent(value))
            if tried[value] > wanted and self._is_minimum(tried, value):
                raise UnreachableError
            return Pilot(value, tried[value])

        with suppress(UnreachableError):
            self.search(pilot, wanted, start, tolerance=TOLERANCE, runs=PILOTS)
        fitting = [value for value, found in tried.items() if found <= wanted * (1 + TOLERANCE)]
        if not fitting:
            raise UnreachableError
        return max(fitting, key=lambda value: (tried[value], -value))

    def _is_minimum(self, tried: dict[float, float], value: float) -> bool:
        """Whether the bytes no longer fall: a value that should send twice as much sent as much as ``value``.

        Values that should send less than twice as much may take the same number of entries of a small layer.
        """
        return any(
            (other / value) ** self.slope >= 2 and found < 1.01 * tried[value]
            for other, found in tried.items()
        )

    def search(
        self, pilot: Callable[[float], Pilot], wanted: float, start: float, *, tolerance: float, runs: int
    ) -> tuple[Pilot, int]:
        """The pilot that sends ``wanted`` bytes within ``tolerance``, or comes closest, and their number.

        A whole number that sends more if it is higher has few values, which are tried from ``lowest`` on, as
        if the bytes were proportional to the value; ``start`` is ignored then. Otherwise the bytes are
        modelled as a power law of the setting, first with exponent ``slope``, then through the last two
        trials. When the wanted bytes lie between two trials, all further trials are in that interval.
        """
        trials: list[Pilot] = []
        is_stepped = self.is_whole and self.slope > 0
        value = self.lowest if is_stepped else min(self.highest, start)
        while len(trials) < runs:
            trials.append(pilot(value))
            if not is_stepped and abs(trials[-1].sent / wanted - 1) <= tolerance:
                break
            value = self._step(trials, wanted, tolerance) if is_stepped else self._next(trials, wanted)
            if any(trial.value == value for trial in trials):
                break
        return min(trials, key=lambda trial: abs(math.log(trial.sent / wanted))), len(trials)

    def _step(self, trials: Sequence[Pilot], wanted: float, tolerance: float) -> float:
        last, most = trials[-1], wanted * (1 + tolerance)
        fits = max((trial.value for trial in trials if trial.sent <= most), default=self.lowest - 1)
        too_high = min((trial.value for trial in trials if trial.sent > most), default=math.inf)
        value = last.value - 1
        if last.sent <= most:
            value = min(self.highest, max(last.value + 1, math.floor(last.value * wanted / last.sent)))
        return value if fits < value < too_high else last.value

    def _next(self, trials: Sequence[Pilot], wanted: float) -> float:
        last, slope = trials[-1], self.slope
        if len(trials) > 1:
            before = trials[-2]
            measured = math.log(last.sent / before.sent) / math.log(last.value / before.value)
            if measured * slope > 0:  # bytes are random: a training may send more at a higher threshold
                slope = measured
        step = math.log(wanted / last.sent) / slope
        value = last.value * math.exp(max(-3.0, min(3.0, step)))
        more = [trial for trial in reversed(trials) if trial.sent > wanted]  # of equal trials, the latest
        less = [trial for trial in reversed(trials) if trial.sent < wanted]
        if more and less:
            nearest = min(more, key=lambda trial: trial.sent), max(less, key=lambda trial: trial.sent)
            low, high = sorted(trial.value for trial in nearest)
            if not low < value < high:
                value = math.sqrt(low * high)
        is_rounded = self.is_whole and len(self.factors) == 1
        return min(self.highest, max(self.lowest, round(value)) if is_rounded else float(f"{value:.4g}"))


def declared_knobs(asked: Sequence[tuple[Sequence[str], str | None]]) -> list[Knob | None]:
    """The knobs of methods: for each its overrides of run.py, and a setting instead of its class's knob.

    None for a method without a knob. Raises ``ValueError`` for what run.py refuses, and for a setting without
    a number.
    """
    return [found and Knob(**found) for found in answer_of("trainers.config.knobs", asked)]


def without_knob(names: Sequence[str]) -> str:
    """A line on methods without a knob."""
    has = "has" if len(names) == 1 else "have"
    return (
        f"{', '.join(names)} {has} no knob, a setting that changes the bytes, which a class declares or "
        "--knob KEY names"
    )
