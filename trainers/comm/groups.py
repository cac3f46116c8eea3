"""Process groups beside another one."""

import uuid
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d


def gloo_group(parent: dist.ProcessGroup, ranks: Sequence[int]) -> dist.ProcessGroup | None:
    """A gloo group of ``ranks``, with the timeout of ``parent``; None in a process that is not one of them.

    All processes of ``parent`` call it together; groups that one call makes have no process in common. The
    name, by which the processes find each other in the store, is drawn by the first process of ``parent``.
    ``dist.new_group`` would make it from the number of the process's groups, which may differ.
    """
    name = torch.tensor(list(uuid.uuid4().bytes), dtype=torch.uint8)
    dist.broadcast(name, group_src=0, group=parent)
    rank = dist.get_rank()
    if rank not in ranks:
        return None
    group, _ = c10d._new_process_group_helper(
        len(ranks),
        ranks.index(rank),
        list(ranks),
        dist.Backend("gloo"),
        c10d._get_default_store(),
        f"compression {bytes(name.tolist()).hex()} {ranks[0]}",  # type: ignore[arg-type]  # torch 2.9 has no GroupName
        timeout=timeout_of(parent, torch.device("cpu")),
    )
    c10d._world.pg_group_ranks[group] = {rank: place for place, rank in enumerate(ranks)}
    return group


def timeout_of(group: dist.ProcessGroup, device: torch.device) -> timedelta:
    """The timeout of a group's collectives; torch's default if its backend does not tell it."""
    options = getattr(group._get_backend(device), "options", None)
    return getattr(options, "_timeout", dist.default_pg_timeout)


def destroy(group: dist.ProcessGroup) -> None:
    """Destroy ``group``, unless all groups were destroyed."""
    if group in c10d._world.pg_map:
        dist.destroy_process_group(group)
