"""Short trainings of NeuMF and BERT and with AutoLRS, in any number of processes."""

from typing import Any

import torch
from configs import resolved
from skipping import Records, without_clock

from trainers.comm.communicator import Communicator
from trainers.loop import run
from trainers.run.build import build_training

NEUMF = (
    *("data.users=60", "data.items=200", "data.fewest=5", "data.most=20", "model.hidden=[8,8,4]"),
    *("trainer.steps=12", "trainer.batch_size=128", "trainer.evaluate_every=1"),
)
BERT = (
    *("model.dropout=0.2", "data.max_length=12", "trainer.steps=3", "trainer.batch_size=3"),
    *("trainer.evaluate_every=100", "trainer.evaluation_batch_size=256"),
)
AUTOLRS = (
    *("model=mlp", "data=digits", "compressor=top_k", "workers=4", "trainer.batch_size=8"),
    *("schedule=autolrs", "schedule.tau=10", "schedule.tau_max=20", "schedule.trial_steps=5"),
    *("schedule.trials=3", "trainer.steps=70", "trainer.evaluate_every=0.4"),
)
CASES = {
    "neumf, none": ("experiment=small/neumf", "compressor=none", *NEUMF),
    "neumf, top_k": ("experiment=small/neumf", "compressor=top_k", *NEUMF),
    "neumf, hard_threshold": ("experiment=small/neumf", "compressor=hard_threshold", *NEUMF),
    "bert, top_k": ("experiment=small/bert_masked", "compressor=top_k", *BERT),
    "autolrs, top_k": AUTOLRS,
}


def train_models(process: int = 0, processes: int = 1) -> dict[str, Any]:
    """Weights and records of every case. NeuMF is trained over two epochs and two evaluations."""
    found = {}
    for name, settings in CASES.items():
        config = resolved("trainer.log_every=1", *settings)
        communicator = Communicator(config["workers"], rank=process, world_size=processes)
        trainer = build_training(config, communicator, torch.device("cpu"))
        records = Records()
        run(trainer, records)
        weights = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        found[name] = {"weights": weights, "records": without_clock(records)}
    return found
