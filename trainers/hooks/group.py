"""The hook's own process group and thread on a CPU: one pair for all models of the same processes."""

import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from trainers.comm.groups import destroy, gloo_group


class Lane(NamedTuple):
    """A thread, and the process group that only this thread uses during a backward pass.

    Collectives of the thread must not mix with those of DDP and of the script. The thread and the group are
    shared, because a group has 5 file descriptors and 3 threads: models of the same processes reduce in the
    order of their backward passes, as DDP itself does in the processes' group.
    """

    group: dist.ProcessGroup
    thread: ThreadPoolExecutor


_lanes: weakref.WeakKeyDictionary[dist.ProcessGroup, Lane] = weakref.WeakKeyDictionary()


def lane_beside(parent: dist.ProcessGroup | None) -> Lane:
    """The lane of the processes of ``parent``, by default all; they make the first call together.

    It ends with ``parent``. Raises ``RuntimeError``, one line, if not all processes come before the timeout
    of ``parent``.
    """
    parent = parent or c10d._get_default_group()
    if parent not in _lanes:
        ranks = dist.get_process_group_ranks(parent)
        try:
            group = gloo_group(parent, ranks)
        except RuntimeError as error:
            whose = ", ".join(map(str, ranks))
            reason = str(error).splitlines()[0].rpartition("] ")[2]  # without gloo's source file
            raise RuntimeError(
                f"compress must be called by all processes of the model, ranks {whose}: {reason}"
            ) from error
        assert group is not None  # this process is in it
        lane = _lanes[parent] = Lane(group, ThreadPoolExecutor(1, "compression"))
        weakref.finalize(parent, _end, lane).atexit = False
    return _lanes[parent]


@contextmanager
def together(what: str) -> Iterator[None]:
    """Context manager: adds to an error, such as of a wait for a process, that all take part in ``what``."""
    try:
        yield
    except RuntimeError as error:
        error.add_note(f"in {what}, in which all processes of the model take part")
        raise


def _end(lane: Lane) -> None:
    lane.thread.shutdown(wait=False)
    destroy(lane.group)
