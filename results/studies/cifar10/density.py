"""The average density of one epoch of a run."""

from results.read.run import Run

DENSITY = "compression/density_mean"  # over all steps so far
NEAR = 0.05  # epochs; largest distance of a record that stands for an epoch's end


def in_epoch(run: Run, number: int) -> float | None:
    """Elements sent over all elements, in the steps of epoch ``number``: 1 is the first, -1 the last.

    It follows from the running averages at the epoch's two ends, so steps without a record are included. None
    if an end has no record within ``NEAR``, for example in a run shorter than one epoch.
    """
    means, epochs = run.curve(DENSITY), run.curve("epoch")
    if means.empty:
        return None
    epochs = epochs.loc[means.index]
    end = float(number) if number > 0 else float(round(epochs.iloc[-1]))
    sent = []  # at both ends: steps so far, and the sum of their densities
    for place in (end - 1, end):
        if place == 0:
            sent.append((0, 0.0))
            continue
        nearest = int((epochs - place).abs().argmin())
        if abs(epochs.iloc[nearest] - place) > NEAR:
            return None
        steps = int(means.index[nearest])
        sent.append((steps, means.iloc[nearest] * steps))
    (first, before), (last, after) = sent
    return (after - before) / (last - first) if last > first else None
