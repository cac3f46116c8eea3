"""One host of the network benchmark, controlled by network.py through lines of JSON.

This project's methods run through run.py's trainer. torch's DistributedDataParallel with its hooks trains the
same model on the same batches with the same optimizer. Before each window of steps a host reports that it is
ready and waits until the links have the window's rate.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import train
from collectives import DENSE, TINY_CALLS, count_calls, tiny_calls
from fleet import Channel, open_channel
from network_measured import DENSE_CALLS
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from compressors.none import NoCompression
from trainers import loop
from trainers.comm.communicator import Communicator
from trainers.evaluation import evaluate
from trainers.launch.memory import keep_freed_memory
from trainers.launch.process_group import process_group
from trainers.loop import run
from trainers.network_model.break_even import NAME as BREAK_EVEN
from trainers.settings import WORKER_ORDER
from trainers.step.advance import Advance, Outcome, Reduced
from trainers.step.gradients import seed_worker
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

ALONE_STEPS = 5
MANY = 10**6  # steps of a training that is stopped earlier
PARTS = ("step", "gradient", "reduce", "communication", "update")


class Reached(Exception):
    """A training has reached the target accuracy or its last step."""


def window(channel: Channel, calls: Counter[str]) -> None:
    """Report the end of a window, and wait until the counters are read and the links have the next rate."""
    channel.send(calls=dict(calls))
    calls.clear()
    channel.receive()


class Windows:
    """A tracker that divides a training into windows of steps and records their times."""

    def __init__(self, channel: Channel, calls: Counter[str], steps: list[int]) -> None:
        self.channel, self.calls = channel, calls
        self.ends = [sum(steps[: i + 1]) for i in range(len(steps))]  # the first window warms up
        self.steps: list[list[dict[str, float]]] = [[] for _ in steps]

    def log(self, record: dict[str, float]) -> None:
        if "time/step_seconds" not in record:
            return
        step = int(record["step"])
        position = next(i for i, end in enumerate(self.ends) if step <= end)
        found = {name: record[f"time/{name}_seconds"] for name in PARTS}
        found["bytes"] = record.get("comm/bytes_sent", 0.0)
        found["link_bytes"] = record.get("comm/link_bytes_sent", 0.0)
        self.steps[position].append(found)
        if step in self.ends:
            window(self.channel, self.calls)


class NoTracker:
    """A tracker that ignores everything."""

    def log(self, record: dict[str, float]) -> None: ...


class Target:
    """A tracker that ends a training at an accuracy."""

    def __init__(self, accuracy: float) -> None:
        self.accuracy = accuracy
        self.reached: list[tuple[int, float]] = []

    def log(self, record: dict[str, float]) -> None:
        if "test/accuracy" in record:
            self.reached.append((int(record["step"]), record["test/accuracy"]))
            if record["test/accuracy"] >= self.accuracy:
                raise Reached


def build(job: dict[str, Any], *settings: str) -> Any:
    """The trainer of a job's config, on this host."""
    process, processes = dist.get_rank(), dist.get_world_size()
    overrides = [*job["overrides"], f"workers={processes}", "tracker=none", *settings]
    named = [word.split("=")[1] for word in overrides if word.startswith("trainer.reduction=")]
    reduction = named[-1] if named else WORKER_ORDER  # like run.py
    communicator = Communicator(processes, rank=process, world_size=processes, reduction=reduction)
    return train.build(overrides, torch.device("cpu"), communicator)


def train_by_trainer(job: dict[str, Any], channel: Channel, calls: Counter[str]) -> dict[str, Any]:
    """A training by this project's trainer."""
    steps = job["windows"]
    if not steps:
        trainer = build(job, f"trainer.steps={job['steps']}", "trainer.log_every=100000")
        every = job["evaluate_every"] * trainer.epochs_per_step
        trainer = replace(trainer, settings=replace(trainer.settings, evaluate_every=every))
        tracker = Target(job["target"])
        with suppress(Reached):
            run(trainer, tracker)
        return {"reached": tracker.reached}
    never = [
        "trainer.log_every=1000000",
        "trainer.evaluate_every=1e6",
    ]  # norms and evaluation are not timed
    trainer = build(job, f"trainer.steps={sum(steps)}", *never)
    object.__setattr__(trainer, "measure", lambda model: {})
    tracker = Windows(channel, calls, steps)

    class Watched(Advance):
        def update(self, reduced: Reduced) -> Outcome:
            outcome = super().update(reduced)
            state = self.state
            times = outcome.times()
            tracker.log({"step": state.step, **state.ledger.metrics(), **times})  # bytes are means over hosts
            return outcome

    with patch.object(loop, "Advance", Watched):
        summary = run(trainer, NoTracker())
    return {"steps": tracker.steps, "break_even": summary.get(BREAK_EVEN)}


def train_by_ddp(job: dict[str, Any], channel: Channel, calls: Counter[str]) -> dict[str, Any]:
    """A training by DistributedDataParallel with one of torch's hooks."""
    trainer = build(job, "trainer.steps=1")
    if not job["windows"]:
        tracker, advance = Target(job["target"]), stepper(trainer, trainer.model, job["method"])
        with suppress(Reached):
            for step in range(job["steps"]):
                advance(step)
                if (step + 1) % job["evaluate_every"] == 0:
                    quality = evaluate(trainer.model, trainer.dataset, trainer.communicator, 256)
                    tracker.log({"step": step + 1, **quality})
        return {"reached": tracker.reached}
    tracker = Windows(channel, calls, job["windows"])
    alone = dist.new_subgroups(1)[0]
    other = build(job, "trainer.steps=1")  # its updates fill the caches as in a training step
    advance = stepper(other, other.model, job["method"], alone)
    found: dict[str, list[float]] = {"compute": [], "alone": []}
    for step in range(1 + 2 * ALONE_STEPS):
        silent = step % 2 == 1
        parts = advance(step, silent=silent)
        if step:
            found["compute" if silent else "alone"].append(parts["time/gradient_seconds"])
    del advance, other
    advance = stepper(trainer, trainer.model, job["method"])
    for step in range(sum(job["windows"])):
        parts = advance(step)
        tracker.log({"step": step + 1, **parts})
    return {"steps": tracker.steps, **found}


