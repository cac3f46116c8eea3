"""Calls of every method of a communicator, by 4 workers in any number of processes."""

import numpy as np
import torch
from torch import Tensor

from trainers.comm.agreement import first_process_first, first_text
from trainers.comm.communicator import Communicator
from trainers.comm.nodes import nodes_of

WORKERS = 4
LENGTHS = np.array([[3, 0, 5, 1], [0, 2, 0, 0]])  # [segment, worker]


def add_up(rows: Tensor) -> Tensor:
    return rows.sum(0)


def of_workers(process: int, processes: int, reduction: str = "all_reduce") -> Communicator:
    """That of ``WORKERS`` workers; in more processes, each of them is a node of several processes."""
    size = max(WORKERS, processes)
    communicator = Communicator(size, rank=process, world_size=processes, reduction=reduction)
    return communicator if size == WORKERS else nodes_of(communicator, WORKERS).across


def talk(process: int, processes: int) -> dict[str, Tensor | list]:
    """The results of one-round methods in this process."""
    communicator = of_workers(process, processes, "worker_order")
    reduced = of_workers(process, processes)
    process, processes = communicator.rank, communicator.world_size
    local_workers = communicator.local_workers
    heard: dict[str, Tensor | list] = {}
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        generators = [torch.Generator().manual_seed(worker) for worker in local_workers]
        rows = torch.stack([torch.randn(1000, generator=g) for g in generators]).to(dtype)
        parts = [rows[:, :2], rows[:, 2:2], rows[:, 2:700], rows[:, 700:]]
        heard[f"mean {dtype}"] = torch.cat(
            communicator.all_reduce_mean([part.clone() for part in parts], add_up)
        )
        heard[f"all-reduced {dtype}"] = torch.cat(reduced.all_reduce_mean(parts, add_up))
        for segment, lengths in enumerate(LENGTHS.tolist()):
            rows = [torch.full((lengths[w],), 10 * segment + w + 0.5, dtype=dtype) for w in local_workers]
            tensors = [torch.zeros(0, dtype=dtype)] * segment + [torch.cat(rows)]
            wanted = np.zeros_like(LENGTHS)[: segment + 1]
            wanted[segment] = LENGTHS[segment]
            (gathered,) = communicator.all_gather_ragged([tensors], wanted, ["values"])
            heard[f"ragged {dtype} {segment}"] = gathered[segment]
        tensors = [
            torch.cat([torch.full((lengths[w],), w, dtype=dtype) for w in local_workers])
            for lengths in LENGTHS
        ]
        heard[f"several {dtype}"] = torch.cat(
            communicator.all_gather_ragged([tensors], LENGTHS, ["values"])[0]
        )
        assert heard[f"several {dtype}"].tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 3, 1, 1]
    empty = [[torch.zeros(0, dtype=torch.int32)]]
    nothing = communicator.all_gather_ragged(empty, np.zeros((1, WORKERS), dtype=np.int64), ["indices"])
    assert [len(tensor) for tensor in nothing[0]] == [0]
    told = [np.full(3 * worker, worker, dtype=np.uint8) for worker in local_workers]
    messages = communicator.all_gather_messages(
        [[("metadata", m[:1]), ("indices", m[1:])] for m in told], 100
    )
    assert [message.tolist() for message in messages] == [[w] * 3 * w for w in range(WORKERS)]
    large = np.array([[2**31 + worker for worker in local_workers]])
    assert communicator.all_gather_counts(large, 2**32).tolist() == [[2**31 + w for w in range(WORKERS)]]
    counts = torch.tensor([[worker, 10 * worker] for worker in local_workers], dtype=torch.int32)
    heard["gather"] = communicator.all_gather(counts, "metadata")
    heard["collect"] = communicator.collect(counts.double())
    heard["largest"] = torch.tensor(communicator.all_reduce_max(7 if process == 0 else 3))
    heard["sum"] = communicator.sum(torch.tensor([1.0 / processes]))
    last = process == processes - 1
    assert first_text(communicator, "") == ""
    assert first_text(communicator, "größer als gedacht" if last else "") == "größer als gedacht"
    told = torch.tensor([1.0 if process == 0 else 2.0])
    communicator.broadcast([told])
    heard["broadcast"] = told
    with first_process_first(communicator):
        pass
    link = communicator.take_link_bytes()
    heard["link"] = (link + reduced.take_link_bytes()).tolist()
    charges = communicator.take_charges()
    bytes_per_element = 4 + 8 + 2 + 2
    assert reduced.take_charges().tolist() == [[1000 * bytes_per_element, 0, 0, 0]] * len(local_workers)
    sent = 1000 + 2 * LENGTHS.sum(0)
    assert charges[:, 0].tolist() == [bytes_per_element * int(sent[worker]) for worker in local_workers]
    for row, worker in zip(charges, local_workers, strict=True):
        row[1:] -= [max(0, 3 * worker - 1), 0, min(1, worker)]  # bytes of all_gather_messages
    heard["charges"] = charges[:, 1:].tolist()
    heard["rounds"] = torch.tensor([own.clock.rounds for own in (communicator, reduced)])
    return heard


def means_of_two(process: int, processes: int, reduction: str) -> dict[str, Tensor]:
    """Means of two workers, or two nodes, begun before the first one is awaited; some are subnormal."""
    communicator = Communicator(max(2, processes), rank=process, world_size=processes, reduction=reduction)
    if processes > 2:
        communicator = nodes_of(communicator, 2).across
    ends = {}
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        rows = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        rows[:, 500:600] *= torch.finfo(dtype).tiny
        rows[:, 600:610] = -0.0
        own = rows[communicator.local_workers.start : communicator.local_workers.stop].to(dtype)
        parts = [own[:, :2], own[:, 2:2], own[:, 2:700], own[:, 700:]]
        ends[f"{dtype}"] = communicator.all_reduce_mean_later([part.clone() for part in parts])
    return {name: torch.cat(end()) for name, end in ends.items()}


def talk_in_rounds(process: int, processes: int) -> dict[str, list]:
    """Results, charged bytes and link bytes of each local worker, for the calls of multi-round methods."""
    communicator = of_workers(process, processes)
    local_workers, heard = communicator.local_workers, {}

    def note(name: str, rows: Tensor) -> None:
        heard[name] = rows.tolist()
        heard[f"{name}, bytes"] = communicator.take_charges().sum(1).tolist()
        heard[f"{name}, link"] = communicator.take_link_bytes().tolist()

    for leader in range(WORKERS):
        told = torch.arange(3.0) + leader if leader in local_workers else torch.empty(3)
        found = communicator.broadcast_from(leader, told, "indices")
        note(f"from {leader}", found.expand(len(local_workers), -1))
    addressed = torch.tensor(
        [[[10.0 * worker + other] * 2 for other in range(WORKERS)] for worker in local_workers]
    )
    note("to all", communicator.all_to_all(addressed, "values"))
    own = torch.tensor([[float(worker)] * 5 for worker in local_workers])
    for sources in ([1, 0, 3, 2], [2, 3, 0, 1], [3, 1, 2, 0], [1, 0, 1, 2]):
        values, positions = communicator.exchange([own, own[:, :0].int()], sources, ["values", "indices"])
        assert positions.shape == (len(local_workers), 0)
        note(f"from {sources}", values)
    return heard
