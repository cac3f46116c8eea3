"""The last session of a run: after an interruption, or after the checkpoint of another run."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from results.read.run import Run
from trainers.identity.identity import names_checkpoint

SKIPPED = "train/steps_skipped"


class LastSession:
    """What a run recorded in its last session, with the workers and processes of its config."""

    def __init__(self, run: Run) -> None:
        self.path = run.path
        self.resumed_at = int(run.environment.get("resumed_at_step", 0))
        self.run = replace(run, records=_records(run)) if self.resumed_at else run

    def median(self, metric: str) -> float:
        """The median of a metric. Raises ``ValueError`` if the session did not record it."""
        curve = self.run.curve(metric)
        if curve.empty:
            raise ValueError(f"{self.path}: its last session recorded no {metric}")
        return float(curve.median())

    def per_step(self, *metrics: str) -> float:
        """Mean increase, by step, of a product of metrics that is a sum over steps; without skipped steps.

        For a run that began at the checkpoint of another run it is counted from the last session's first
        record, because the sum contains steps of the other run. Raises ``ValueError`` if there is no later
        step.
        """
        total, steps = _reached(metrics, self.run.summary)
        if self.resumed_at and names_checkpoint(self.run.config):
            needed = ["step", *metrics, *({SKIPPED} & self.run.summary.keys())]
            rows = self.run.records.reindex(columns=needed).dropna()
            before = [_reached(metrics, row) for _, row in rows[:1].iterrows()] or [(total, steps)]
            total, steps = total - before[0][0], steps - before[0][1]
        if steps <= 0:
            raise ValueError(f"{self.path}: its last session has too few records to count bytes per step")
        return float(total / steps)


def _reached(metrics: Sequence[str], values: Mapping[Any, Any] | pd.Series) -> tuple[float, float]:
    """The product of ``metrics``, and the number of steps that were not skipped."""
    return math.prod(values[name] for name in metrics), values["step"] - values.get(SKIPPED, 0)


def _records(run: Run) -> pd.DataFrame:
    """The records after ``resumed_at_step``.

    A run that began at the checkpoint of a run with other steps per epoch has copies of that run's records.
    Their ratio of step and epoch is another one. Its own step numbers may be below that of the checkpoint.
    """
    records, steps, epochs = run.records, run.summary["step"], run.summary["epoch"]
    copied = ~np.isclose(records["step"] * epochs, records["epoch"] * steps, rtol=1e-9, atol=0)
    own = records[np.flatnonzero(copied)[-1] + 1 :] if copied.any() else records
    later = own[own["step"] > run.environment["resumed_at_step"]]
    return own if later.empty and copied.any() else later
