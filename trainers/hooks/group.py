"""The hook's own process group and thread on a CPU: one pair for all models of the same processes."""

import uuid
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


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
            lane = Lane(_new_group(parent, ranks), ThreadPoolExecutor(1, "compression"))
        except RuntimeError as error:
            whose = ", ".join(map(str, ranks))
            reason = str(error).splitlines()[0].rpartition("] ")[2]  # without gloo's source file
            raise RuntimeError(
                f"compress must be called by all processes of the model, ranks {whose}: {reason}"
            ) from error
        _lanes[parent] = lane
        weakref.finalize(parent, _end, lane).atexit = False
    return _lanes[parent]


def _new_group(parent: dist.ProcessGroup, ranks: list[int]) -> dist.ProcessGroup:
    """A gloo group of ``ranks``, the processes of ``parent``.

    Its name, by which the processes find each other in the store, is drawn by the first one.
    ``dist.new_group`` would make it from the number of the process's groups, which may differ.
    """
    name = torch.tensor(list(uuid.uuid4().bytes), dtype=torch.uint8)
    dist.broadcast(name, group_src=0, group=parent)
    group, _ = c10d._new_process_group_helper(
        len(ranks),
        dist.get_rank(parent),
        ranks,
        dist.Backend("gloo"),
        c10d._get_default_store(),
        f"compression {bytes(name.tolist()).hex()}",  # type: ignore[arg-type]  # torch 2.9 has no GroupName
        timeout=_timeout_of(parent),
    )
    c10d._world.pg_group_ranks[group] = {rank: place for place, rank in enumerate(ranks)}
    return group


def _timeout_of(group: dist.ProcessGroup) -> timedelta:
    """The timeout of a group's collectives; torch's default if its backend does not tell it."""
    options = getattr(group._get_backend(torch.device("cpu")), "options", None)
    return getattr(options, "_timeout", dist.default_pg_timeout)


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
    if lane.group in c10d._world.pg_map:  # otherwise all groups were destroyed
        dist.destroy_process_group(lane.group)
