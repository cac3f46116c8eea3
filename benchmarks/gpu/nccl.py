"""Tests of collectives with NCCL: one process, and one process per GPU.

Every collective of the communicator is compared with its expected result, which each process computes. Then
some steps of DistributedDataParallel with a reducer as its hook are compared with the trainer's steps, bit
for bit. On a CPU the same tests run with gloo, with one and two processes.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.gpu.measuring import Options, Record, lone_group, milliseconds, synchronize
from compressors.api import Reducer
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.top_k import TopK
from data.protocols import Carry
from trainers.comm.agreement import first_text
from trainers.comm.communicator import Communicator
from trainers.hooks.ddp import CompressionState, compression_hook
from trainers.launch.device import choose_device
from trainers.launch.process_group import process_group
from trainers.launch.processes import launch
from trainers.step.explicit import ExplicitStep
from trainers.step.gradients import WorkerGradients
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

STEPS, RATE = 4, 1e-2


def measure(options: Options, record: Record) -> None:
    with lone_group(options.device):
        for name, milliseconds_taken in _run_checks(1, 0, options.device, options.quick):
            record("collectives", processes=1, what=name, ms=milliseconds_taken)
    several = torch.cuda.device_count() if options.device.type == "cuda" else 2
    if several < 2:
        record("not measured", what="NCCL with several processes", reason="this machine has one GPU")
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = {"device": options.device.type, "quick": options.quick, "folder": folder}
        launch("benchmarks.gpu.nccl:check_in_process", arguments, several)
        for line in (Path(folder) / "0").read_text(encoding="utf-8").splitlines():
            name, taken = json.loads(line)
            record("collectives", processes=several, what=name, ms=taken)


def check_in_process(arguments: dict[str, object]) -> None:
    """One of several processes; the first one writes its times to a file."""
    process, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = choose_device(str(arguments["device"]), processes, process)
    if device.type == "cpu":
        torch.set_num_threads(1)
    path = Path(str(arguments["folder"])) / str(process)
    with path.open("w", encoding="utf-8") as file, process_group(device, timeout_seconds=60):
        for row in _run_checks(processes, process, device, bool(arguments["quick"])):
            file.write(json.dumps(row) + "\n")


def _run_checks(
    processes: int, process: int, device: torch.device, quick: bool
) -> Iterator[tuple[str, float]]:
    """Run the checks; yields the name of each and its milliseconds.

    Raises ``AssertionError`` for a wrong result.
    """
    for check in (_check_torch_collectives, _check_sums, _check_gathers, _check_moves):
        synchronize(device)
        started = time.perf_counter()
        check(processes, process, device)
        synchronize(device)
        yield check.__doc__ or "", 1e3 * (time.perf_counter() - started)
    for name, reducer in (("Top-k", TopK(density=0.01)), ("threshold", HardThreshold(threshold=0.01))):
        yield f"DDP with {name} as its hook, {STEPS} steps", _check_hook(processes, process, device, reducer)
    sent = torch.ones(10_000 if quick else 2**26, device=device)  # 256 MiB
    times = milliseconds(lambda: dist.all_reduce(sent), device, rounds=3 if quick else 20)
    yield f"all-reduce of {sent.nbytes / 2**20:.1f} MiB", times.median


def _rows(worker: int, device: torch.device, *shape: int) -> Tensor:
    """A worker's rows: integers, whose sums are exact in any order."""
    generator = torch.Generator().manual_seed(worker)
    return torch.randint(-100, 100, shape, generator=generator).float().to(device)


def _check_torch_collectives(processes: int, process: int, device: torch.device) -> None:
    """torch's own: all-reduce, all-gather, broadcast, barrier"""
    own = _rows(process, device, 1001)
    everyones = [_rows(worker, device, 1001) for worker in range(processes)]
    total = own.clone()
    work = dist.all_reduce(total, async_op=True)
    work.wait()
    assert torch.equal(total, sum(everyones)), "all_reduce"
    received = [torch.empty_like(own) for _ in range(processes)]
    dist.all_gather(received, own)
    assert all(map(torch.equal, received, everyones)), "all_gather"
    first = own.clone()
    dist.broadcast(first, 0)
    assert torch.equal(first, everyones[0]), "broadcast"
    dist.barrier()


def _check_sums(processes: int, process: int, device: torch.device) -> None:
    """the communicator's means, in worker order and by all-reduce"""
    workers = 2 * processes
    mean = sum(_rows(worker, device, 1001) for worker in range(workers)) / workers
    for reduction in ("worker_order", "all_reduce"):
        of = _communicator(workers, process, processes, device, reduction)
        rows = torch.stack([_rows(worker, device, 1001) for worker in of.local_workers])
        found = of.all_reduce_mean([rows[:, :400].contiguous(), rows[:, 400:].contiguous()])
        assert torch.equal(torch.cat(found), mean), reduction


