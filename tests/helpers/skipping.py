"""Trainings in which one worker's images contain a NaN in some steps."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from training import WORKERS, Images, SmallNet, batch_of, loss_of

from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.none import NoCompression
from compressors.top_k import TopK
from trainers.checkpoint.state import Snapshot, TrainingState
from trainers.comm.communicator import Communicator
from trainers.loop import run
from trainers.schedules.schedules import ConstantRate
from trainers.settings import TrainerSettings
from trainers.step.gradients import NonFiniteGradientError
from trainers.step.layout import Layout
from trainers.training import Training

BAD_STEPS = {3: 2, 4: 0, 7: 3}  # step, counted from 1: worker whose batch has a NaN
STEPS = 8


class Loader:
    """Batches of the local workers, some with NaN."""

    epochs_per_step = 0.25

    def __init__(self, local_workers: range, bad_steps: dict[int, int]) -> None:
        self.local_workers = local_workers
        self.bad_steps = bad_steps

    def batches(self, step: int) -> list[Images]:
        batches = [batch_of(step, worker) for worker in self.local_workers]
        for worker, batch in zip(self.local_workers, batches, strict=True):
            if self.bad_steps.get(step + 1) == worker:
                batch.images[0, 0, 1, 1] = float("nan")
        return batches


class Snapshots(dict[int, Snapshot]):
    """The state after every step, in memory; replaces checkpoints."""

    def __init__(self, start: Snapshot | None = None) -> None:
        super().__init__()
        self.start = start

    def after_step(self, state: TrainingState) -> None:
        self[state.step] = state.capture()

    at_end = after_step


class Records(list[dict[str, float]]):
    log = list.append


def trainer(
    communicator: Communicator,
    *,
    nonfinite: str = "skip",
    bad_steps: dict[int, int] = BAD_STEPS,
    dense: bool = False,
    steps: int = STEPS,
) -> Training:
    torch.manual_seed(0)
    model = SmallNet()
    layout = Layout(dict(model.named_parameters()), "layer")
    return Training(
        model=model,
        dataset=SimpleNamespace(task=SimpleNamespace(loss=loss_of), held_out=()),
        reducer=build_reducer(
            NoCompression() if dense else TopK(density=0.1), layout.num_parameters, ErrorFeedback
        ),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        schedule=ConstantRate(),
        layout=layout,
        communicator=communicator,
        loader=Loader(communicator.local_workers, bad_steps),
        settings=TrainerSettings(
            epochs=None,
            steps=steps,
            batch_size=8,
            log_every=2,
            evaluate_every=1,
            evaluation_batch_size=8,
            clip_norm=None,
            nonfinite=nonfinite,
        ),
        seed=7,
    )


def tensors_of(snapshot: Snapshot) -> dict[str, Tensor]:
    """All tensors of a snapshot by name."""
    workers = {
        f"{worker}/{name}": tensor
        for worker, state in snapshot.workers.items()
        for name, tensor in state.tensors.items()
    }
    return snapshot.shared | workers


def without_clock(records: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in record.items() if not k.startswith("time/")} for record in records]


def train(process: int, processes: int) -> dict[str, Any]:
    """Records, and this process's part of the state after every step."""
    records, snapshots = Records(), Snapshots()
    run(trainer(Communicator(WORKERS, rank=process, world_size=processes)), records, snapshots)
    return {
        "records": without_clock(records),
        "states": {step: tensors_of(snapshot) for step, snapshot in snapshots.items()},
    }


def train_in_two(process: int, processes: int, step: int) -> dict[str, Any]:
    """Records and last state of a training that a second trainer resumes from the state after ``step``."""
    communicator = Communicator(WORKERS, rank=process, world_size=processes)
    records, snapshots = Records(), Snapshots()
    run(trainer(communicator), records, snapshots)
    rest, end = Records(), Snapshots(snapshots[step])
    summary = run(trainer(communicator), rest, end)
    before = [record for record in without_clock(records) if record["step"] <= step]
    return {
        "records": before + without_clock(rest),
        "end": tensors_of(end[STEPS]),
        "skipped": summary["train/steps_skipped"],
    }


def stop(process: int, processes: int, dense: bool) -> dict[str, Any]:
    """The error of a training that stops at the first NaN, and its weights after and before that step."""
    communicator, snapshots = Communicator(WORKERS, rank=process, world_size=processes), Snapshots()
    training = trainer(communicator, nonfinite="stop", dense=dense)
    try:
        run(training, Records(), snapshots)
    except NonFiniteGradientError as error:
        weights = {name: p.detach().clone() for name, p in training.model.named_parameters()}
        return {"said": str(error), "weights": weights, "before": snapshots[max(snapshots)].shared}
    raise AssertionError("it went on")
