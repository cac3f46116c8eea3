"""Quality on held-out data, every sample once, the same for every number of processes."""

from typing import Any

import torch
from torch import nn

from trainers.communicator import Communicator


@torch.no_grad()
def evaluate(model: nn.Module, dataset: Any, communicator: Communicator, batch_size: int) -> dict[str, float]:
    """Metrics of ``model`` on the dataset's test split, named ``test/...``.

    Batches are dealt out to the processes; their sums are added in the order of the batches. The
    processes take over the first one's buffers before.
    """
    communicator.broadcast(list(model.buffers()))
    was_training = model.training
    model.eval()
    chunks = torch.arange(len(dataset.test)).split(batch_size)
    sums = torch.zeros(len(chunks), dataset.task.num_sums, dtype=torch.float64)
    for position in range(communicator.process, len(chunks), communicator.processes):
        batch = dataset.test_batch(chunks[position])
        sums[position] = dataset.task.measure(model, batch).cpu()
    model.train(was_training)
    return dataset.task.summarise(communicator.sum(sums).cpu().sum(0))
