"""Hindsight error and regret: the least total error for the same number of elements, and the excess over it.

Sahu et al., 2021, https://arxiv.org/abs/2108.00951: for a given sequence p_1, ..., p_T, the least total error
with K elements is reached by the K largest magnitudes of all steps, which one constant threshold selects.
Here K and p are over all workers, segments and steps together.

Magnitudes are counted in bins. The kept entries are all those in bins above the bin of the K-th largest
magnitude, and the remaining number in this bin. The bin's count, sum of squares and edges bound the sum of
squares of its other entries.
"""

from dataclasses import dataclass

import numpy as np
import torch

from compressors.parts.magnitudes import EDGES, SQUARES_ERROR, Magnitudes
from trainers.step.ledger import Ledger


@dataclass(frozen=True)
class Hindsight:
    """Least total error, its threshold, and the regret: the run's total error over the least, minus 1.

    Rounding errors of ``wire.values`` are part of the regret. Cost: in each step a pass over e and g; 96 kB
    per worker.
    """

    def measure(self, magnitudes: Magnitudes, ledger: Ledger) -> dict[str, float]:
        """The metrics over all steps of ``ledger``. Empty if a magnitude is above the bins. No regret if the
        least error is 0, if its lower bound by the bins is 0, or if the run's error is below this bound.
        """
        sums = torch.stack(
            [ledger.total_error.sum(1).cpu(), torch.from_numpy(ledger.total_counts.sent).sum(1)], 1
        )
        own = torch.cat([magnitudes.counts.cpu(), magnitudes.squares.cpu(), sums], 1)
        everyones = ledger.communicator.collect(own)  # [n, 2 BINS + 2], to be summed in worker order
        num_workers = len(everyones)
        *of_bins, total_error, kept = everyones.sum(0).tolist()
        counts, squares = np.array(of_bins).reshape(2, -1)
        counts[0] = 0  # the lowest bin counts as zeros
        if counts[-1] > 0:
            return {}
        if kept >= counts.sum():
            return {"compression/hindsight_error": 0.0}
        least, most, threshold = _unkept(counts, squares, kept)
        if is_possible := total_error >= least:
            most = min(most, total_error)  # the run itself is a sparsifier
        error = (least + most) / 2
        found = {"compression/hindsight_error": error / num_workers}
        if kept > 0:
            found["compression/hindsight_threshold"] = threshold
        if least > 0 and is_possible:
            found["compression/regret"] = total_error / error - 1
            found["compression/regret_bound"] = total_error / least - total_error / error
        return found


def _unkept(counts: np.ndarray, squares: np.ndarray, kept: float) -> tuple[float, float, float]:
    """Lower and upper bound of the sum of squares without the ``kept`` largest, and the threshold.

    ``kept`` is less than the number of entries.
    """
    larger = counts[::-1].cumsum()[::-1] - counts  # entries in the bins above each
    bin_ = int(np.flatnonzero((larger <= kept) & (counts > 0))[0])
    inside = kept - larger[bin_]  # kept entries of this bin
    left = counts[bin_] - inside
    lower, upper = EDGES[bin_], EDGES[bin_ + 1]
    below = squares[:bin_].sum()
    least = below + max(left * lower**2, squares[bin_] - inside * upper**2)
    most = below + squares[bin_] * left / counts[bin_]
    threshold = upper - (upper - lower) * inside / counts[bin_]
    return float(least * (1 - SQUARES_ERROR)), float(most * (1 + SQUARES_ERROR)), float(threshold)
