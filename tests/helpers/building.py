"""Trainings of configs without a run folder, in any number of processes, and their results."""

from typing import Any

import torch

from trainers.comm.communicator import Communicator
from trainers.loop import run
from trainers.run.build import build_training
from trainers.training import Training


class Records(list):
    """A tracker that keeps all records without times."""

    def log(self, record: dict[str, float]) -> None:
        self.append({name: value for name, value in record.items() if not name.startswith("time/")})


def built(config: dict[str, Any], process: int = 0, processes: int = 1) -> Training:
    communicator = Communicator(config["workers"], rank=process, world_size=processes)
    return build_training(config, communicator, torch.device("cpu"))


def results(training: Training) -> dict[str, Any]:
    """The weights [D] after the training, its records and its summary."""
    records = Records()
    summary = run(training, records)
    weights = torch.cat([p.detach().flatten() for p in training.model.parameters()])
    return {"weights": weights, "records": list(records), "summary": summary}
