"""Redistribution of the state of n workers to m workers."""

from collections.abc import Sequence

from trainers.checkpoint.files import Checkpoint
from trainers.checkpoint.shares import blend, shares
from trainers.checkpoint.state import Snapshot, WorkerState
from trainers.checkpoint.tree import Skeleton

_FRESH: Skeleton = {"list": []}  # the skeleton of the state before the first batch


def redistribute(
    checkpoint: Checkpoint, local_workers: Sequence[int], num_workers: int, step: int
) -> Snapshot:
    """The snapshot for ``local_workers``, of ``num_workers`` = m, to continue at ``step``.

    An interval is divided into n equal parts, one per old worker, and into m equal parts, one per new worker.
    A new worker gets the mean of the old residuals over its part. The mean over workers, and with it the
    update still to be sent, is therefore unchanged. The ledger's sums are divided in the same way. The states
    of the loss between batches are reset, because the workers read other shards.
    """
    before = checkpoint.num_workers
    parts_of = {new: list(shares(new, num_workers, before)) for new in local_workers}
    old = checkpoint.load(sorted({worker for parts in parts_of.values() for worker, _ in parts}))
    workers = {}
    for new, parts in parts_of.items():
        names = [name for name in old.workers[parts[0][0]].tensors if not name.startswith("memory")]
        tensors = {
            name: blend(parts, {worker: old.workers[worker].tensors[name] for worker, _ in parts})
            for name in names
        }
        workers[new] = WorkerState(tensors, _FRESH)
    return old.at_step(step)._replace(workers=workers, redistributed=True)
