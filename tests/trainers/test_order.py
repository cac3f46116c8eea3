"""The order of a step: clipping, feedback, compression, mean over workers, decay, momentum, running average.

Another order would change the numbers of each test.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from skipping import Records
from torch import Tensor, nn

from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.none import NoCompression
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.loop import run
from trainers.schedules.schedules import ConstantRate
from trainers.settings import TrainerSettings
from trainers.step.layout import Layout
from trainers.training import Training


class Gradients(NamedTuple):
    """A batch that contains its gradient."""

    wanted: Tensor  # [1, 2]


class Task:
    """A loss whose gradient is the batch's; the metrics on held-out data are the weights."""

    num_sums = 2
    higher_is_better = frozenset()

    def loss(self, model: nn.Module, batch: Gradients, memory: None) -> tuple[Tensor, None]:
        return (model.weight * batch.wanted[0]).sum(), None

    def measure(self, model: nn.Module, batch: Tensor) -> Tensor:
        return model.weight.detach().double()

    def summarise(self, sums: Tensor) -> dict[str, float]:
        return {"first": sums[0].item(), "second": sums[1].item()}


class Wanted:
    """Dataset and loader of one worker, with a given gradient for each step; an epoch has one step."""

    task = Task()
    held_out = {"test": [0]}  # noqa: RUF012
    epochs_per_step = 1.0

    def __init__(self, gradients: list[list[float]]) -> None:
        self.gradients = gradients

    def batches(self, step: int) -> list[Gradients]:
        return [Gradients(torch.tensor([self.gradients[step]]))]

    def held_out_batch(self, split: str, indices: Tensor) -> Tensor:
        return indices


class Weights(nn.Module):
    """Two weights that start at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))


def train(
    gradients: list[list[float]],
    method: Any,
    *,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    feedback: bool = True,
    average: float | None = None,
    clip_norm: float | None = None,
    **options: float,
) -> Records:
    """The records of a training with learning rate 1/2."""
    model, data, communicator = Weights(), Wanted(gradients), Communicator(1)
    layout = Layout(dict(model.named_parameters()), "layer")
    settings = TrainerSettings(
        epochs=None,
        steps=len(gradients),
        batch_size=1,
        log_every=1,
        evaluate_every=1,
        evaluation_batch_size=1,
        clip_norm=clip_norm,
        average_reset_epochs=average,
    )
    wrap = [ErrorFeedback] if feedback else []
    records = Records()
    training = Training(
        model=model,
        dataset=data,
        reducer=build_reducer(method, 2, *wrap),
        optimizer=optimizer(model.parameters(), lr=0.5, **options),
        schedule=ConstantRate(),
        layout=layout,
        communicator=communicator,
        loader=data,
        settings=settings,
        seed=0,
    )
    run(training, records)
    return records


def weights(records: Records, prefix: str = "test") -> list[tuple[float, float]]:
    return [(r[f"{prefix}/first"], r[f"{prefix}/second"]) for r in records if f"{prefix}/first" in r]


TOP_1 = TopK(density=0.5)


def test_clipping_comes_before_feedback() -> None:
    """The last gradient and residual are (3, 0) each, so 6 is sent; clipping p would give 5."""
    found = weights(train([[3.0, 4.0], [0.0, 4.0], [3.0, 0.0]], TOP_1, clip_norm=5.0))
    assert found == [pytest.approx(expected, abs=1e-5) for expected in ((1, -1), (1, -3), (-2, -3))]


def test_clipping_comes_before_compression() -> None:
    """Clipped first, (3, 4) becomes (1.5, 2); clipped after compression, the larger entry would be 2.5."""
    assert weights(train([[3.0, 4.0]], TOP_1, clip_norm=2.5)) == [pytest.approx((1, 0), abs=1e-5)]


def test_weight_decay_comes_after_compression() -> None:
    """The weight whose gradient is not sent decays too, and the residual contains no decay."""
    records = train([[3.0, 4.0]], TOP_1, weight_decay=0.2)
    assert weights(records) == [pytest.approx((1 - 0.5 * 0.2, 1 - 0.5 * (4 + 0.2)))]
    assert records[0]["compression/error"] == 9.0


def test_momentum_comes_after_compression() -> None:
    """The second update contains the first step's momentum, but the compressor's input does not."""
    records = train([[3.0, 4.0], [0.0, 0.0]], TOP_1, momentum=0.9)
    first = (1.0, 1 - 0.5 * 4)
    second = (first[0] - 0.5 * 3, first[1] - 0.5 * 0.9 * 4)
    assert weights(records) == [pytest.approx(first), pytest.approx(second)]
    errors = [r["compression/error"] for r in records if "compression/error" in r]
    assert errors == [9.0, 0.0]


def test_running_average_takes_the_weights_after_the_update_and_begins_anew() -> None:
    gradients = [[2.0, 0.0]] * 5
    records = train(gradients, NoCompression(), feedback=False, average=2)
    assert [first for first, _ in weights(records)] == [0, -1, -2, -3, -4]
    averaged = [first for first, _ in weights(records, "average/test")]
    assert averaged == pytest.approx([0, -0.5, -2, -2.5, -4])
