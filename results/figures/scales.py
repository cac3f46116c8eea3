"""Axis limits, and the choice between linear and logarithmic axes."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LOG_FROM = 10  # ratio of largest to smallest value from which on an axis is logarithmic
MARGIN = 0.05  # of the axis, on both sides
# Limits on how much intervals may extend an axis beyond the means, because intervals of few seeds can be very
# long. On a logarithmic axis WIDEN_FACTOR; on a linear one the larger of half the extent of the means and
# WIDEN_HALVES times the average half width of the intervals.
WIDEN_FACTOR, WIDEN_HALVES = 4.0, 1.5
DECADES_BELOW = 2  # decades of an axis below the smallest end value of a curve
SMALLEST = 1e-150  # lower limit of a logarithmic axis, so that no quotient overflows
# A linear axis that ends at MANY or above has at most FEW_LONG tick intervals, and thousands separators.
MANY, FEW_LONG = 5000, 4
FEWEST_TICKS, MOST_TICKS = 3, 8  # labelled ticks of a logarithmic axis
X_ROOM, NARROW_X_ROOM = 30, 16  # characters of all labels below a panel, and below one beside long names
SHORTEST, LONGEST = 0.7e-4, 1.5e6  # range of an axis with plain numbers at its ticks instead of powers of ten


@dataclass(frozen=True)
class Scale:
    """The scale of an axis."""

    logarithmic: bool
    limits: tuple[float, float] | None  # None without values


def scale_of(
    means: Sequence[np.ndarray],
    lows: Sequence[np.ndarray] = (),
    highs: Sequence[np.ndarray] = (),
    *,
    can_be_logarithmic: bool,
    limit: float | None = None,
    decided_by: Sequence[np.ndarray] | None = None,
    shown: Sequence[np.ndarray] = (),
) -> Scale:
    """A scale for all means, for the values ``shown`` and, within limits, for intervals.

    It is logarithmic if the means, or the values ``decided_by``, differ by a factor of ``LOG_FROM``; values
    that are not positive are then not visible. With ``decided_by``, the axis reaches at most
    ``DECADES_BELOW`` decades below its smallest value. ``limit`` is the largest possible value; intervals
    then extend the axis neither below 0 nor above ``limit``.
    """
    mean = _finite(means)
    if not len(mean):
        return Scale(False, None)
    deciding = _finite(decided_by) if decided_by is not None else mean
    deciding = deciding[deciding > 0]
    logarithmic = (
        can_be_logarithmic and len(deciding) > 0 and bool(deciding.max() / deciding.min() >= LOG_FROM)
    )
    mean = np.append(mean, _finite(shown))
    low, high = np.append(_finite(lows), mean), np.append(_finite(highs), mean)
    if limit is not None:
        low, high = np.maximum(low, min(0.0, mean.min())), np.minimum(high, limit)
    if logarithmic:
        holds_zero = (low <= 0).any()
        mean, low = np.maximum(mean[mean > 0], SMALLEST), np.maximum(low[low > 0], SMALLEST)
        first = min(low.min(), mean.min() / WIDEN_FACTOR**0.5 if holds_zero else np.inf)
        first = max(first, mean.min() / WIDEN_FACTOR)
        if decided_by is not None:
            first = max(first, deciding.min() / 10**DECADES_BELOW)
        last = min(high.max(), mean.max() * WIDEN_FACTOR)
        room = (last / first) ** MARGIN
        return Scale(True, (max(first / room, SMALLEST), last * room))
    extent = mean.max() - mean.min() or abs(mean.max()) * 0.1 or 1.0
    halves = _finite([(top - bottom) / 2 for bottom, top in zip(lows, highs, strict=True)])
    wide = max(extent / 2, WIDEN_HALVES * halves.mean() if len(halves) else 0.0)
    first = max(low.min(), mean.min() - wide)
    last = min(high.max(), mean.max() + wide)
    room = (last - first or extent) * MARGIN
    return Scale(False, (first - room, last + room))


def ticks(limits: tuple[float, float], room: float = math.inf) -> tuple[list[float], list[float]]:
    """Ticks of a logarithmic axis with a label, and those without.

    Labels are at powers of ten; on a short axis also at 2 and 5 times these; on a very short axis at even
    distances. ``room`` is the number of characters for all labels.
    """
    low, high = limits
    few, all_digits = _multiples(low, high, (1, 2, 5)), _multiples(low, high, tuple(range(1, 10)))
    is_long = len("".join(tick_labels(few))) > room
    if FEWEST_TICKS <= len(few) <= MOST_TICKS and not is_long:
        return few, [value for value in all_digits if value not in few]
    powers = _multiples(low, high, (1,))
    if len(few) > MOST_TICKS or (is_long and len(powers) > 1):
        for apart in itertools.count(math.ceil(len(powers) / MOST_TICKS)):
            kept = [value for value in powers if round(math.log10(value)) % apart == 0]
            if len(kept) <= 2 or len("".join(tick_labels(kept))) <= room:
                break
        return kept, [value for value in (all_digits if kept == powers else powers) if value not in kept]
    if len(all_digits) >= FEWEST_TICKS:
        return all_digits[:: math.ceil(len(all_digits) / MOST_TICKS)], []
    return _even(low, high), []


def tick_labels(values: Sequence[float]) -> list[str]:
    """Labels such as 0.01, 1 and 10,000; powers of ten if some labels would be long."""
    if all(SHORTEST <= value <= LONGEST for value in values):
        return [f"{value:,.10f}".rstrip("0").rstrip(".") for value in values]
    return [_power(value) for value in values]


def set_scale(axis: Any, which: str, scale: Scale, room: float = X_ROOM) -> None:
    """Scale matplotlib's axis "x" or "y"; ``room`` is that of ``ticks`` for x."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullFormatter

    if scale.limits is None:
        return
    getattr(axis, f"set_{which}scale")("log" if scale.logarithmic else "linear")
    getattr(axis, f"set_{which}lim")(*scale.limits)
    along = getattr(axis, f"{which}axis")
    if scale.logarithmic:
        major, minor = ticks(scale.limits, room if which == "x" else math.inf)
        along.set_major_locator(FixedLocator(major))
        along.set_major_formatter(FixedFormatter(tick_labels(major)))
        along.set_minor_locator(FixedLocator(minor))
        along.set_minor_formatter(NullFormatter())
    elif scale.limits[1] >= MANY:
        along.set_major_formatter("{x:,.0f}")
        along.set_major_locator(MaxNLocator(FEW_LONG))


def _multiples(low: float, high: float, digits: Sequence[int]) -> list[float]:
    """The ``digits`` times powers of ten, within the limits."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [float(f"{digit}e{exponent}") for exponent in exponents for digit in digits]
    return [value for value in values if low <= value <= high]


def _even(low: float, high: float) -> list[float]:
    """A few round numbers at even distances."""
    rough = (high - low) / FEWEST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(digit * power for digit in (1, 2, 5) if digit * power <= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _power(value: float) -> str:
    """A power of ten as text, such as 2·10⁻⁷ or 10⁻⁷."""
    exponent = math.floor(math.log10(value) + 1e-9)
    digit = value / 10.0**exponent
    power = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if abs(digit - 1) < 1e-9 else f"{digit:.6g}·{power}"


def _finite(arrays: Sequence[np.ndarray]) -> np.ndarray:
    if not len(arrays):
        return np.empty(0)
    values = np.concatenate([np.asarray(array, dtype=float).ravel() for array in arrays])
    return values[np.isfinite(values)]
