"""All collectives between workers, and the only count of their bytes."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from compressors.core.checks import require, require_choice
from compressors.kernels.choice import backend_of
from trainers.comm.charges import Charges
from trainers.comm.clock import Clock
from trainers.comm.links import all_reduce_bytes, broadcast_bytes
from trainers.comm.means import Means
from trainers.comm.transfers import Transfers
from trainers.settings import ALL_REDUCE, REDUCTIONS, WORKER_ORDER


class Communicator:
    """n workers, of which W = n / P, the ``local_workers``, are in this process, one of P.

    One process with all workers and n processes with one worker each run the same code. The bytes of a tensor
    that a worker hands to a collective are charged to it once, as if it were on its own machine; local
    workers are also charged for transfers between each other. ``reduction`` sets the order of additions in
    ``all_reduce_mean``. The processes are those of ``group``, or all. Raises ``ValueError`` if n is not a
    multiple of P, and for a ``reduction`` that is not in ``REDUCTIONS``.

    With ``node``, a group of processes that hold the same workers, all of them make the same calls; the first
    one is in ``group``, and passes on to the others what it receives.
    """

    def __init__(
        self,
        workers: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str = "cpu",
        reduction: str = ALL_REDUCE,
        group: dist.ProcessGroup | None = None,
        node: dist.ProcessGroup | None = None,
    ) -> None:
        require_choice("trainer.reduction", REDUCTIONS, reduction)
        if workers % world_size:
            raise ValueError(f"workers must be a multiple of processes ({world_size}), got {workers}")
        local = workers // world_size
        self.size = workers
        self.rank = rank
        self.world_size = world_size
        self.device = torch.device(device)
        self.local_workers = range(rank * local, (rank + 1) * local)
        self.reduction = reduction
        self.group = group
        self.clock = Clock()
        self._charges = Charges(workers, self.local_workers)
        self._transfers = Transfers(workers, rank, world_size, self.device, self.clock, group, node)
        self._means = Means(self._transfers, in_order=reduction == WORKER_ORDER)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of bytes, in the order of the columns of ``take_charges``."""
        return self._charges.kinds

    def declare_kinds(self, kinds: Sequence[str]) -> None:
        """Also count bytes of these kinds; known kinds keep their columns."""
        self._charges.declare(kinds)

    def all_reduce_mean(
        self,
        rows: list[Tensor],
        add_up: Callable[[Tensor], Tensor] | None = None,
        kind: str = "values",
    ) -> list[Tensor]:
        """Means over all n workers, [k], of the local workers' rows [W, k], per segment.

        ``add_up`` sums rows [m, k] to [k], in row order, as by default, or in the order of torch's sum. All
        segments are sent together, and each worker is charged for one row of every segment, under ``kind``.
        With ``reduction=worker_order`` every process adds all n rows of its slices, so the bits do not depend
        on the number of processes; with one worker per process it sends and receives as many bytes as in a
        ring all-reduce. With ``reduction=all_reduce``, the local rows are added first. Two workers in two
        processes exchange their rows in both cases. ``rows`` are consumed: means may use them.
        """
        self._charge_all_reduce(rows, kind)
        return self._means.of(rows, add_up or backend_of(self.device).add_rows)

    def all_reduce_mean_later(
        self, rows: list[Tensor], add_up: Callable[[Tensor], Tensor] | None = None
    ) -> Callable[[], list[Tensor]]:
        """Begin ``all_reduce_mean`` of values; the returned function waits for its end.

        The order of the calls must be the same in all processes. See ``Means.later``.
        """
        self._charge_all_reduce(rows, "values")
        return self._means.later(rows, add_up or backend_of(self.device).add_rows)

    def _charge_all_reduce(self, rows: list[Tensor], kind: str) -> None:
        num_bytes = sum([tensor.nbytes for tensor in rows]) // len(self.local_workers)
        self._charges.hand_over(kind, num_bytes)
        on_link = all_reduce_bytes(num_bytes, self.size)  # slices differ in size: the mean over workers
        # In worker order a node also passes on the terms of its slices.
        relayed = on_link if self.reduction == WORKER_ORDER else num_bytes
        self._charges.link(on_link, on_link, relayed)
        self.clock.rounds += 2 * (self.size - 1)

    def all_gather(self, rows: Tensor, kind: str) -> Tensor:
        """``[n, ...]`` in worker order from ``[W, ...]``, charged under ``kind``."""
        self._charges.gather(kind, rows.nbytes // len(rows))
        return self._transfers.all_gather(rows, self._transfers.gather())

    def all_gather_fields(self, fields: list[Tensor], kind: str) -> list[Tensor]:
        """Per segment the entries of all n workers, from those of the W local workers.

        All workers have equally many. Each tensor, given and returned, has the entries in worker order.
        """
        num_workers = len(self.local_workers)
        self._charges.gather(kind, sum([tensor.nbytes for tensor in fields]) // num_workers)
        return self._transfers.all_gather_fields(fields, num_workers)

    def all_gather_counts(self, counts: np.ndarray, largest: int, *, of_elements: bool = True) -> np.ndarray:
        """Element counts of all n workers, ``[S, n]`` int64, from the local ``[S, W]``.

        In worker order, charged as metadata of 4 bytes each, or 8 bytes if ``largest``, the upper bound of
        counts, is 2^31 or more. ``of_elements`` is false for counts of something else, such as bytes.
        """
        everyones = self._gather_numbers(counts, largest)
        self._charges.sent_elements(everyones.sum(0) if of_elements else math.inf)
        return everyones

    def _gather_numbers(self, counts: np.ndarray, largest: int) -> np.ndarray:
        small = counts.astype(np.int32 if largest < 2**31 else np.int64)
        self._charges.gather("metadata", len(small) * small.itemsize)
        if self.world_size == 1:
            with self._transfers.gather():
                return counts
        everyones = self._transfers.all_gather(torch.from_numpy(small.T), self._transfers.gather())
        return everyones.numpy().T.astype(np.int64)

    def all_gather_ragged(
        self, fields: list[list[Tensor]], lengths: np.ndarray, kinds: list[str]
    ) -> list[list[Tensor]]:
        """Per field and segment the entries of all n workers, from the local ones, without padding.

        Tensors have the entries in worker order. ``lengths`` [S, n] int64 has the entries of each worker in
        each of the S segments; ``kinds`` has the kind of each field.
        """
        everyones = lengths.sum(0) if len(lengths) > 1 else lengths[0]  # [n]
        own = everyones[self.local_workers.start : self.local_workers.stop]  # [W]
        num_entries = sum(own.tolist())
        for tensors, kind in zip(fields, kinds, strict=True):
            if num_entries != sum(tensor.numel() for tensor in tensors):
                raise RuntimeError(f"{kind}: the lengths do not match the tensors")
            itemsize = tensors[0].itemsize
            self._charges.gather(kind, own * itemsize, everyones.sum() * itemsize)
        if self.world_size == 1:
            self.clock.rounds += 1  # as between machines; the host does not wait for a GPU
            return fields
        return self._transfers.all_gather_ragged(fields, lengths)

    def all_gather_messages(
        self, messages: list[list[tuple[str, np.ndarray]]], largest: int
    ) -> list[np.ndarray]:
        """All n workers' messages in worker order, [...] uint8, from the local ones, without padding.

        A message is given in parts, each with its kind. Its length is sent first, as metadata: 4 bytes, or 8
        if ``largest``, the upper bound of lengths, needs them.
        """
        for row, parts in enumerate(messages):
            for kind, part in parts:
                self._charges.hand_over_one(row, kind, part.nbytes)
        joined = [np.concatenate([part for _, part in parts]) for parts in messages]
        lengths = np.array([[len(message) for message in joined]])
        own = lengths[0]
        lengths = self._gather_numbers(lengths, largest)
        self._charges.link_of_gather(own, lengths.sum())
        self._charges.sent_elements(math.inf)
        if self.world_size == 1:
            self.clock.rounds += 1
            return joined
        local = self._transfers.here(torch.from_numpy(np.concatenate(joined)))
        everyones = self._transfers.all_gather_ragged([[local]], lengths)[0][0].cpu().numpy()
        return np.split(everyones, np.cumsum(lengths[0])[:-1])

    def broadcast_from(self, worker: int, tensor: Tensor, kind: str) -> Tensor:
        """The tensor of ``worker``, [...]; other processes pass a tensor of the same shape and dtype.

        Charged to ``worker`` alone, under ``kind``. It is sent along a binomial tree in log2 n rounds.
        """
        self._charges.require(kind)
        if worker in self.local_workers:
            self._charges.hand_over_one(worker - self.local_workers.start, kind, tensor.nbytes)
        link = np.array(broadcast_bytes(tensor.nbytes, self.size, worker))
        local = link[self.local_workers.start : self.local_workers.stop]
        self._charges.link(local[:, 0], local[:, 1])
        rounds = math.ceil(math.log2(self.size))
        self.clock.detour_bytes += rounds * tensor.nbytes - link[:, 0].mean()
        with self.clock.collective(rounds):
            return self._transfers.broadcast(tensor, worker // len(self.local_workers))

    def leading(self) -> AbstractContextManager[object]:
        """Context manager: work of one worker for which all others wait, such as before a broadcast."""
        return self.clock.leading()

    def all_to_all(self, rows: Tensor, kind: str) -> Tensor:
        """Send part ``[w, v]`` of ``[W, n, ...]`` to worker v; part ``[w, v]`` of the result is from v.

        All parts are charged under ``kind``; a worker's part for itself does not count as link bytes.
        """
        own = rows.nbytes // len(rows)
        self._charges.hand_over(kind, own)
        self._charges.link(own - own // self.size, own - own // self.size)
        return self._transfers.all_to_all(rows)

    def all_to_all_ragged(
        self,
        fields: list[list[Tensor]],
        counts: np.ndarray,
        kinds: list[str],
        arriving: np.ndarray | None = None,
    ) -> tuple[list[list[Tensor]], np.ndarray]:
        """Per field the entries that each local worker receives, [...], and their counts ``[W, n]``.

        ``fields`` has the entries of each local worker, in worker order of their receivers: ``counts[w, v]``
        of them are for worker v, ``[W, n]``, or ``[W, n, S]`` with separate counts for S segments. Received
        entries are in worker order too. Entries of a worker for itself are not charged. ``arriving`` has the
        counts ``[W, n]`` of received entries. If it is None, ``counts`` are sent first, as metadata of 4
        bytes each.
        """
        by_segment = counts
        counts = counts.sum(2) if counts.ndim > 2 else counts
        own = np.arange(len(counts)), np.array(self.local_workers)  # places of a worker's entries for itself
        away = counts.sum(1) - counts[own]
        if arriving is None:
            small = torch.from_numpy(by_segment.astype(np.int32))
            arriving = self.all_to_all(small, "metadata").numpy().astype(np.int64)
            arriving = arriving.sum(2) if arriving.ndim > 2 else arriving
            self._charges.hand_over("metadata", -small[0, 0].nbytes)  # for itself
        reached = arriving.sum(1) - arriving[own]
        for tensors, kind in zip(fields, kinds, strict=True):
            itemsize = tensors[0].itemsize
            self._charges.hand_over(kind, away * itemsize)
            self._charges.link(away * itemsize, reached * itemsize)
        self._charges.sent_elements(math.inf)
        return self._transfers.all_to_all_ragged(fields, counts, arriving), arriving

    def exchange(
        self, fields: Sequence[Tensor], sources: Sequence[int], kinds: Sequence[str]
    ) -> list[Tensor]:
        """Per field the rows that the local workers receive, ``[W, ...]``, from their own rows ``[W, ...]``.

        Each of the n workers w receives from worker ``sources[w]``, or nothing if w = ``sources[w]``. All
        messages are in flight at once. A worker that sends is charged once for each field under its kind; its
        link carries as many copies as there are receivers.
        """
        known = len(sources) == self.size and all(0 <= source < self.size for source in sources)
        require(known, "sources", f"one of {self.size} workers for each", list(sources))
        moves = [(source, worker) for worker, source in enumerate(sources) if source != worker]
        copies = np.bincount([source for source, _ in moves], minlength=self.size)  # [n]
        arrivals = np.bincount([worker for _, worker in moves], minlength=self.size)
        local = slice(self.local_workers.start, self.local_workers.stop)
        for rows, kind in zip(fields, kinds, strict=True):
            each = rows.nbytes // len(rows)
            self._charges.hand_over(kind, (copies[local] > 0) * each)
            self.clock.detour_bytes += (copies.max() - copies.mean()) * each
            self._charges.link(copies[local] * each, arrivals[local] * each)
        # Messages may hold sums, which no single worker's count describes.
        self._charges.sent_elements(math.inf)
        received = self._transfers.exchange(list(fields), moves, self.local_workers, int(copies.max()))
        return [place.to(rows.device) for place, rows in zip(received, fields, strict=True)]

    def take_charges(self) -> np.ndarray:
        """Bytes per local worker and kind, [W, kinds] int64, since the last call."""
        return self._charges.take_handed()

    def take_link_bytes(self) -> np.ndarray:
        """Bytes that leave and reach each local worker, [W, 2] float64, since the last call (``Charges``)."""
        return self._charges.take_link()

    def take_relayed_bytes(self) -> np.ndarray:
        """Bytes passed on inside a node, [W] float64, since the last call (``Charges.link``)."""
        return self._charges.take_relayed()

    def take_largest_sent(self) -> float | None:
        """Elements of the worker that has sent most since the last call (``Charges.take_largest_sent``)."""
        return self._charges.take_largest_sent()

    # The following collectives are for measurement and control, and are not charged.

    def collect(self, rows: Tensor) -> Tensor:
        """``[n, ...]`` in worker order from ``[W, ...]``."""
        return self._transfers.all_gather(rows, nullcontext())

    def collect_later(self, rows: Tensor) -> Callable[[], Tensor]:
        """Begin ``collect``; the returned function waits for its end, which no other process has to do."""
        return self._transfers.all_gather_later(rows)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over processes, not charged."""
        return self._transfers.sum(tensor)

    def all_reduce_max(self, number: int) -> int:
        """The largest of the processes' numbers, not charged."""
        if self.world_size == 1:
            return number
        return int(self.collect(torch.tensor([[number]])).max())

    def broadcast(self, tensors: list[Tensor]) -> None:
        """Overwrite ``tensors`` with those of the first process, not charged."""
        self._transfers.overwrite(tensors)
