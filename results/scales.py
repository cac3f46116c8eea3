"""Which part of an axis is shown, and whether it is logarithmic."""

from collections.abc import Sequence
from typing import Any

import numpy as np

LOG_FROM = 10  # largest over smallest value from which on an axis is logarithmic
MARGIN = 0.05  # of the axis, on both sides
# How far intervals may widen an axis beyond the means, since those of two seeds are endless: as a share
# of the means' own extent where it is linear, as a factor where it is logarithmic.
WIDEN_SHARE, WIDEN_FACTOR = 1.0, 4.0


def set_scale(
    axis: Any,
    which: str,
    means: Sequence[np.ndarray],
    lows: Sequence[np.ndarray] = (),
    highs: Sequence[np.ndarray] = (),
    *,
    can_be_logarithmic: bool,
    decided_by: Sequence[np.ndarray] | None = None,
) -> bool:
    """Scale the axis "x" or "y" for all means and, as far as there is room, their intervals.

    It becomes logarithmic where the means, or what is in ``decided_by``, differ by ``LOG_FROM`` times.
    Returns whether it did; values that are not positive have no place on it then.
    """
    mean = _finite(means)
    if not len(mean):
        return False
    deciding = _finite(decided_by) if decided_by is not None else mean
    deciding = deciding[deciding > 0]
    logarithmic = (
        can_be_logarithmic and len(deciding) > 0 and bool(deciding.max() / deciding.min() >= LOG_FROM)
    )
    low, high = np.append(_finite(lows), mean), np.append(_finite(highs), mean)
    if logarithmic:
        mean, low = mean[mean > 0], low[low > 0]
        first = max(low.min(), mean.min() / WIDEN_FACTOR)
        last = min(high.max(), mean.max() * WIDEN_FACTOR)
        room = (last / first) ** MARGIN
        limits = first / room, last * room
    else:
        extent = mean.max() - mean.min() or abs(mean.max()) * 0.1 or 1.0
        first = max(low.min(), mean.min() - WIDEN_SHARE * extent)
        last = min(high.max(), mean.max() + WIDEN_SHARE * extent)
        room = (last - first or extent) * MARGIN
        limits = first - room, last + room
    getattr(axis, f"set_{which}scale")("log" if logarithmic else "linear")
    getattr(axis, f"set_{which}lim")(*limits)
    return logarithmic


def _finite(arrays: Sequence[np.ndarray]) -> np.ndarray:
    if not len(arrays):
        return np.empty(0)
    values = np.concatenate([np.asarray(array, dtype=float).ravel() for array in arrays])
    return values[np.isfinite(values)]
