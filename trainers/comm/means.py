"""Means over all workers of rows in several processes: timed, but not charged."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby

import torch
from torch import Tensor

from compressors.core.payloads import divide, divide_all
from compressors.kernels.choice import backend_of
from trainers.comm.slices import Slice, adds_in_order, side_by_side, slices, strided
from trainers.comm.transfers import Transfers, Work, wait

_AT_ONCE = 2**21  # elements per all-reduce: gloo can process the next one while one waits

Sum = Callable[[Tensor], Tensor]  # rows [m, k] to [k]
Later = Callable[[], list[Tensor]]  # waits for the means of all segments


@dataclass(eq=False)
class Means:
    """Means, [k] per segment, of the rows [W, k] that each of the P processes has.

    With ``in_order`` the rows of all n workers are added in worker order, otherwise those of a process first.
    Means may use the memory of the rows.
    """

    transfers: Transfers
    in_order: bool

    def __post_init__(self) -> None:
        of = self.transfers
        self._last: Future[list[Tensor]] | None = None  # of ``later``, in the thread
        of_two = of.size == 2 == of.world_size  # a sum of two has the same bits in any order
        self._swaps = of_two and of.device.type == "cpu"
        self._slices = self.in_order and of.world_size > 1 and not of_two

    def of(self, rows: list[Tensor], add_up: Sum) -> list[Tensor]:
        """The means of the rows of all segments; ``add_up`` sums the rows of a segment."""
        return self._begin(rows, add_up, self.transfers.clock)()

    def later(self, rows: list[Tensor], add_up: Sum) -> Later:
        """Begin ``of``; the returned function, which must be called, waits for its end.

        Sums in order, in several processes and of more than two workers, are the work of a thread, in the
        order of the calls; it does nothing after an error.
        """
        means = self._begin(rows, add_up, nullcontext())
        if not self._slices:
            return means
        before = self._last

        def after_those_before() -> list[Tensor]:
            if before is not None:
                before.result()  # raises its error: the other processes are gone, or will time out
            return means()

        self._last = future = self._thread.submit(after_those_before)

        def result() -> list[Tensor]:
            with self.transfers.clock:
                return future.result()

        return result

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "reduction")

    def _begin(self, rows: list[Tensor], add_up: Sum, clock: AbstractContextManager[object]) -> Later:
        if self._slices:
            return partial(self._by_slices, rows, add_up, clock)
        if self._swaps:
            return self._by_swap(rows, add_up, clock)
        return self._by_all_reduce(rows, add_up, clock)

    def _by_all_reduce(self, rows: list[Tensor], add_up: Sum, clock: AbstractContextManager[object]) -> Later:
        """Sum over the local workers and begin to all-reduce, within ``clock``; several are in flight."""
        sums = [add_up(tensor) for tensor in rows]
        if self.transfers.world_size == 1:
            with clock:
                means = divide_all(sums, self.transfers.size)
            return lambda: means
        flat = side_by_side([tensor[None] for tensor in sums])[0]
        # A sum of two has the same bits in pieces of any size, and gloo takes less time for a large one.
        pieces = flat.split(_AT_ONCE) if self.transfers.world_size > 2 else [flat]
        with clock:
            all_works = [self.transfers.all_reduce(piece) for piece in pieces]

        def means_of_all() -> list[Tensor]:
            for piece, works in zip(pieces, all_works, strict=True):
                with self.transfers.clock:
                    wait(works)
                divide(piece, self.transfers.size)
            return list(flat.split([len(tensor) for tensor in sums]))

        return means_of_all

    def _by_swap(self, rows: list[Tensor], add_up: Sum, clock: AbstractContextManager[object]) -> Later:
        """Begin to exchange the rows [1, k] with the only other process.

        As many bytes as in an all-reduce, and the division is part of the pass that adds.
        """
        flat = side_by_side(rows)
        both = [flat]
        both.insert(1 - self.transfers.rank, torch.empty_like(flat))
        with clock:
            receives, sends = self.transfers.start([flat, flat], both)

        def means_of_both() -> list[Tensor]:
            with self.transfers.clock:
                wait([*receives, *sends])
            (mean,) = flat
            if not backend_of(flat.device).mean_in_order(both, mean):
                mean.copy_(divide(add_up(strided(torch.cat(both))), 2))
            both.clear()  # frees what was received
            return list(mean.split([tensor.shape[1] for tensor in rows]))

        return means_of_both

    def _by_slices(
        self, rows: list[Tensor], add_up: Sum, clock: AbstractContextManager[object]
    ) -> list[Tensor]:
        """Every process receives all n rows of its slices, adds them, and sends the means to the others.

        A round of slices is added while the next rounds are in flight. Where ``add_up`` adds rows in order, a
        loop does so without a copy. Messages are sent and awaited within ``clock``.
        """
        transfers, sizes = self.transfers, [tensor.shape[1] for tensor in rows]
        flat = side_by_side(rows)  # [W, columns]
        num_workers, columns = flat.shape
        means = flat[0] if num_workers == 1 else flat.new_empty(columns)
        rounds = slices(sizes, transfers.world_size)
        terms, arrivals = [], []
        departures: list[Work] = []
        with clock:
            for of_round in rounds:
                outgoing = [flat[:, of.start : of.stop].contiguous() for of in of_round]
                incoming = list(flat.new_empty(transfers.world_size - 1, *outgoing[transfers.rank].shape))
                incoming.insert(transfers.rank, outgoing[transfers.rank])
                receives, sends = transfers.start(outgoing, incoming)
                terms.append(incoming)
                arrivals.append(receives)
                departures += sends
        for of_round, incoming, receives in zip(rounds, terms, arrivals, strict=True):
            own = of_round[transfers.rank]
            with clock:
                wait(receives)
            self._write_means(own, incoming, add_up, means)
            with clock:
                # The means may overwrite rows in ``flat``: the sender of the means has received these rows.
                parts = [means[of.start : of.stop] for of in of_round]
                receives, sends = transfers.start([parts[transfers.rank]] * transfers.world_size, parts)
                departures += [*receives, *sends]
        with clock:
            wait(departures)
        return list(means.split(sizes))

    def _write_means(self, own: Slice, terms: list[Tensor], add_up: Sum, means: Tensor) -> None:
        """Write the means of the ``terms`` of a slice, [W, len(own)] per process, into ``means``."""

        def parts(start: int, stop: int) -> list[Tensor]:
            return [of[:, start - own.start : stop - own.start] for of in terms]

        for ordered, of_kind in groupby(own.blocks, lambda block: adds_in_order(self.transfers.size, *block)):
            blocks = list(of_kind)
            start, stop = blocks[0][0], blocks[-1][1]
            backend = backend_of(self.transfers.device)
            if not (ordered and backend.mean_in_order(parts(start, stop), means[start:stop])):
                for start, stop in blocks:
                    means[start:stop] = divide(
                        add_up(strided(torch.cat(parts(start, stop)))), self.transfers.size
                    )
