"""Redistribution of the state of n workers to m workers."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import torch

from trainers.checkpoint.files import Checkpoint
from trainers.checkpoint.state import Snapshot, WorkerState
from trainers.checkpoint.tree import Skeleton

_FRESH: Skeleton = {"list": []}  # the skeleton of the state before the first batch


def redistribute(checkpoint: Checkpoint, ranks: Sequence[int], num_workers: int, step: int) -> Snapshot:
    """The snapshot for the workers in ``ranks``, of ``num_workers`` = m, to continue at ``step``.

    The n old workers are equal parts of a line, and the m new workers are equal parts of the same line. A new
    worker gets the mean of the old residuals over its part. The mean over workers, and with it the update
    still to be sent, is therefore unchanged. The ledger's sums are divided in the same way. Hidden states are
    reset, because the workers read other shards.
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
            ):  # a step: the earliest of the old workers
                rows = torch.stack([old.workers[worker].tensors[name] for worker, _ in parts])
                tensors[name] = rows.amin(0)
                continue
            total = sum(old.workers[worker].tensors[name].double() * float(share) for worker, share in parts)
            tensors[name] = torch.as_tensor(total).to(old.workers[parts[0][0]].tensors[name].dtype)
        workers[new] = WorkerState(tensors, _FRESH)
    moved = old.facts["moved"] + step - old.facts["step"]
    return Snapshot(old.shared, workers, old.facts | {"step": step, "moved": moved}, old.place, True)


def _shares(new: int, num_new: int, num_old: int) -> Iterator[tuple[int, Fraction]]:
    """Pairs of an old worker and the fraction that it covers of the new worker's part; they sum to 1."""
    start, stop = Fraction(new, num_new), Fraction(new + 1, num_new)
    for worker in range(num_old):
        overlap = min(stop, Fraction(worker + 1, num_old)) - max(start, Fraction(worker, num_old))
        if overlap > 0:
            yield worker, overlap * num_new
