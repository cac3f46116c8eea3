"""Compiled loops for what is measured beside the training, with the bits that torch's own operators give."""

import numpy as np

from compressors.kernels.compiling import compiled


@compiled
def add_wide(entries, is_first, total):
    """``entries`` [d], widened to float64, added to ``total`` [d]; with ``is_first`` in its place."""
    if is_first:
        for i in range(len(total)):
            total[i] = entries[i]
    else:
        for i in range(len(total)):
            total[i] += entries[i]


@compiled
def count_ages(steps, sent_at, entries, counts, masses):
    """Adds, per number of steps since ``sent_at`` [d], entries to ``counts`` and squares to ``masses``."""
    for i in range(len(sent_at)):
        age = steps - sent_at[i]
        wide = np.float64(entries[i])
        counts[age] += 1
        masses[age] += wide * wide
