"""Output of a script: metrics to Weights & Biases, TensorBoard or alike; warnings, of one line each."""

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch

from compressors.kernels.choice import reason_without_loops
from trainers.step.ledger import Ledger

LOG = logging.getLogger("total_error")  # if a script sets up no logging, warnings are printed to stderr
INTERVAL = 100  # steps between two looks at what is sent
TOO_MANY = 3.0  # times the density that was asked for


@runtime_checkable
class RunLog(Protocol):
    """A run of Weights & Biases."""

    def log(self, data: dict[str, float], step: int | None = None) -> object: ...


@runtime_checkable
class ScalarLog(Protocol):
    """A SummaryWriter of TensorBoard."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> object: ...


Target = RunLog | ScalarLog | None


def require_target(target: object) -> None:
    """Raise ``ValueError`` for an object that takes no metrics."""
    if target is not None and not isinstance(target, (RunLog, ScalarLog)):
        rule = "a run of Weights & Biases, a SummaryWriter of TensorBoard or None"
        raise ValueError(f"log(target) must be {rule}, got {type(target).__name__}")


def write(target: Target, metrics: Mapping[str, float], step: int) -> None:
    """Write the ``metrics`` of ``step``; without a target, nothing is written."""
    if isinstance(target, ScalarLog):
        for name, value in metrics.items():
            target.add_scalar(name, value, global_step=step)
    elif target is not None:
        # A run of W&B ignores what is logged at a step before its own, to which a script's own logs add
        target.log(dict(metrics), step=max(step, int(getattr(target, "step", step) or 0)))


@lru_cache
def warn_without_loops(device: torch.device) -> None:
    """Say once that compiled loops are missing."""
    reason = reason_without_loops(device)
    if reason:
        LOG.warning(f"total_error: {reason}, so compression has no compiled loops and is 2 to 3 times slower")


def look(ledger: Ledger, density: float | None, *, checks_finite: bool) -> None:
    """Warn of what this worker sends: once if it is far more than ``density``, and if it is not finite."""
    steps = ledger.steps
    if steps % INTERVAL:
        return
    worker = ledger.communicator.local_workers.start
    fault = ledger.fault() if checks_finite else None
    if fault is not None:
        layer = ledger.layout.names[fault[1]]
        LOG.warning(
            f"total_error: step {steps}: what worker {worker} sends of {layer} is not finite; scaler= or "
            "clip_norm= keep such a gradient out of the residual"
        )
    sent = ledger.local_density()
    if steps == INTERVAL and worker == 0 and density is not None and sent > TOO_MANY * density:
        LOG.warning(
            f"total_error: {sent:.2%} of the entries were sent in {steps} steps, {sent / density:.1f} times "
            f"the density {density:g} that was asked for"
        )


class Updates:
    """Warns once if two backward passes are reduced without an update of the weights between them.

    Updates are seen by the parameters' version counters. There is no warning before the first one was seen,
    because an optimizer may bypass the counters.
    """

    def __init__(self) -> None:
        self._step = 0
        self._versions: list[int] = []
        self._was_seen = self._has_warned = False

    def look(self, step: int, parameters: Iterable[torch.Tensor]) -> None:
        """Look at the ``parameters`` after the backward pass that is number ``step`` of the reduced ones."""
        if self._has_warned or step == self._step:  # nothing was reduced: the step was skipped
            return
        versions = [parameter._version for parameter in parameters]
        self._has_warned = self._was_seen and versions == self._versions
        self._was_seen |= self._step > 0 and versions != self._versions
        self._step, self._versions = step, versions
        if self._has_warned:
            LOG.warning(
                f"total_error: no update of the weights between compressed gradients {step - 1} and {step}; "
                "under no_sync() belong all passes but the last of an accumulation, and one whose gradient "
                "is thrown away, which comes back from the residual otherwise"
            )
