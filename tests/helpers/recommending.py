"""Short trainings of NeuMF with several compressors, in any number of processes."""

from typing import Any

import torch
from configs import resolved

from trainers.comm.communicator import Communicator
from trainers.loop import run
from trainers.run.build import build_training

SMALL = ("data.users=60", "data.items=200", "data.fewest=5", "data.most=20", "model.hidden=[8,8,4]")
LENGTH = ("trainer.steps=12", "trainer.batch_size=128", "trainer.evaluate_every=1", "trainer.log_every=1")


class Records(list):
    """A tracker that keeps all records without times."""

    def log(self, record: dict[str, float]) -> None:
        self.append({name: value for name, value in record.items() if not name.startswith("time/")})


def train_neumf(process: int = 0, processes: int = 1) -> dict[str, Any]:
    """Weights and records of a training with each compressor, over two epochs and two evaluations."""
    found = {}
    for compressor in ("none", "top_k", "hard_threshold"):
        config = resolved("experiment=small/neumf", f"compressor={compressor}", *SMALL, *LENGTH)
        communicator = Communicator(config["workers"], rank=process, world_size=processes)
        trainer = build_training(config, communicator, torch.device("cpu"))
        records = Records()
        run(trainer, records)
        weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        found[compressor] = {"weights": weights, "records": list(records)}
    return found
