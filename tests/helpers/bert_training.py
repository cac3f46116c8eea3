"""Training of a tiny BERT with dropout, as classifier and masked model, in any number of processes."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from glue_files import write_sst2

from compressors.build import build_reducer
from compressors.core.randomness import generator
from compressors.feedback import ErrorFeedback
from compressors.top_k import TopK
from data.text.corpora import Corpus
from data.text.masked import masked_dataset
from data.text.sst2 import sst2
from models.bert import bert
from trainers.comm.communicator import Communicator
from trainers.evaluation import evaluate
from trainers.optimizer import adamw
from trainers.step.explicit import ExplicitStep
from trainers.step.gradients import WorkerGradients
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

WORKERS, BATCH, STEPS = 4, 3, 3
LINES = ["a fine film .", "playfully un", "a dull play and a fine film"] * 40


def train_both(process: int, processes: int, folder: str) -> dict[str, Any]:
    root = Path(folder) / str(process)
    write_sst2(root)
    corpus = Corpus("few", LINES, LINES[:60], LINES[:60])
    datasets = {"classes": sst2(root=str(root)), "masked": masked_dataset(corpus, max_length=12)}
    return {name: train(dataset, process, processes) for name, dataset in datasets.items()}


def train(dataset: Any, process: int, processes: int) -> dict[str, Any]:
    """Weights, losses and quality after some steps."""
    torch.manual_seed(0)
    model = bert(**dataset.model_arguments(), positions=64, dropout=0.2).train()
    layout = Layout(dict(model.named_parameters()), "layer")
    communicator = Communicator(WORKERS, rank=process, world_size=processes)
    reducer = build_reducer(TopK(density=0.05), layout.num_parameters, ErrorFeedback)
    ledger = Ledger(layout, communicator, reducer)
    gradients = WorkerGradients(model, dataset.task.loss, layout, communicator, seed=7)
    step = ExplicitStep(gradients, reducer, layout, communicator, ledger, seed=7)
    optimizer = adamw(model, lr=1e-3, no_decay=["bias", "layer_norm"])
    loader = dataset.loader(WORKERS, communicator.local_workers, BATCH, partial(generator, 7))
    losses = []
    for number in range(STEPS):
        loss = step.run(loader.batches(number), number, learning_rate=1e-3, measure=True).losses
        optimizer.step()
        losses += communicator.collect(loss.double()).tolist()
    return {
        "parameters": torch.cat([p.detach().flatten() for p in model.parameters()]),
        "losses": losses,
        "quality": evaluate(model, dataset, communicator, 2),
        "total_error": ledger.metrics()["compression/total_error"],
    }
