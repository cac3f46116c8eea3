"""All collectives between workers, and the only count of their bytes."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from compressors.core.backends import backend_of
from compressors.core.checks import require
from compressors.core.fields import KINDS
from compressors.core.payloads import divide
from trainers.comm.clock import Clock
from trainers.comm.links import all_reduce_bytes, broadcast_bytes, gather_bytes
from trainers.comm.slices import side_by_side, slices, strided
from trainers.settings import ALL_REDUCE, REDUCTIONS, WORKER_ORDER

_AT_ONCE = 2**21  # elements per all-reduce: gloo can process the next one while one waits


class Communicator:
    """n workers, of which W = n / P, the ``local_workers``, are in this process, one of P.

    One process with all workers and n processes with one worker each run the same code. The bytes of a tensor
    that a worker hands to a collective are charged to it once, as if it were on its own machine; local
    workers are also charged for transfers between each other. ``reduction`` sets the order of additions in
    ``all_reduce_mean``. Raises ``ValueError`` if n is not a multiple of P, and for a ``reduction`` that is
    not in ``REDUCTIONS``.
    """

    def __init__(
        self,
        workers: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str = "cpu",
        reduction: str = ALL_REDUCE,
    ) -> None:
        require(reduction in REDUCTIONS, "trainer.reduction", f"one of {', '.join(REDUCTIONS)}", reduction)
        if workers % world_size:
            raise ValueError(f"workers must be a multiple of processes ({world_size}), got {workers}")
        local = workers // world_size
        self.size = workers
        self.rank = rank
        self.world_size = world_size
        self.device = torch.device(device)
        self.local_workers = range(rank * local, (rank + 1) * local)
        self.reduction = reduction
        self._gathers_by_pairs = self.device.type != "cuda"
        self._gather_rounds = 1 if self._gathers_by_pairs else workers - 1
        self.kinds: tuple[str, ...] = ()
        self._charges = np.zeros((local, 0), dtype=np.int64)  # [W, kinds]
        self.declare_kinds(KINDS)
        self._link = np.zeros((local, 2))  # bytes that leave and reach each local worker
        self._elements: np.ndarray | float | None = None  # [n] sent, if the numbers differ between workers
        self.clock = Clock()

    def declare_kinds(self, kinds: Sequence[str]) -> None:
        """Also count bytes of these kinds; known kinds keep their columns."""
        new = tuple(kind for kind in kinds if kind not in self.kinds)
        self.kinds += new
        self._charges = np.pad(self._charges, ((0, 0), (0, len(new))))
        self._charged = dict(zip(self.kinds, self._charges.T, strict=True))  # views

    def all_reduce_mean(
        self,
        rows: list[Tensor],
        add_up: Callable[[Tensor], Tensor] | None = None,
        kind: str = "values",
    ) -> list[Tensor]:
        """Means over all n workers, [k], of the local workers' rows [W, k], per segment.

        ``add_up`` sums rows [m, k] to [k]; by default in row order. All segments are sent together, and each
        worker is charged for one row of every segment, under ``kind``. With ``reduction=worker_order`` every
        process adds all n rows of its slices, so the bits do not depend on the number of processes; with one
        worker per process it sends and receives as many bytes as in a ring all-reduce. With
        ``reduction=all_reduce``, the local rows are added first; this is also used for two workers in two
        processes, where the bits are the same. ``rows`` are consumed: means may use their memory.
        """
        add_up = add_up or backend_of(self.device).add_rows
        num_bytes = sum([tensor.nbytes for tensor in rows]) // len(self.local_workers)
        self._require_kind(kind)
        self._charged[kind] += num_bytes
        self._link += all_reduce_bytes(num_bytes, self.size)  # for slices: mean over the workers
        of_two = self.size == 2 == self.world_size  # a sum of two has the same bits in any order
        if self.world_size > 1 and self.reduction == WORKER_ORDER and not of_two:
            return self._means_by_slices(rows, add_up)
        return self._means_by_all_reduce(rows, add_up)

    def all_gather(self, rows: Tensor, kind: str) -> Tensor:
        """``[n, ...]`` in worker order from ``[W, ...]``, charged under ``kind``."""
        self._charge_gather(kind, rows.nbytes // len(rows))
        return self._all_gather(rows, self.clock.collective(self._gather_rounds))

    def all_gather_fields(self, fields: list[Tensor], kind: str) -> list[Tensor]:
        """Per segment the entries of all n workers, from those of the W local workers.

        All workers have equally many. Each tensor, given and returned, has the entries in worker order.
        """
        num_workers = len(self.local_workers)
        self._charge_gather(kind, sum([tensor.nbytes for tensor in fields]) // num_workers)
        on_the_clock = self.clock.collective(self._gather_rounds)
        if self.world_size == 1:
            with on_the_clock:
                return fields
        rows = [tensor.view(num_workers, len(tensor) // num_workers) for tensor in fields]
        everyones = self._all_gather(torch.cat(rows, 1), on_the_clock)
        return [part.flatten() for part in everyones.split([part.shape[1] for part in rows], 1)]

    def all_gather_counts(self, counts: np.ndarray, largest: int) -> np.ndarray:
        """Element counts of all n workers, ``[S, n]`` int64, from the local ``[S, W]``.

        In worker order, charged as metadata of 4 bytes each, or 8 bytes if ``largest``, the upper bound of
        counts, is 2^31 or more.
        """
        everyones = self._gather_numbers(counts, largest)
        elements = everyones.sum(0)
        self._elements = elements if self._elements is None else self._elements + elements
        return everyones

    def _gather_numbers(self, counts: np.ndarray, largest: int) -> np.ndarray:
        small = counts.astype(np.int32 if largest < 2**31 else np.int64)
        self._charge_gather("metadata", len(small) * small.itemsize)
        on_the_clock = self.clock.collective(self._gather_rounds)
        if self.world_size == 1:
            with on_the_clock:
                return counts
        return self._all_gather(torch.from_numpy(small.T), on_the_clock).numpy().T.astype(np.int64)

    def all_gather_ragged(
        self, fields: list[list[Tensor]], lengths: np.ndarray, kinds: list[str]
    ) -> list[list[Tensor]]:
        """Per field and segment the entries of all n workers, from the local ones, without padding.

        Each tensor, given and returned, has the entries in worker order. ``lengths`` [S, n]
        int64 has the entries of each worker in each of the S segments; ``kinds`` has the kind of each field.
        """
        everyones = lengths.sum(0) if len(lengths) > 1 else lengths[0]  # [n]
        own = everyones[self.local_workers.start : self.local_workers.stop]  # [W]
        num_entries = sum(own.tolist())
        for tensors, kind in zip(fields, kinds, strict=True):
            if num_entries != sum(tensor.numel() for tensor in tensors):
                raise RuntimeError(f"{kind}: the lengths do not match the tensors")
            itemsize = tensors[0].itemsize
            self._charge_gather(kind, own * itemsize, everyones.sum() * itemsize)
        if self.world_size == 1:
            return fields
        return self._exchange(fields, lengths)

    def all_gather_messages(
        self, messages: list[list[tuple[str, np.ndarray]]], largest: int
    ) -> list[np.ndarray]:
        """All n workers' messages in worker order, [...] uint8, from the local ones, without padding.

        A message is given in parts, each with its kind. Its length is sent first, as metadata: 4 bytes, or 8
        if ``largest``, the upper bound of lengths, needs them.
        """
        for row, parts in enumerate(messages):
            for kind, part in parts:
                self._charged[kind][row] += part.nbytes
        joined = [np.concatenate([part for _, part in parts]) for parts in messages]
        lengths = np.array([[len(message) for message in joined]])
        own = lengths[0]
        lengths = self._gather_numbers(lengths, largest)
        self._charge_link(own, lengths.sum())
        self._elements = math.inf
        if self.world_size == 1:
            return joined
        local = self._here(torch.from_numpy(np.concatenate(joined)))
        everyones = self._exchange([[local]], lengths)[0][0].cpu().numpy()
        return np.split(everyones, np.cumsum(lengths[0])[:-1])

    def broadcast_from(self, worker: int, tensor: Tensor, kind: str) -> Tensor:
        """The tensor of ``worker``, [...]; other processes pass a tensor of the same shape and dtype.

        Charged to ``worker`` alone, under ``kind``. It is sent along a binomial tree in log2 n rounds.
        """
        self._require_kind(kind)
        if worker in self.local_workers:
            self._charged[kind][worker - self.local_workers.start] += tensor.nbytes
        link = np.array(broadcast_bytes(tensor.nbytes, self.size, worker))
        self._link += link[self.local_workers.start : self.local_workers.stop]
        rounds = math.ceil(math.log2(self.size))
        self.clock.detour_bytes += rounds * tensor.nbytes - link[:, 0].mean()
        with self.clock.collective(rounds):
            if self.world_size == 1:
                return tensor
            moved = self._here(tensor)
            dist.broadcast(moved, worker // len(self.local_workers))
            return moved.to(tensor.device)

    def leading(self) -> AbstractContextManager[object]:
        """Context manager: work of one worker for which all others wait, such as before a broadcast."""
        return self.clock.leading()

    def all_to_all(self, rows: Tensor, kind: str) -> Tensor:
        """Send part ``[w, v]`` of ``[W, n, ...]`` to worker v; returns ``[W, n, ...]``, ``[w, v]`` from
        worker v.

        All parts are charged under ``kind``; a worker's part for itself does not count as link bytes.
        """
        own = rows.nbytes // len(rows)
        self._require_kind(kind)
        self._charged[kind] += own
        self._link += own - own // self.size
        with self.clock.collective(1):
            of_processes = rows.unflatten(1, (self.world_size, -1)).transpose(0, 1)  # [P, W, W, ...]
            if self.world_size > 1:
                sent = self._here(of_processes)
                received = torch.empty_like(sent)
                self._trade([list(sent.unbind())], [list(received.unbind())])
                of_processes = received.to(rows.device)
        return of_processes.permute(2, 0, 1, *range(3, of_processes.dim())).flatten(1, 2)

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
        local, told = range(len(counts)), counts
        counts = counts.sum(2) if counts.ndim > 2 else counts
        away = counts.sum(1) - [counts[w, worker] for w, worker in enumerate(self.local_workers)]
        if arriving is None:
            small = torch.from_numpy(told.astype(np.int32))
            arriving = self.all_to_all(small, "metadata").numpy().astype(np.int64)
            arriving = arriving.sum(2) if arriving.ndim > 2 else arriving
            self._charged["metadata"] -= small[0, 0].nbytes  # for itself
        reached = arriving.sum(1) - [arriving[w, worker] for w, worker in enumerate(self.local_workers)]
        for tensors, kind in zip(fields, kinds, strict=True):
            self._require_kind(kind)
            self._charged[kind] += away * tensors[0].itemsize
            self._link += np.stack([away, reached], 1) * tensors[0].itemsize
        self._elements = math.inf
        sizes = [[counts[w].tolist() for w in local], arriving.tolist()]
        pieces = [[tensors[w].split(sizes[0][w]) for w in local] for tensors in fields]
        with self.clock.collective(1):
            if self.world_size > 1:
                pieces = self._pass_on(pieces, arriving)
            else:
                pieces = [list(zip(*of_field, strict=True)) for of_field in pieces]
        return [[torch.cat(list(of_worker)) for of_worker in of_field] for of_field in pieces], arriving

    def _pass_on(self, pieces: list[Any], arriving: np.ndarray) -> list[Any]:
        """Per field and local worker the received pieces [n], from the sent pieces [n]."""
        local = range(len(arriving))
        of_process = [range(p * len(local), (p + 1) * len(local)) for p in range(self.world_size)]
        outgoing, incoming = [], []
        for own in pieces:
            outgoing.append(
                [self._here(torch.cat([own[w][v] for w in local for v in to])) for to in of_process]
            )
            like = outgoing[-1][0]
            incoming.append([like.new_empty(int(arriving[:, of].sum())) for of in of_process])
        self._trade(outgoing, incoming)
        found = []
        for places, own in zip(incoming, pieces, strict=True):
            received = [
                place.to(own[0][0].device).split([int(arriving[v, w]) for w in of for v in local])
                for place, of in zip(places, of_process, strict=True)
            ]
            found.append([[part[w * len(local) + v] for part in received for w in local] for v in local])
        return found

    def reduce_scatter_mean(self, rows: Tensor) -> Tensor:
        """``[W, ...]`` from ``[W, n, ...]``: for worker w, the mean over all n workers of their part w.

        Charged as values. Parts are added in worker order, so the bits do not depend on the number of
        processes.
        """
        parts = self.all_to_all(rows, "values")
        flat = parts.flatten(2) if parts.dim() > 2 else parts.unsqueeze(2)
        sums = [backend_of(self.device).add_rows(part) for part in flat]
        return torch.stack([divide(own, self.size) for own in sums]).view(len(rows), *rows.shape[2:])

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
            self._require_kind(kind)
            each = rows.nbytes // len(rows)
            self._charged[kind] += (copies[local] > 0) * each
            self.clock.detour_bytes += (copies.max() - copies.mean()) * each
            self._link += np.stack([copies[local], arrivals[local]], 1) * each
        self._elements = math.inf  # messages may hold sums, which no single worker's count describes
        sent = [self._here(rows) for rows in fields]
        received = [rows.clone() for rows in sent]
        operations, first, each = [], self.local_workers.start, len(self.local_workers)
        with self.clock.collective(int(copies.max())):
            for source, worker in moves:  # in the same order on both sides
                for own, place in zip(sent, received, strict=True):
                    if source in self.local_workers and worker in self.local_workers:
                        place[worker - first] = own[source - first]
                    elif source in self.local_workers:
                        operations.append(dist.P2POp(dist.isend, own[source - first], worker // each))
                    elif worker in self.local_workers:
                        operations.append(dist.P2POp(dist.irecv, place[worker - first], source // each))
            _wait(dist.batch_isend_irecv(operations) if operations else [])
        return [place.to(rows.device) for place, rows in zip(received, fields, strict=True)]

    def take_charges(self) -> np.ndarray:
        """Bytes per local worker and kind, [W, kinds] int64, since the last call."""
        charged = self._charges.copy()
        self._charges[:] = 0
        return charged

    def take_link_bytes(self) -> np.ndarray:
        """Bytes that leave and reach each local worker, [W, 2] float64, since the last call.

        They assume that each of the n workers has its own machine, and the algorithms that run here: a gather
        sends a payload to n - 1 others, and an all-reduce sends 2 (n - 1) pieces of 1/n of its buffer.
        Headers of the protocols are not counted.
        """
        link = self._link.copy()
        self._link[:] = 0
        return link

    def take_largest_sent(self) -> float | None:
        """Elements of the worker that has sent most since the last call; infinite for encoded messages.

        None if all workers sent equally many.
        """
        elements, self._elements = self._elements, None
        return None if elements is None else float(np.max(elements))

    def _charge_gather(self, kind: str, own: np.ndarray | int, everyones: int | None = None) -> None:
        """``own`` [W]: bytes handed over by each local worker; ``everyones``: by all n, if they differ."""
        self._require_kind(kind)
        self._charged[kind] += own
        self._charge_link(own, self.size * own if everyones is None else everyones)

    def _require_kind(self, kind: str) -> None:
        if kind not in self._charged:
            raise ValueError(f"kind {kind!r} is not declared: call declare_kinds() first")

    def _charge_link(self, own: np.ndarray | int, everyones: np.ndarray | int) -> None:
        """Charge a gather's link bytes: to n - 1 others, and from them."""
        self._link[:, 0] += gather_bytes(1, self.size) * own
        self._link[:, 1] += everyones - own

    # The following collectives are for measurement and control, and are not charged.

    def collect(self, rows: Tensor) -> Tensor:
        """``[n, ...]`` in worker order from ``[W, ...]``, not charged."""
        return self._all_gather(rows, nullcontext())

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over processes, not charged."""
        if self.world_size > 1:
            tensor = self._here(tensor)
            dist.all_reduce(tensor)
        return tensor

    def all_reduce_max(self, number: int) -> int:
        """The largest of the processes' numbers, not charged."""
        if self.world_size == 1:
            return number
        return int(self.collect(torch.tensor([[number]])).max())

    def first_text(self, text: str) -> str:
        """The text of the first process that has one, or an empty one; not charged."""
        if self.world_size == 1:
            return text
        encoded = list(text.encode())
        longest = self.all_reduce_max(len(encoded))
        if longest == 0:
            return ""
        rows = self.collect(torch.tensor([encoded + [0] * (longest - len(encoded))], dtype=torch.uint8))
        texts = (bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows.tolist())
        return next(text for text in texts if text)

    def broadcast(self, tensors: list[Tensor]) -> None:
        """Overwrite ``tensors`` with those of the first process, not charged."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    @contextmanager
    def first_process_first(self) -> Iterator[None]:
        """Context manager: the first process runs the block alone, then the others; for downloads."""
        if self.rank > 0:
            self.all_reduce_max(0)
        try:
            yield
        finally:  # also if it fails: the others then raise the same error
            if self.rank == 0:
                self.all_reduce_max(0)

    def _means_by_all_reduce(self, rows: list[Tensor], add_up: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Sum over the local workers, then all-reduce, with several all-reduces in flight."""
        sums = [add_up(tensor) for tensor in rows]
        on_the_clock = self.clock.collective(2 * (self.size - 1))
        if self.world_size == 1:
            with on_the_clock:
                return [divide(tensor, self.size) for tensor in sums]
        flat = side_by_side([tensor[None] for tensor in sums])[0]
        pieces = flat.split(_AT_ONCE)
        with on_the_clock:
            works = [dist.all_reduce(piece, async_op=True) for piece in pieces]
        for piece, work in zip(pieces, works, strict=True):
            with self.clock.collective(0):
                work.wait()
            divide(piece, self.size)
        return list(flat.split([len(tensor) for tensor in sums]))

    def _means_by_slices(self, rows: list[Tensor], add_up: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Every process receives all n rows of its slices, adds them, and sends the means to the others.

        A round of slices is added while the next rounds are in flight.
        """
        sizes = [tensor.shape[1] for tensor in rows]
        flat = side_by_side(rows)  # [W, columns]
        num_workers, columns = flat.shape
        means = flat[0] if num_workers == 1 else flat.new_empty(columns)
        rounds = slices(sizes, self.world_size)
        terms, arrivals, departures = [], [], []
        with self.clock.collective(2 * (self.size - 1)):
            for of_round in rounds:
                outgoing = [flat[:, of.start : of.stop].contiguous() for of in of_round]
                incoming = list(flat.new_empty(self.world_size - 1, *outgoing[self.rank].shape))
                incoming.insert(self.rank, outgoing[self.rank])
                receives, sends = self._start(outgoing, incoming)
                terms.append(incoming)
                arrivals.append(receives)
                departures += sends
        for of_round, incoming, receives in zip(rounds, terms, arrivals, strict=True):
            own = of_round[self.rank]
            with self.clock.collective(0):
                _wait(receives)
            for start, stop in own.blocks:
                block = torch.cat([of[:, start - own.start : stop - own.start] for of in incoming])
                means[start:stop] = divide(add_up(strided(block)), self.size)
            with self.clock.collective(0):
                # A slice returns to its sender, so its arrival shows that it was sent.
                parts = [means[of.start : of.stop] for of in of_round]
                receives, sends = self._start([parts[self.rank]] * self.world_size, parts)
                departures += [*receives, *sends]
        with self.clock.collective(0):
            _wait(departures)
        return list(means.split(sizes))

    def _all_gather(self, rows: Tensor, on_the_clock: AbstractContextManager[object]) -> Tensor:
        """``[n, ...]`` from ``[W, ...]``. Local work is not measured as network time."""
        if self.world_size == 1:
            with on_the_clock:
                return rows
        sent = self._here(rows)
        received = sent.new_empty(self.world_size, *sent.shape)
        with on_the_clock:
            if self._gathers_by_pairs:
                self._swap([sent], [list(received.unbind())])
            else:
                dist.all_gather(list(received.unbind()), sent)
        return received.flatten(0, 1).to(rows.device)

    def _here(self, tensor: Tensor) -> Tensor:
        """``tensor``, contiguous and on the device of the collectives; does not wait for a GPU."""
        return tensor.contiguous().to(self.device, non_blocking=self.device.type == "cuda")

    def _exchange(self, fields: list[list[Tensor]], lengths: np.ndarray) -> list[list[Tensor]]:
        """Per field and segment all workers' entries from this process's; ``lengths`` is [S, n]."""
        per_process = lengths.reshape(len(lengths), self.world_size, -1).sum(2).T  # [P, S]
        of_each, total = per_process.sum(1).tolist(), int(per_process.sum())
        own = [torch.cat(tensors) for tensors in fields]
        received = [tensor.new_empty(total) for tensor in own]
        with self.clock.collective(1):
            self._swap(own, [list(tensor.split(of_each)) for tensor in received])
        pieces = [tensor.split(per_process.flatten().tolist()) for tensor in received]
        of_segments = per_process.sum(0).tolist()
        by_segment = np.arange(per_process.size).reshape(per_process.shape).T.flatten().tolist()
        return [list(torch.cat([of[i] for i in by_segment]).split(of_segments)) for of in pieces]

    def _swap(self, own: list[Tensor], everyones: list[list[Tensor]]) -> None:
        """Send every tensor of ``own`` to all other processes and receive theirs in ``everyones``, [P]
        each."""
        self._trade([[tensor] * self.world_size for tensor in own], everyones)

    def _trade(self, outgoing: list[list[Tensor]], incoming: list[list[Tensor]]) -> None:
        """Send entry p of each list to process p, and receive its entry for this process.

        All messages are in flight at once, which uses a link in both directions: gloo's all_gather and
        all_to_all take 1.7 and 2.1 times as long as the link (benchmarks/exchanges.py).
        """
        works = []
        for theirs, places in zip(outgoing, incoming, strict=True):
            places[self.rank].copy_(theirs[self.rank])
            for of in self._start(theirs, places):
                works += of
        _wait(works)

    def _start(
        self, outgoing: list[Tensor], incoming: list[Tensor]
    ) -> tuple[list[dist.Work], list[dist.Work]]:
        """Start receiving from and sending to all other processes, [P] each."""
        others = [(self.rank + turn) % self.world_size for turn in range(1, self.world_size)]
        receives = [dist.P2POp(dist.irecv, incoming[of], of) for of in others if incoming[of].numel()]
        sends = [dist.P2POp(dist.isend, outgoing[to], to) for to in others if outgoing[to].numel()]
        works = dist.batch_isend_irecv(receives + sends) if receives or sends else []
        return works[: len(receives)], works[len(receives) :]


def _wait(works: list[dist.Work]) -> None:
    for work in works:
        work.wait()
