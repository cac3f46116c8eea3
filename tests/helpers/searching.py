"""Small searches for a learning rate with AutoLRS.

    PYTHONPATH=. python tests/helpers/searching.py

This command prints the table of quadratics in docs/papers/autolrs.md: the found rate over the best constant
rate.
"""

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from skipping import Records
from torch import Tensor, nn

from compressors.build import build_reducer
from compressors.none import NoCompression
from trainers.comm.communicator import Communicator
from trainers.loop import run
from trainers.schedules.autolrs import AutoLRS
from trainers.settings import TrainerSettings
from trainers.step.layout import Layout
from trainers.training import Training


def best_rate(curvature: Tensor, steps: int) -> float:
    """The constant rate with the least f after ``steps`` steps of gradient descent from (1, ..., 1)."""
    curvature = curvature.double()

    def loss(rate: float) -> float:
        return (curvature * (1 - rate * curvature) ** (2 * steps)).sum().item()

    return min(torch.logspace(-3, 1, 4000).tolist(), key=loss)


class Nothing(NamedTuple):
    """The batch of a problem without data."""

    unused: Tensor = torch.zeros(1)


class Quadratic(nn.Module):
    """f(x) = sum of h_i x_i^2 / 2."""

    def __init__(self, curvature: Tensor) -> None:
        super().__init__()
        self.curvature = curvature
        self.x = nn.Parameter(torch.ones_like(curvature))

    def forward(self) -> Tensor:
        return (self.curvature * self.x**2).sum() / 2


def settings(**changes: Any) -> AutoLRS:
    given: dict[str, Any] = {"low": 1e-3, "high": 10.0, "tau": 100, "tau_max": 800, "trial_steps": 10}
    given |= {"trials": 10, "validation_from": 800, "exploration": 1.0}
    return AutoLRS(**given | changes)


def find_rate(curvature: Tensor, steps: int) -> tuple[float, dict[str, Any]]:
    """The rate that AutoLRS finds for a quadratic's first stage of ``steps`` steps, and the summary."""
    model, communicator = Quadratic(curvature), Communicator(2)
    layout = Layout(dict(model.named_parameters()), "layer")
    task = SimpleNamespace(loss=lambda model, batch, memory: (model(), None))
    loader = SimpleNamespace(epochs_per_step=0.1, batches=lambda step: [Nothing(), Nothing()])
    trainer = Training(
        model=model,
        dataset=SimpleNamespace(task=task, held_out={}),
        reducer=build_reducer(NoCompression(), layout.num_parameters),
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        schedule=settings(tau=steps, tau_max=steps, trial_steps=steps // 10),
        layout=layout,
        communicator=communicator,
        loader=loader,
        settings=TrainerSettings(
            epochs=None,
            steps=2 * steps,
            batch_size=1,
            log_every=1,
            evaluate_every=1.0,
            evaluation_batch_size=1,
            clip_norm=None,
        ),
        seed=0,
    )
    records = Records()
    summary = run(trainer, records)
    found = next(record["autolrs/rate"] for record in records if "autolrs/rate" in record)
    return found, summary


def print_quadratics() -> None:
    """Print a row per condition number and a column per tau; takes minutes."""
    for condition in (3, 10, 30, 100):
        curvature = torch.logspace(0, math.log10(condition), 20, dtype=torch.float64)
        shares = [find_rate(curvature, tau)[0] / best_rate(curvature, tau) for tau in (50, 100, 200)]
        print(f"| {condition} | {' | '.join(f'{share:.2f}' for share in shares)} |", flush=True)


if __name__ == "__main__":
    print_quadratics()
