"""One of everything that a communicator offers, said by 4 workers in any number of processes."""

import torch
from torch import Tensor

from trainers.communicator import Communicator

WORKERS = 4
LENGTHS = [3, 0, 5, 1]


def talk(process: int, processes: int) -> dict[str, Tensor | list]:
    """What this process heard."""
    communicator = Communicator(WORKERS, process=process, processes=processes)
    ranks = communicator.ranks
    heard: dict[str, Tensor | list] = {}
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        local = sum(torch.arange(6, dtype=dtype) * (worker + 1) for worker in ranks)
        heard[f"mean {dtype}"] = torch.cat(communicator.mean([local[:2].clone(), local[2:].clone()]))
        rows = [torch.full((LENGTHS[worker],), worker + 0.5, dtype=dtype) for worker in ranks]
        heard[f"ragged {dtype}"] = torch.cat(communicator.gather_ragged(rows, LENGTHS, "values"))
    nothing = communicator.gather_ragged(
        [torch.zeros(0, dtype=torch.int32) for _ in ranks], [0] * 4, "indices"
    )
    assert [len(row) for row in nothing] == [0] * WORKERS
    counts = torch.tensor([[worker, 10 * worker] for worker in ranks], dtype=torch.int32)
    heard["gather"] = communicator.gather(counts, "metadata")
    heard["collect"] = communicator.collect(counts.double())
    heard["largest"] = torch.tensor(communicator.largest(7 if process == 0 else 3))
    heard["sum"] = communicator.sum(torch.tensor([1.0 / processes]))
    told = torch.tensor([1.0 if process == 0 else 2.0])
    communicator.broadcast([told])
    heard["broadcast"] = told
    with communicator.first_process_first():
        pass
    charges = communicator.take_charges()
    bytes_per_element = 4 + 8 + 2 + 2
    assert charges[:, 0].tolist() == [bytes_per_element * (6 + LENGTHS[worker]) for worker in ranks]
    heard["charges"] = charges[:, 1:].tolist()
    return heard
