"""Evaluation on held-out data: every sample once, with a result that does not depend on the processes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from data.protocols import Dataset, task_of
from trainers.comm.communicator import Communicator
from trainers.step.forward import autocast
from trainers.step.reading import read_together


@torch.no_grad()
def evaluate(
    model: nn.Module, dataset: Dataset, communicator: Communicator, batch_size: int, precision: str = "fp32"
) -> dict[str, float]:
    """Metrics of ``model`` on all held-out splits of the dataset, named ``split/metric``.

    Batches are divided among the processes, and their sums are added in batch order. First, all processes
    copy the buffers of the first process. Raises ``UnreadableDataError`` if a batch cannot be read.
    """
    communicator.broadcast(list(model.buffers()))
    was_training = model.training
    model.eval()
    task = task_of(dataset)
    metrics: dict[str, float] = {}
    for split, samples in dataset.held_out.items():
        chunks = torch.arange(len(samples)).split(batch_size)
        sums = torch.zeros(len(chunks), task.num_sums, dtype=torch.float64)

        def measure(split: str = split, chunks: Sequence[Tensor] = chunks, sums: Tensor = sums) -> None:
            for position in range(communicator.rank, len(chunks), communicator.world_size):
                batch = dataset.held_out_batch(split, chunks[position])
                with autocast(communicator.device, precision):
                    sums[position] = task.measure(model, batch).cpu()

        read_together(communicator, dataset, measure)
        found = task.summarise(communicator.sum(sums).cpu().sum(0))
        metrics |= {f"{split}/{name}": value for name, value in found.items()}
    model.train(was_training)
    return metrics