def turns(job: dict[str, Any], channel: Channel, calls: Counter[str]) -> dict[str, Any]:
    """Several trainings in one process, a few steps of each in turn at every rate; times in seconds."""
    advances = []
    for one in job["jobs"]:
        trainer = build(
            one, f"trainer.steps={MANY}", "trainer.log_every=1000000", "trainer.evaluate_every=1e6"
        )
        if one["method"].startswith("ddp"):
            advances.append(stepper(trainer, trainer.model, one["method"]))
        else:
            advance = Advance(trainer.new_state(), trainer.loader, trainer.communicator)
            advances.append(partial(step_of_trainer, trainer.model, advance))
    number, found = 0, []
    for steps in job["steps"]:  # steps of a turn; the first one warms up
        times: list[list[float]] = [[] for _ in advances]
        for turn in range(job["rounds"]):
            for position in range(len(advances))[:: -1 if turn % 2 else 1]:
                taken = [advances[position](number + step)["time/step_seconds"] for step in range(1 + steps)]
                times[position].append(statistics.median(taken[1:]))
            number += 1 + steps
        found.append(times)
        window(channel, calls)
    return {"turns": found[1:]}


def step_of_trainer(model: Any, advance: Advance, _: int) -> dict[str, float]:
    """One step of this project's trainer; its times in seconds."""
    model.train()
    return advance(1.0, measure=False).times()


def stepper(trainer: Any, model: Any, method: str, alone: Any = None) -> Callable[..., dict[str, float]]:
    """A function that takes one step of DDP around ``model``, from the step's number to its times in seconds.

    With the group ``alone``, which has one process, nothing is sent.
    """
    # Over gloo the PowerSGD hook needs a single bucket. With several, processes begin the second round of
    # messages in different orders and abort.
    bucket = {"bucket_cap_mb": 100} if method == "ddp_powersgd" else {}
    parallel = DistributedDataParallel(
        model, process_group=alone, broadcast_buffers=False, gradient_as_bucket_view=True, **bucket
    )
    if method == "ddp_fp16":
        parallel.register_comm_hook(alone, default_hooks.fp16_compress_hook)
    elif method == "ddp_powersgd":
        state = powerSGD_hook.PowerSGDState(alone, matrix_approximation_rank=2, start_powerSGD_iter=2)
        parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    model.train()

    def advance(step: int, *, silent: bool = False) -> dict[str, float]:
        started = time.perf_counter()
        (batch,) = trainer.loader.batches(step)
        seed_worker(trainer.seed, step, trainer.communicator.rank)
        begun = time.perf_counter()
        parallel.zero_grad()
        with parallel.no_sync() if silent else nullcontext():
            loss, _ = trainer.dataset.task.loss(parallel, batch, None)
            loss.backward()
        computed = time.perf_counter()
        trainer.optimizer.step()
        ended = time.perf_counter()
        seconds = (ended - started, computed - begun, 0.0, 0.0, ended - computed)
        return {f"time/{name}_seconds": value for name, value in zip(PARTS, seconds, strict=True)}

    return advance


def control_of(communicator: Communicator) -> Callable[[], None]:
    """The collectives of a trainer's step that are not part of the algorithm."""
    parameter = torch.nn.Parameter(torch.zeros(1))  # one is enough: the ledger collects sums over layers
    layout = Layout({"parameter": parameter}, "layer")
    ledger = Ledger(layout, communicator, NoCompression())

    def control() -> None:
        communicator.all_reduce_max(0)  # whether a gradient is not finite
        ledger.metrics()  # for the bytes of each step

    return control


def calibrate(job: dict[str, Any], channel: Channel, calls: Counter[str]) -> dict[str, Any]:
    """Windows of known traffic: nothing, almost empty collectives, the control of a step, a dense step."""
    processes = dist.get_world_size()
    communicator = Communicator(processes, rank=dist.get_rank(), world_size=processes)
    dense = torch.zeros(DENSE)
    works: list[tuple[Callable[[], object], int]] = [
        (lambda: None, 0),
        *[(call, TINY_CALLS) for call in tiny_calls(communicator).values()],
        (control_of(communicator), TINY_CALLS),
        *[(lambda: dist.all_reduce(dense), DENSE_CALLS)] * len(job["windows"]),
    ]
    for work, times in works:
        for _ in range(times):
            work()
        window(channel, calls)
    return {}


def main() -> None:
    channel = open_channel()
    torch.set_num_threads(1)
    keep_freed_memory()  # for torch's methods too, because this difference is not due to compression
    with process_group(torch.device("cpu"), timeout_seconds=600):
        calls = count_calls()
        channel.send(at="ready")
        while (job := channel.receive()).get("method") is not None:
            method = job["method"]
            known = {"calibrate": calibrate, "turns": turns}
            work = known.get(method) or (train_by_ddp if method.startswith("ddp") else train_by_trainer)
            channel.send(done=work(job, channel, calls))


if __name__ == "__main__":
    main()
