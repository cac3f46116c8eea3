"""The only place where bytes move between workers, and the only place where they are counted."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

KINDS = ("values", "indices", "padding", "metadata")


class Communicator:
    """n workers, of which the W = n / P with ``ranks`` live in this process, one of P.

    One process holding all workers and n processes holding one each run the same code. What a
    worker hands to a collective is charged to it once, from the tensor itself, as if it were
    alone on its machine; local workers are charged although nothing has to travel between them.
    Raises ``ValueError`` when n is not a multiple of P.
    """

    def __init__(
        self, workers: int, *, process: int = 0, processes: int = 1, device: torch.device | str = "cpu"
    ) -> None:
        if workers % processes:
            raise ValueError(f"workers must be a multiple of processes ({processes}), got {workers}")
        local = workers // processes
        self.size = workers
        self.process = process
        self.processes = processes
        self.device = torch.device(device)
        self.ranks = range(process * local, (process + 1) * local)
        self._charged = torch.zeros(local, len(KINDS), dtype=torch.int64)

    def mean(self, sums: list[Tensor]) -> list[Tensor]:
        """Sums over the local workers to means over all workers, by one all-reduce.

        Each worker is charged for one tensor of every shape given. The inputs are reused.
        """
        for tensor in sums:
            self._charge("values", [tensor.nbytes] * len(self.ranks))
        if self.processes > 1:
            flat = torch.cat([tensor.flatten() for tensor in sums])
            dist.all_reduce(flat)
            pieces = flat.split([tensor.numel() for tensor in sums])
            sums = [piece.view_as(tensor) for piece, tensor in zip(pieces, sums, strict=True)]
        return [tensor.div_(self.size) for tensor in sums]

    def gather(self, rows: Tensor, kind: str) -> Tensor:
        """``[W, ...]`` to ``[n, ...]``, workers in order, charged under ``kind``."""
        self._charge(kind, [rows[0].nbytes] * len(rows))
        return self.collect(rows)

    def gather_ragged(self, rows: list[Tensor], lengths: list[int], kind: str) -> list[Tensor]:
        """W vectors to n vectors, whose ``lengths`` (of all n) are known; no padding travels."""
        self._charge(kind, [row.nbytes for row in rows])
        if self.processes == 1 or not any(lengths):
            return rows if self.processes == 1 else [rows[0]] * self.size
        local = torch.cat(rows).view(torch.uint8)
        per_process = torch.tensor(lengths).mul(rows[0].itemsize).view(self.processes, -1).sum(1).tolist()
        received = local.new_empty(sum(per_process))
        dist.all_to_all_single(
            received, local.repeat(self.processes), per_process, [len(local)] * self.processes
        )
        return list(received.view(rows[0].dtype).split(lengths))

    def take_charges(self) -> Tensor:
        """Bytes per local worker and kind, [W, 4] int64, since the last call."""
        charged = self._charged.clone()
        self._charged.zero_()
        return charged

    # What follows serves measurement and control. It is not part of the algorithm and not charged.

    def collect(self, rows: Tensor) -> Tensor:
        """``[W, ...]`` to ``[n, ...]``, workers in order, not charged."""
        if self.processes == 1:
            return rows
        sent = rows.contiguous().to(self.device)
        received = [torch.empty_like(sent) for _ in range(self.processes)]
        dist.all_gather(received, sent)
        return torch.cat(received).to(rows.device)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over processes, not charged."""
        if self.processes > 1:
            tensor = tensor.to(self.device)
            dist.all_reduce(tensor)
        return tensor

    def largest(self, number: int) -> int:
        """The largest of the processes' numbers, not charged."""
        if self.processes == 1:
            return number
        tensor = torch.tensor([number], device=self.device)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def broadcast(self, tensors: list[Tensor]) -> None:
        """Overwrite ``tensors`` with those of the first process, not charged."""
        if self.processes > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    @contextmanager
    def first_process_first(self) -> Iterator[None]:
        """Let the first process through alone, the others when it has finished: for downloads."""
        if self.process > 0:
            self.largest(0)
        try:
            yield
        finally:  # also when it fails: the others then meet the same failure by themselves
            if self.process == 0:
                self.largest(0)

    def _charge(self, kind: str, per_worker: list[int]) -> None:
        self._charged[:, KINDS.index(kind)] += torch.tensor(per_worker)


def world() -> tuple[int, int, int]:
    """(process, processes, process on this machine) as torchrun announces them, or (0, 1, 0)."""
    environment = os.environ
    return tuple(int(environment.get(key, default)) for key, default in _WORLD)


_WORLD = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))


@contextmanager
def process_group(device: torch.device, *, always: bool = False) -> Iterator[None]:
    """Join the other processes that a launcher started: gloo on CPU, NCCL on GPUs.

    A process that is alone joins nothing, unless ``always``.
    """
    _, processes, _ = world()
    if processes == 1 and not always:
        yield
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(backend, **(alone if processes == 1 else {}))
    try:
        yield
        dist.barrier()  # gloo: a process that leaves early can make another one abort
    finally:
        dist.destroy_process_group()
