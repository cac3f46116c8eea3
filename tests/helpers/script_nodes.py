"""Scripts with ``compress(..., within=...)``: four processes in two nodes."""

import os
from typing import Any

import torch
import torch.distributed as dist
from own_script import BUCKET_MEGABYTES, STEPS, batch, loss_of, network, weights
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainers.hooks.compress import compress
from trainers.hooks.ddp import CompressionState

HALF = 2


class Script:
    """A user's script, compressed within ``within``; ``worker`` chooses this process's batches."""

    def __init__(self, within: Any, worker: int) -> None:
        self.worker, self.model = worker, network()
        self.ddp_model = DistributedDataParallel(self.model, bucket_cap_mb=BUCKET_MEGABYTES)
        self.state: CompressionState = compress(
            self.ddp_model, "hard_threshold", density=0.01, feedback="ef", within=within
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def run(self, first: int, last: int) -> torch.Tensor:
        for number in range(first, last):
            self.optimizer.zero_grad()
            loss_of(self.ddp_model, batch(number, self.worker)).backward()
            self.optimizer.step()
        return weights(self.model)


def as_machine_of_two(process: int) -> None:
    """Set torchrun's variables as on machines with two processes each."""
    os.environ |= {"LOCAL_RANK": str(process % 2), "LOCAL_WORLD_SIZE": "2"}


def in_two_nodes(process: int, processes: int) -> dict[str, Any]:
    """Trainings in the nodes of torchrun's machines, and in nodes of every other process; a resumed one."""
    as_machine_of_two(process)
    script = Script("node", process)
    found: dict[str, Any] = {
        "weights": script.run(0, STEPS),
        "sends": script.state.communicator.group is not None,
    }
    metrics = script.state.metrics() if process == 3 else {}  # asked for by one process alone
    together = script.state.ledger.metrics()
    found |= {"metrics": together, "alone": all(metrics[k] == together[k] for k in together if process == 3)}
    found["summary"] = script.state.summary()

    halves = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    worker = (0, 2, 1, 3)[process]  # the first node has the batches of workers 0 and 1 again
    found["interleaved"] = Script(halves[process % 2], worker).run(0, STEPS)

    first = Script("node", process)
    first.run(0, HALF)
    second = Script("node", process)
    second.model.load_state_dict(first.model.state_dict())
    second.state.load_state_dict(first.state.state_dict())
    found["resumed"] = second.run(HALF, STEPS)
    found["names"] = sorted(name for name in second.state.state_dict() if name.startswith("worker/"))
    return found


def refused_nodes(process: int, processes: int) -> list[str]:
    """The errors for nodes of unequal size, nodes that overlap, and no variables of torchrun."""
    of_three, of_one = dist.new_group([0, 1, 2]), dist.new_group([3])
    overlapping = dist.new_group([0, 1]), dist.new_group([1, 2, 3])
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    said = []
    for within in (of_three if process < 3 else of_one, overlapping[process > 0], "node", 2):
        try:
            compress(DistributedDataParallel(nn.Linear(2, 2)), "top_k", density=0.5, within=within)
        except ValueError as error:
            said.append(str(error))
    return said
