"""One host of the network benchmark, controlled by network.py through lines of JSON.

This project's methods take the steps of run.py's trainer. torch's DistributedDataParallel with its hooks
trains the same model on the same batches with the same optimizer. Before each rate a host reports that it is
ready and waits until the links have it.
"""

import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.fleet import Channel, core_of, open_channel
from compressors.kernels.choice import chosen
from trainers.comm.communicator import Communicator
from trainers.config.composition import compose
from trainers.launch.memory import keep_freed_memory
from trainers.launch.process_group import process_group
from trainers.network_model.break_even import NAME as BREAK_EVEN
from trainers.network_model.step_costs import StepCosts
from trainers.run.build import build_training
from trainers.step.advance import Advance
from trainers.step.gradients import seed_worker
from trainers.training import Training

LENGTH = (
    "trainer.steps=1000000",
    "trainer.log_every=1000000",
    "trainer.evaluate_every=1e6",
)  # none is reached


def build(overrides: list[str]) -> tuple[Training, str]:
    """The training of a config, on this host, and its choice of kernels."""
    process, processes = dist.get_rank(), dist.get_world_size()
    config = compose([*overrides, f"workers={processes}", "tracker=none", *LENGTH])
    reduction = config["trainer"]["reduction"]
    communicator = Communicator(processes, rank=process, world_size=processes, reduction=reduction)
    return build_training(config, communicator, torch.device("cpu")), config["kernels"]


class Ours:
    """Takes steps of this project's trainer."""

    def __init__(self, training: Training, kernels: str) -> None:
        training.model.train()
        self.kernels = kernels
        self.state = training.new_state()
        self.advance = Advance(self.state, training.loader, training.communicator)
        self.costs = StepCosts(training.reducer, training.layout, training.communicator)

    def __call__(self) -> dict[str, float]:
        """The seconds of a step and its parts."""
        with chosen(self.kernels):  # a process has one choice at a time, for all trainings
            outcome = self.advance(1.0, measure=False)
        self.costs.add(outcome.parts, self.state.ledger)
        taken = outcome.parts
        return {
            "step": outcome.step_seconds,
            "gradient": taken.gradient_seconds,
            "compression": taken.reduce_seconds - taken.communication_seconds,
            "communication": taken.communication_seconds,
            "update": outcome.update_seconds,
        }

    def break_even(self) -> float | None:
        return self.costs.summary().get(BREAK_EVEN)


class Ddp:
    """Takes steps of DDP with one of torch's hooks."""

    def __init__(self, training: Training, method: str) -> None:
        # Over gloo the PowerSGD hook needs a single bucket. With several, processes begin the second round of
        # messages in different orders and abort.
        bucket = {"bucket_cap_mb": 100} if method == "ddp_powersgd" else {}
        self.parallel = DistributedDataParallel(
            training.model, broadcast_buffers=False, gradient_as_bucket_view=True, **bucket
        )
        if method == "ddp_fp16":
            self.parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif method == "ddp_powersgd":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            self.parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        self.parallel.train()
        self.training = training
        self.optimizer = training.optimizer
        self.step = 0

    def __call__(self) -> dict[str, float]:
        """The seconds of a step and its parts."""
        training = self.training
        started = time.perf_counter()
        (batch,) = training.loader.batches(self.step)
        seed_worker(training.seed, self.step, training.communicator.rank)
        begun = time.perf_counter()
        self.parallel.zero_grad()
        loss, _ = training.dataset.task.loss(self.parallel, batch, None)
        loss.backward()
        computed = time.perf_counter()
        self.optimizer.step()
        ended = time.perf_counter()
        self.step += 1
        return {"step": ended - started, "gradient": computed - begun, "update": ended - computed}

    def break_even(self) -> None:
        """None, because torch's steps are not compared with ``compressor=none``."""


def take_turns(job: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Take a few steps of several trainings in turn at every rate."""
    trainings = []
    for one in job["trainings"]:
        training, kernels = build(one["overrides"])
        is_ddp = one["method"].startswith("ddp")
        trainings.append(Ddp(training, one["method"]) if is_ddp else Ours(training, kernels))
    found = []
    for steps in job["steps"]:  # of a turn; those of the first rate warm up
        turns: list[list[dict[str, float]]] = [[] for _ in trainings]
        for turn in range(job["rounds"]):
            for position in range(len(trainings))[:: -1 if turn % 2 else 1]:
                _, *taken = [trainings[position]() for _ in range(1 + steps)]  # the first one fills caches
                turns[position].append(
                    {part: statistics.median(times[part] for times in taken) for part in taken[0]}
                )
        found.append(turns)
        channel.send(at="the end of a rate")
        channel.receive()
    return {"turns": found[1:], "break_even": [training.break_even() for training in trainings]}


def main() -> None:
    channel = open_channel()
    os.sched_setaffinity(0, {core_of(int(os.environ["RANK"]))})
    torch.set_num_threads(1)
    keep_freed_memory()  # for torch's methods too, because this difference is not due to compression
    with process_group(torch.device("cpu"), timeout_seconds=600):
        channel.send(at="ready")
        channel.send(**take_turns(channel.receive(), channel))
        channel.receive()  # waits for the end of all hosts


if __name__ == "__main__":
    main()
