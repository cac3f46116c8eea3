"""Going on with another number of workers: what n workers remember, dealt out to m of them."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import torch

from trainers.checkpoint.files import Checkpoint
from trainers.checkpoint.state import Snapshot, WorkerState
from trainers.checkpoint.tree import Skeleton

_FRESH: Skeleton = {"list": []}  # the skeleton of what is carried before the first batch


def redistribute(checkpoint: Checkpoint, ranks: Sequence[int], num_workers: int, step: int) -> Snapshot:
    """The snapshot for the workers in ``ranks``, of ``num_workers`` = m, that goes on at ``step``.

    Think of the n old workers as equal parts of a line, and of the m new ones as equal parts of the
    same line. A new worker gets the mean of the old residuals over its part; so the mean over the m
    workers is what the mean over the n was, and with it what the residuals still owe to the weights.
    The ledger's sums go the same way. Hidden states begin afresh, as the workers read other shards.
    """
    before = checkpoint.num_workers
    shares = {new: list(_shares(new, num_workers, before)) for new in ranks}
    old = checkpoint.load(sorted({worker for parts in shares.values() for worker, _ in parts}))
    workers = {}
    for new, parts in shares.items():
        names = [name for name in old.workers[parts[0][0]].tensors if not name.startswith("memory")]
        tensors = {}
        for name in names:
            if (
                not old.workers[parts[0][0]].tensors[name].is_floating_point()
            ):  # a step: since when, at the earliest
                rows = torch.stack([old.workers[worker].tensors[name] for worker, _ in parts])
                tensors[name] = rows.amin(0)
                continue
            total = sum(old.workers[worker].tensors[name].double() * float(share) for worker, share in parts)
            tensors[name] = torch.as_tensor(total).to(old.workers[parts[0][0]].tensors[name].dtype)
        workers[new] = WorkerState(tensors, _FRESH)
    moved = old.facts["moved"] + step - old.facts["step"]
    return Snapshot(old.shared, workers, old.facts | {"step": step, "moved": moved}, old.place, True)


def _shares(new: int, num_new: int, num_old: int) -> Iterator[tuple[int, Fraction]]:
    """(old worker, which share of the new worker's part of the line it covers), the shares summing to 1."""
    start, stop = Fraction(new, num_new), Fraction(new + 1, num_new)
    for worker in range(num_old):
        overlap = min(stop, Fraction(worker + 1, num_old)) - max(start, Fraction(worker, num_old))
        if overlap > 0:
            yield worker, overlap * num_new
