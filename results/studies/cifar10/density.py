"""The average density of one epoch of a run."""

from results.read.run import Run

DENSITY = "compression/density_mean"  # over all steps so far
NEAR = 0.05  # of an epoch, by which the records at its ends may miss them


def in_epoch(run: Run, number: int) -> float | None:
    """Elements sent over all elements, over the steps of epoch ``number``: 1 the first, -1 the last.

    From the averages recorded at the epoch's ends, so over all its steps, logged or not. None if the records
    do not reach within ``NEAR`` of the ends, as of runs below one epoch.
    """
    means, epochs = run.curve(DENSITY), run.curve("epoch")
    if means.empty:
        return None
    epochs = epochs.loc[means.index]
    end = float(number) if number > 0 else float(round(epochs.iloc[-1]))
    sent = []  # steps, and elements sent over all elements, at both ends
    for place in (end - 1, end):
        if place == 0:
            sent.append((0, 0.0))
            continue
        nearest = (epochs - place).abs().idxmin()
        if abs(epochs[nearest] - place) > NEAR:
            return None
        sent.append((int(nearest), means[nearest] * int(nearest)))
    (first, before), (last, after) = sent
    return (after - before) / (last - first) if last > first else None
