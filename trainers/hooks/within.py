"""Nodes of a script's processes: those of a machine, or of a process group."""

import os

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from trainers.comm.communicator import Communicator
from trainers.comm.nodes import Teams
from trainers.hooks.script_log import LOG

NODE = "node"
Within = str | dist.ProcessGroup | None


def require_within(within: object) -> None:
    """Raise ``ValueError`` unless ``within`` is "node", a process group, or None."""
    if within is not None and within != NODE and not isinstance(within, dist.ProcessGroup):
        rule = "'node', the process group of a node's processes, or None"
        raise ValueError(f"within must be {rule}, got {within!r}")
    if within == NODE and not {"LOCAL_RANK", "LOCAL_WORLD_SIZE"} <= os.environ.keys():
        raise ValueError(
            "within='node' needs LOCAL_RANK and LOCAL_WORLD_SIZE, which torchrun sets: pass the process "
            "group of a node's processes instead"
        )


def teams_of(within: str | dist.ProcessGroup, workers: Communicator) -> Teams:
    """The processes of each node, by their rank in ``workers``; all processes call it together.

    Raises ``ValueError``, in all processes, unless the nodes have equally many processes, all of the model.
    """
    if isinstance(within, dist.ProcessGroup):
        members = dist.get_process_group_ranks(within)
    else:
        first = dist.get_rank() - int(os.environ["LOCAL_RANK"])
        members = list(range(first, first + int(os.environ["LOCAL_WORLD_SIZE"])))
    of_model = dist.get_process_group_ranks(workers.group or c10d._get_default_group())
    own = [place for place, rank in enumerate(of_model) if rank in members]
    claims = workers.collect(torch.tensor([[own[0], len(own) if within == NODE else len(members)]])).tolist()
    teams: dict[int, list[int]] = {}
    for place, (first, _) in enumerate(claims):
        teams.setdefault(first, []).append(place)
    sizes = {len(team) for team in teams.values()}
    if len(sizes) > 1 or {size for _, size in claims} != sizes:
        found = ", ".join(map(str, sorted({size for _, size in claims} | sizes)))
        raise ValueError(
            f"within must divide the processes of the model into nodes of equal size, got {found} processes"
        )
    if len(teams) == 1 and workers.rank == 0:
        LOG.warning(
            "total_error: all processes are in one node, so nothing is sent between nodes, and compression "
            "only changes the result"
        )
    return tuple(tuple(teams[first]) for first in sorted(teams))
