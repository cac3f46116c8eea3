"""Nodes: workers on fast links, with a dense mean inside a node and compression across the nodes."""

import weakref
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from compressors.core.segments import Segment
from trainers.comm.communicator import Communicator
from trainers.comm.groups import destroy, gloo_group, timeout_of
from trainers.comm.links import all_reduce_bytes
from trainers.settings import require_nodes

Teams = tuple[tuple[int, ...], ...]  # the ranks of each node's processes
Groups = tuple[dist.ProcessGroup | None, dist.ProcessGroup | None]  # of the own node, and of first processes

_groups: weakref.WeakKeyDictionary[dist.ProcessGroup, dict[Teams, Groups]] = weakref.WeakKeyDictionary()


@dataclass(eq=False)
class Nodes:
    """N nodes of M = n / N workers each. To a reducer, which gets ``across``, a node is a worker.

    ``inside`` has the M workers of a node. A node's processes all hold its state and do its compression; the
    first one sends and receives for it (``Communicator``).
    """

    inside: Communicator
    across: Communicator
    firsts: tuple[int, ...]  # the processes that send

    def __post_init__(self) -> None:
        self._of_means = 0.0  # bytes that left a worker for the means inside its node, since they were taken

    def first(self, segments: list[Segment]) -> list[Segment]:
        """Segments with the rows of as many workers as there are nodes here, for ``Reducer.init``."""
        return [own._replace(rows=own.rows[: len(self.across.local_workers)]) for own in segments]

    def means(self, segments: list[Segment]) -> list[Segment]:
        """The means over the workers of each node here, [nodes, d], of local rows [W, d], which are consumed.

        The order of additions is that of ``Communicator.all_reduce_mean``.
        """
        num_bytes = sum(own.rows.nbytes // len(own.rows) for own in segments)
        self._of_means += all_reduce_bytes(num_bytes, self.inside.size)
        by_node = zip(*(own.rows.split(len(self.inside.local_workers)) for own in segments), strict=True)
        means = [self.inside.all_reduce_mean(list(rows)) for rows in by_node]
        return [
            own._replace(rows=torch.stack(of))
            for own, of in zip(segments, zip(*means, strict=True), strict=True)
        ]

    def take_inside_bytes(self) -> np.ndarray:
        """Bytes that left a worker inside each node here, mean over workers, since the last call, [nodes].

        They are an all-reduce of the gradient, and the messages of other nodes, which the first worker
        receives and the others get along a tree: M - 1 of them are sent.
        """
        of_means, self._of_means = self._of_means, 0.0
        size = self.inside.size
        return of_means + (size - 1) / size * self.across.take_relayed_bytes()


def nodes_of(workers: Communicator, num_nodes: int, teams: Teams | None = None) -> Nodes:
    """``num_nodes`` nodes of ``workers``; if a node has several processes, those of ``teams``, or
    consecutive ones.

    All processes call it together. Raises ``ValueError`` unless the nodes have equally many workers, and each
    node has equally many processes, or each process equally many nodes.
    """
    require_nodes(num_nodes, workers.size, workers.world_size)
    new = partial(Communicator, device=workers.device, reduction=workers.reduction)
    per_node = workers.size // num_nodes
    each = workers.world_size // num_nodes  # processes of a node
    rank, size = workers.rank, workers.world_size
    if each <= 1:
        across = new(num_nodes, rank=rank, world_size=size, group=workers.group)
        return Nodes(new(per_node), across, tuple(range(size)))
    teams = teams or tuple(tuple(range(i * each, (i + 1) * each)) for i in range(num_nodes))
    node, firsts = _groups_of(workers, teams)
    ((number, team),) = ((number, team) for number, team in enumerate(teams) if rank in team)
    inside = new(per_node, rank=team.index(rank), world_size=each, group=node)
    across = new(num_nodes, rank=number, world_size=num_nodes, group=firsts, node=node)
    return Nodes(inside, across, tuple(team[0] for team in teams))


def _groups_of(workers: Communicator, teams: Teams) -> Groups:
    """The groups of ``teams``, made once for the processes of ``workers`` and destroyed with their group."""
    parent = workers.group or c10d._get_default_group()
    known = _groups.setdefault(parent, {})
    if teams not in known:
        ranks = dist.get_process_group_ranks(parent)
        of_teams = [[ranks[place] for place in team] for team in teams]
        own = next(team for team in of_teams if dist.get_rank() in team)
        firsts = [team[0] for team in of_teams]
        if workers.device.type == "cpu":
            known[teams] = gloo_group(parent, own), gloo_group(parent, firsts)
        else:
            timeout = timeout_of(parent, workers.device)
            made = [dist.new_group(of, timeout=timeout) for of in (*of_teams, firsts)]
            known[teams] = made[of_teams.index(own)], made[-1] if own[0] == dist.get_rank() else None
            for group in known[teams]:  # NCCL connects the processes of a group in its first collective
                if group is not None:
                    dist.all_reduce(torch.zeros(1, device=workers.device), group=group)
        weakref.finalize(parent, _end, known[teams]).atexit = False
    return known[teams]


def _end(groups: Groups) -> None:
    for group in groups:
        if group is not None:
            destroy(group)