def _check_gathers(processes: int, process: int, device: torch.device) -> None:
    """the communicator's gathers: of as many, of unlike many, of none, and of messages"""
    workers = 2 * processes
    of = _communicator(workers, process, processes, device)
    everyones = [_rows(worker, device, 60) for worker in range(workers)]
    rows = torch.stack([everyones[worker] for worker in of.local_workers])
    assert torch.equal(of.all_gather(rows, "values"), torch.stack(everyones)), "all_gather"
    counts = np.array([[worker % 3 * 20 for worker in of.local_workers]])  # the first worker sends no entries
    lengths = of.all_gather_counts(counts, 60)
    assert lengths.tolist() == [[worker % 3 * 20 for worker in range(workers)]], "all_gather_counts"
    cut = [everyones[worker][: worker % 3 * 20] for worker in range(workers)]
    own = torch.cat([cut[worker] for worker in of.local_workers])
    ((found,),) = of.all_gather_ragged([[own]], lengths, ["values"])
    assert torch.equal(found, torch.cat(cut)), "all_gather_ragged"
    messages = [np.arange(worker + 1, dtype=np.uint8) for worker in range(workers)]
    arrived = of.all_gather_messages([[("values", messages[worker])] for worker in of.local_workers], 2**20)
    assert all(map(np.array_equal, arrived, messages)), "all_gather_messages"


def _check_moves(processes: int, process: int, device: torch.device) -> None:
    """the communicator's broadcast, all-to-all, exchange, and what control needs"""
    workers = 2 * processes
    of = _communicator(workers, process, processes, device)
    last = _rows(workers - 1, device, 7)
    given = last if workers - 1 in of.local_workers else torch.zeros_like(last)
    assert torch.equal(of.broadcast_from(workers - 1, given.clone(), "values"), last), "broadcast_from"
    everyones = torch.stack([_rows(worker, device, workers, 5) for worker in range(workers)])  # [n, n, 5]
    own = everyones[of.local_workers.start : of.local_workers.stop]
    expected = everyones.transpose(0, 1)[of.local_workers.start : of.local_workers.stop]
    assert torch.equal(of.all_to_all(own.clone(), "values"), expected), "all_to_all"
    partners = [workers - 1 - worker for worker in range(workers)]
    across = torch.stack([everyones[partners[worker], 0] for worker in of.local_workers])
    (found,) = of.exchange([own[:, 0].clone()], partners, ["values"])
    assert torch.equal(found, across), "exchange"
    assert of.all_reduce_max(process) == processes - 1, "largest"
    assert first_text(of, "last" if process == processes - 1 else "") == "last", "first_text"
    assert of.sum(torch.ones(3)).tolist() == 3 * [float(processes)], "sum"


def _communicator(
    workers: int, process: int, processes: int, device: torch.device, reduction: str = "worker_order"
) -> Communicator:
    return Communicator(workers, rank=process, world_size=processes, device=device, reduction=reduction)


def _network(device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]).to(device)


def _inputs(step: int, worker: int, device: torch.device) -> Tensor:
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(100 * step + worker)).to(device)


def _loss(model: nn.Module, inputs: Tensor) -> Tensor:
    return model(inputs).square().mean()


def _loss_of_worker(model: nn.Module, inputs: Tensor, memory: Carry) -> tuple[Tensor, Carry]:
    return _loss(model, inputs), memory


def _check_hook(processes: int, process: int, device: torch.device, codec: TopK | HardThreshold) -> float:
    """Milliseconds of a step; checks that the weights equal those of the trainer's step."""
    model = _network(device)
    devices = [device] if device.type == "cuda" else None
    of_torch = DistributedDataParallel(model, device_ids=devices, bucket_cap_mb=0.02)
    state = CompressionState(_reducer(codec, model), model)
    of_torch.register_comm_hook(state, compression_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    synchronize(device)
    started = time.perf_counter()
    for step in range(STEPS):
        optimizer.zero_grad()
        _loss(of_torch, _inputs(step, process, device)).backward()
        optimizer.step()
    synchronize(device)
    taken = 1e3 * (time.perf_counter() - started) / STEPS
    expected = _by_hand(processes, device, codec)
    same = all(map(torch.equal, model.parameters(), expected.parameters()))
    assert same, f"the hook's weights are not those of the trainer's step, with {codec}"
    return taken


def _by_hand(workers: int, device: torch.device, codec: TopK | HardThreshold) -> nn.Module:
    """The same training with all workers in this process."""
    model = _network(device)
    layout, communicator = (
        Layout(dict(model.named_parameters()), "layer"),
        Communicator(workers, device=device),
    )
    reducer = _reducer(codec, model)
    gradients = WorkerGradients(model, _loss_of_worker, layout, communicator, seed=0)
    step_taker = ExplicitStep(
        gradients, reducer, layout, communicator, Ledger(layout, communicator, reducer), seed=0
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        step_taker.run([_inputs(step, worker, device) for worker in range(workers)], step, RATE)
        optimizer.step()
    return model


def _reducer(codec: TopK | HardThreshold, model: nn.Module) -> Reducer:
    return build_reducer(codec, sum(p.numel() for p in model.parameters()), ErrorFeedback)
