"""Hindsight error and regret: the least total error for as many elements sent, and the excess over it.

Sahu et al., 2021, https://arxiv.org/abs/2108.00951: for the sequence p_1, ..., p_T that was compressed, the
least total error with K elements keeps the K largest magnitudes of all steps, which one constant threshold
does. Here of all workers, segments and steps together.

Magnitudes are known by bins. All of the bins above the K-th largest are kept, and of its own bin as many as
are left of K. The squares of that bin's others lie between what their number, the bin's sum and edges allow.
"""

from dataclasses import dataclass

import numpy as np
import torch

from compressors.core.magnitudes import EDGES, SQUARES_ERROR, Magnitudes
from trainers.ledger import Ledger


@dataclass(frozen=True)
class Hindsight:
    """Least total error, its threshold, and the regret: how much larger the run's total error is.

    Of rounded values (``wire.values``) the rounding is part of the regret. Cost: in each step a pass over e
    and g; 96 kB per worker.
    """

    def measure(self, magnitudes: Magnitudes, ledger: Ledger) -> dict[str, float]:
        """Of all steps that ``ledger`` has. Nothing where a magnitude is beyond the bins; no regret where
        nothing had to be lost, where the bins leave it open how much, and where less was lost than that.
        """
        sums = torch.stack(
            [ledger.total_error.sum(1).cpu(), torch.from_numpy(ledger.total_counts.sent).sum(1)], 1
        )
        own = torch.cat([magnitudes.counts.cpu(), magnitudes.squares.cpu(), sums], 1)
        everyones = ledger.communicator.collect(own)  # [n, 2 BINS + 2], added up in the workers' order
        num_workers = len(everyones)
        *of_bins, total_error, kept = everyones.sum(0).tolist()
        counts, squares = np.array(of_bins).reshape(2, -1)
        counts[0] = 0  # no magnitude to speak of
        if counts[-1] > 0:
            return {}
        if kept >= counts.sum():
            return {"compression/hindsight_error": 0.0}
        least, most, threshold = _unkept(counts, squares, kept)
        if is_possible := total_error >= least:
            most = min(most, total_error)  # the run itself is one of those sparsifiers
        error = (least + most) / 2
        found = {"compression/hindsight_error": error / num_workers}
        if kept > 0:
            found["compression/hindsight_threshold"] = threshold
        if least > 0 and is_possible:
            found["compression/regret"] = total_error / error - 1
            found["compression/regret_bound"] = total_error / least - total_error / error
        return found


def _unkept(counts: np.ndarray, squares: np.ndarray, kept: float) -> tuple[float, float, float]:
    """All squares but the ``kept`` largest, at least and at most; and the threshold. Some are not kept."""
    larger = counts[::-1].cumsum()[::-1] - counts  # entries in the bins above each
    bin_ = int(np.flatnonzero((larger <= kept) & (counts > 0))[0])
    inside = kept - larger[bin_]  # of this bin
    left = counts[bin_] - inside
    lower, upper = EDGES[bin_], EDGES[bin_ + 1]
    below = squares[:bin_].sum()
    least = below + max(left * lower**2, squares[bin_] - inside * upper**2)
    most = below + squares[bin_] * left / counts[bin_]
    threshold = upper - (upper - lower) * inside / counts[bin_]
    return float(least * (1 - SQUARES_ERROR)), float(most * (1 + SQUARES_ERROR)), float(threshold)
