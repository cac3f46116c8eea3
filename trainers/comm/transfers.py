"""Transfers of tensors between processes: timed, but not charged."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from trainers.comm.clock import Clock


class Work(Protocol):
    """A transfer in progress."""

    def wait(self) -> object: ...


@dataclass(frozen=True)
class Relayed:
    """Transfers of the first process of a ``node``, whose ``results`` then reach its other processes."""

    works: Sequence[Work]  # none in the other processes
    results: Sequence[Tensor]
    node: dist.ProcessGroup

    def wait(self) -> None:
        wait(self.works)
        for tensor in self.results:
            dist.broadcast(tensor, group_src=0, group=self.node)


@dataclass(eq=False)
class Transfers:
    """Sends and receives of one process, ``rank`` of P = ``world_size``, with W of n workers.

    The P processes are those of ``group``, or all. With ``node`` P nodes of several processes have the W
    workers each: all processes of a node make the same calls, and its first one transfers for them.
    """

    size: int  # n
    rank: int
    world_size: int
    device: torch.device
    clock: Clock
    group: dist.ProcessGroup | None
    node: dist.ProcessGroup | None = None

    @property
    def _gathers_by_pairs(self) -> bool:
        return self.device.type != "cuda"

    def here(self, tensor: Tensor) -> Tensor:
        """``tensor``, contiguous and on the device of the collectives; does not wait for a GPU."""
        return tensor.contiguous().to(self.device, non_blocking=self.device.type == "cuda")

    def start(self, outgoing: list[Tensor], incoming: list[Tensor]) -> tuple[Sequence[Work], Sequence[Work]]:
        """Begin to receive from and send to all other processes, [P] each; the works of both."""
        others = [(self.rank + turn) % self.world_size for turn in range(1, self.world_size)]
        receives = [(dist.irecv, incoming[of], of) for of in others if incoming[of].numel()]
        sends = [(dist.isend, outgoing[to], to) for to in others if outgoing[to].numel()]
        works = self._batch(receives + sends) if self._is_sender else []
        arrivals = self._relayed(lambda: works[: len(receives)], [place for _, place, _ in receives])
        return arrivals, works[len(receives) :]

    def all_reduce(self, tensor: Tensor) -> Sequence[Work]:
        """Begin to sum ``tensor`` over processes, in place."""
        return self._relayed(lambda: [dist.all_reduce(tensor, group=self.group, async_op=True)], [tensor])

    def gather(self) -> AbstractContextManager[object]:
        """Context manager that times a gather."""
        return self.clock.collective(1 if self._gathers_by_pairs else self.size - 1)

    def all_gather(self, rows: Tensor, on_the_clock: AbstractContextManager[object]) -> Tensor:
        """``[n, ...]`` from ``[W, ...]``. Local work is not measured as network time."""
        if self.world_size == 1:
            with on_the_clock:
                return rows
        sent = self.here(rows)
        received = sent.new_empty(self.world_size, *sent.shape)
        with on_the_clock:
            if self._gathers_by_pairs:
                self._swap([sent], [list(received.unbind())])
            else:
                wait(self._all_gather(received, sent))
        return received.flatten(0, 1).to(rows.device)

    def all_gather_fields(self, fields: list[Tensor], num_workers: int) -> list[Tensor]:
        """Per segment the entries of all n workers, from those of the ``num_workers`` = W local workers."""
        on_the_clock = self.gather()
        if self.world_size == 1:
            with on_the_clock:
                return fields
        rows = [tensor.view(num_workers, len(tensor) // num_workers) for tensor in fields]
        everyones = self.all_gather(torch.cat(rows, 1), on_the_clock)
        return [part.flatten() for part in everyones.split([part.shape[1] for part in rows], 1)]

    def all_gather_later(self, rows: Tensor) -> Callable[[], Tensor]:
        """Begin to gather ``[n, ...]``; the returned function waits for the end. Not timed."""
        if self.world_size == 1:
            return lambda: rows
        sent = self.here(rows)
        received = sent.new_empty(self.world_size, *sent.shape)
        works = self._all_gather(received, sent)

        def result() -> Tensor:
            wait(works)
            return received.flatten(0, 1)

        return result

    def all_gather_ragged(self, fields: list[list[Tensor]], lengths: np.ndarray) -> list[list[Tensor]]:
        """Per field and segment all workers' entries from this process's; ``lengths`` is [S, n]."""
        per_process = lengths.reshape(len(lengths), self.world_size, -1).sum(2).T  # [P, S]
        of_each, total = per_process.sum(1).tolist(), int(per_process.sum())
        own = [self.here(torch.cat(tensors)) for tensors in fields]
        received = [tensor.new_empty(total) for tensor in own]
        with self.clock.collective(1):
            self._swap(own, [list(tensor.split(of_each)) for tensor in received])
        received = [of.to(tensors[0].device) for of, tensors in zip(received, fields, strict=True)]
        pieces = [tensor.split(per_process.flatten().tolist()) for tensor in received]
        of_segments = per_process.sum(0).tolist()
        by_segment = np.arange(per_process.size).reshape(per_process.shape).T.flatten().tolist()
        return [list(torch.cat([of[i] for i in by_segment]).split(of_segments)) for of in pieces]

    def broadcast(self, tensor: Tensor, process: int) -> Tensor:
        """The tensor of ``process``."""
        if self.world_size == 1:
            return tensor
        moved = self.here(tensor)
        self._broadcast(moved, process)
        return moved.to(tensor.device)

    def overwrite(self, tensors: list[Tensor]) -> None:
        """Overwrite ``tensors`` with those of the first process. Not timed."""
        if self.world_size > 1:
            for tensor in tensors:
                moved = tensor.contiguous()  # backends send and write memory, whatever the strides
                self._broadcast(moved, 0)
                if moved is not tensor:
                    tensor.copy_(moved)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over processes. Not timed."""
        if self.world_size > 1:
            tensor = self.here(tensor)
            wait(self.all_reduce(tensor))
        return tensor

    def all_to_all(self, rows: Tensor) -> Tensor:
        """``[W, n, ...]`` received of the sent ``[W, n, ...]``."""
        with self.clock.collective(1):
            parts = rows.unflatten(1, (self.world_size, -1)).transpose(0, 1)  # [P, W, W, ...]
            if self.world_size > 1:
                sent = self.here(parts)
                received = torch.empty_like(sent)
                self._trade([list(sent.unbind())], [list(received.unbind())])
                parts = received.to(rows.device)
        return parts.permute(2, 0, 1, *range(3, parts.dim())).flatten(1, 2)

    def all_to_all_ragged(
        self, fields: list[list[Tensor]], counts: np.ndarray, arriving: np.ndarray
    ) -> list[list[Tensor]]:
        """Per field the entries that each local worker receives; ``counts`` [W, n] are sent.

        ``arriving`` [W, n] has the received entries.
        """
        local = range(len(arriving))
        of_process = [range(p * len(local), (p + 1) * len(local)) for p in range(self.world_size)]
        outgoing, incoming, found = [], [], []
        with self.clock.collective(1):
            if self.world_size == 1:
                receivers = np.tile(np.arange(self.size), len(counts)).repeat(counts.ravel())
                order = torch.from_numpy(receivers.argsort(kind="stable"))
                order = order.to(fields[0][0].device, non_blocking=True)
                lengths = arriving.sum(1).tolist()
                return [list(torch.cat(tensors).index_select(0, order).split(lengths)) for tensors in fields]
            for tensors in fields:
                own = [x.split(sizes) for x, sizes in zip(tensors, counts.tolist(), strict=True)]  # [W][n]
                sent = [self.here(torch.cat([own[w][v] for w in local for v in to])) for to in of_process]
                outgoing.append(sent)
                incoming.append([sent[0].new_empty(int(arriving[:, of].sum())) for of in of_process])
            self._trade(outgoing, incoming)
            for places, tensors in zip(incoming, fields, strict=True):
                received = [
                    place.to(tensors[0].device).split([int(arriving[v, w]) for w in of for v in local])
                    for place, of in zip(places, of_process, strict=True)
                ]
                found.append([[part[w * len(local) + v] for part in received for w in local] for v in local])
        return [[torch.cat(pieces) for pieces in of_field] for of_field in found]

    def exchange(
        self, fields: list[Tensor], moves: list[tuple[int, int]], local_workers: range, rounds: int
    ) -> list[Tensor]:
        """Per field the received rows, [W, ...], after ``moves`` from a worker to another.

        All messages are in flight at once; ``rounds`` is the most that one worker sends. A worker that
        receives nothing keeps its own row.
        """
        sent = [self.here(rows) for rows in fields]
        received = [rows.clone() for rows in sent]
        first, each = local_workers.start, len(local_workers)
        operations: list[tuple[Callable[..., Any], Tensor, int]] = []
        with self.clock.collective(rounds):
            for source, worker in moves:  # in the same order on both sides
                for own, place in zip(sent, received, strict=True):
                    if source in local_workers and worker in local_workers:
                        place[worker - first] = own[source - first]
                    elif source in local_workers:
                        operations.append((dist.isend, own[source - first], worker // each))
                    elif worker in local_workers:
                        operations.append((dist.irecv, place[worker - first], source // each))
            comes = any(worker in local_workers and source not in local_workers for source, worker in moves)
            wait(self._relayed(lambda: self._batch(operations), received if comes else []))
        return received

    def _swap(self, own: list[Tensor], everyones: list[list[Tensor]]) -> None:
        """Send every tensor of ``own`` to all other processes and receive theirs in ``everyones``, [P]
        each."""
        self._trade([[tensor] * self.world_size for tensor in own], everyones)

    def _trade(self, outgoing: list[list[Tensor]], incoming: list[list[Tensor]]) -> None:
        """Send entry p of each list to process p, and receive its entry for this process.

        All messages are in flight at once, which uses a link in both directions: gloo's all_gather and
        all_to_all take 1.7 and 2.1 times as long as the link (benchmarks/results/network.md).
        """
        works: list[Work] = []
        for theirs, places in zip(outgoing, incoming, strict=True):
            places[self.rank].copy_(theirs[self.rank])
            for of in self.start(theirs, places):
                works += of
        wait(works)

    def _batch(self, operations: Sequence[tuple[Callable[..., Any], Tensor, int]]) -> Sequence[Work]:
        """Start these operations, each with its tensor and the other process."""
        found = [dist.P2POp(kind, x, group=self.group, group_peer=process) for kind, x, process in operations]
        return dist.batch_isend_irecv(found) if found else []

    def _all_gather(self, received: Tensor, sent: Tensor) -> Sequence[Work]:
        places = list(received.unbind())
        if self.node is not None:
            places[self.rank].copy_(sent)
        others = places[: self.rank] + places[self.rank + 1 :]
        return self._relayed(lambda: [dist.all_gather(places, sent, group=self.group, async_op=True)], others)

    def _broadcast(self, tensor: Tensor, process: int) -> None:
        results = [tensor] if self.rank != process else []  # the processes of its node have it
        wait(
            self._relayed(
                lambda: [dist.broadcast(tensor, group_src=process, group=self.group, async_op=True)], results
            )
        )

    @property
    def _is_sender(self) -> bool:
        """Whether this process transfers: for its node, if it has one."""
        return self.node is None or self.node.rank() == 0

    def _relayed(self, start: Callable[[], Sequence[Work]], results: Sequence[Tensor]) -> Sequence[Work]:
        """Start transfers into ``results``, which a node's other processes get from its first one."""
        works = start() if self._is_sender else ()
        return works if self.node is None else [Relayed(works, results, self.node)]


def wait(works: Sequence[Work]) -> None:
    for work in works:
        work.wait()
