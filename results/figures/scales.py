"""Axis limits, and the choice between linear and logarithmic axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LOG_FROM = 10  # largest over smallest value from which on an axis is logarithmic
MARGIN = 0.05  # of the axis, on both sides
# How far intervals may widen an axis beyond the means, since those of two seeds are endless: by this factor
# where it is logarithmic, else by half the extent of the means or by so many times half the average interval.
WIDEN_FACTOR, WIDEN_HALVES = 4.0, 1.5
DECADES_BELOW = 2  # of the smallest end of a curve: what came before is a hundredth of it
SMALLEST = 1e-150  # of a logarithmic axis, so that no quotient overflows
MANY = 5000  # from where on thousands are set apart
SHORTEST, LONGEST = 0.7e-4, 1.5e6  # of an axis whose ticks are written out, not as powers of ten


@dataclass(frozen=True)
class Scale:
    """Of one axis."""

    logarithmic: bool
    limits: tuple[float, float] | None  # None without any value


def scale_of(
    means: Sequence[np.ndarray],
    lows: Sequence[np.ndarray] = (),
    highs: Sequence[np.ndarray] = (),
    *,
    can_be_logarithmic: bool,
    limit: float | None = None,
    decided_by: Sequence[np.ndarray] | None = None,
) -> Scale:
    """A scale for all means and, as far as there is room, their intervals.

    It is logarithmic where the means, or what is in ``decided_by``, differ by ``LOG_FROM`` times; values that
    are not positive have no place on it then. Where something else decides, the axis reaches no further below
    it than ``DECADES_BELOW``. ``limit`` is the largest value that there can be, whatever an interval says.
    """
    mean = _finite(means)
    if not len(mean):
        return Scale(False, None)
    deciding = _finite(decided_by) if decided_by is not None else mean
    deciding = deciding[deciding > 0]
    logarithmic = (
        can_be_logarithmic and len(deciding) > 0 and bool(deciding.max() / deciding.min() >= LOG_FROM)
    )
    low, high = np.append(_finite(lows), mean), np.append(_finite(highs), mean)
    if limit is not None:
        high = np.minimum(high, limit)
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


def set_scale(axis: Any, which: str, scale: Scale) -> None:
    """Scale matplotlib's axis "x" or "y"."""
    if scale.limits is None:
        return
    getattr(axis, f"set_{which}scale")("log" if scale.logarithmic else "linear")
    getattr(axis, f"set_{which}lim")(*scale.limits)
    if scale.logarithmic:
        _plain_numbers(getattr(axis, f"{which}axis"))
    elif scale.limits[1] >= MANY:
        getattr(axis, f"{which}axis").set_major_formatter("{x:,.0f}")


def _plain_numbers(axis: Any) -> None:
    """Write 0.01, 1 and 100 rather than powers of ten, unless some would be long."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Short(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            text = super().__call__(x, pos)
            return f"{x:,.4f}".rstrip("0").rstrip(".") if text else text

    low, high = axis.get_view_interval()
    if low < SHORTEST or high > LONGEST:
        return
    axis.set_major_formatter(Short())
    axis.set_minor_formatter(Short(labelOnlyBase=False, minor_thresholds=(1.5, 0.4)))


def _finite(arrays: Sequence[np.ndarray]) -> np.ndarray:
    if not len(arrays):
        return np.empty(0)
    values = np.concatenate([np.asarray(array, dtype=float).ravel() for array in arrays])
    return values[np.isfinite(values)]
