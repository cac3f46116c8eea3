"""Output of a script's metrics to Weights & Biases, TensorBoard or any object with their methods."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


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
        target.log(dict(metrics), step=step)
