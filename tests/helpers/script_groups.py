"""Scripts with ``compress``: processes of several groups, many models, calls of single processes."""

import gc
import resource
import time
import weakref
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from own_script import WIDTH, batch, loss_of, network
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainers.hooks.compress import compress

OPEN_FILES = 256


def _gradient(process: int, group: dist.ProcessGroup | None = None) -> float:
    """A gradient that is the mean of the group's ranks: a gather of all entries, and no compression."""
    found = []
    for method in ("top_k", "none"):
        ddp_model = DistributedDataParallel(nn.Linear(4, 1, bias=False), process_group=group)
        compress(ddp_model, method, **({"density": 1.0} if method == "top_k" else {}))
        ddp_model(torch.full((1, 4), float(process))).sum().backward()
        found.append(ddp_model.module.weight.grad[0, 0].item())
    assert found[0] == found[1]
    return found[0]


def gradients_beside_groups(process: int, processes: int) -> list[float]:
    """Gradients of models of the world and of subgroups, while each process belongs to other groups."""
    dist.new_group([0])
    found = [_gradient(process)]
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    found.append(_gradient(process, halves[process // 2]))
    dist.new_group([1, 2])
    for ranks in ([0, 1, 2], [1, 2, 3]):  # the second model is trained by other processes
        group = dist.new_group(ranks)
        if process in ranks:
            found.append(_gradient(process, group))
    return [*found, _gradient(process)]


def _impatient() -> DistributedDataParallel:
    """A model whose group has a short timeout; made when all processes are here."""
    dist.barrier()
    return DistributedDataParallel(network(), process_group=dist.new_group(timeout=timedelta(seconds=1)))


def alone(process: int, processes: int) -> list[str]:
    """The errors of the only process that compresses its model, takes a step, and asks for a summary."""
    ddp_model = _impatient()
    said = []
    if process == 0:
        try:
            compress(ddp_model, "none")
        except RuntimeError as error:
            said.append(str(error))
    for call in ("step", "summary"):
        ddp_model = _impatient()
        state = compress(ddp_model, "none")
        loss = loss_of(ddp_model, batch(0, process))
        if process == 0:
            try:
                loss.backward() if call == "step" else state.summary()
            except RuntimeError as error:
                said += error.__notes__
    return said


def many_models(process: int, processes: int, number: int) -> dict[str, Any]:
    """Descriptors and threads of ``number`` compressed models, all of which exist at the end."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    models, counts = [], []
    for _ in range(number):
        models.append(DistributedDataParallel(nn.Linear(4, 1, bias=False)))
        compress(models[-1], "top_k", density=0.5)
        models[-1](torch.ones(1, 4)).sum().backward()
        counts.append([len(list(Path("/proc/self", kind).iterdir())) for kind in ("fd", "task")])
    return {"counts": counts[1:]}


def is_freed_with_its_model(process: int, processes: int) -> bool:
    gc.disable()
    ddp_model = DistributedDataParallel(nn.Linear(4, 1, bias=False))
    state = weakref.ref(compress(ddp_model, "top_k", density=0.5))
    ddp_model(torch.ones(1, 4)).sum().backward()
    del ddp_model
    return state() is None


def metrics_of_one_process(process: int, processes: int) -> list[bool]:
    """After each step, whether the first process's own call gives what all processes compute together."""
    ddp_model = DistributedDataParallel(network())
    state = compress(ddp_model, "hard_threshold", threshold=1.0, scaler=torch.amp.GradScaler("cpu"))
    logged: list[dict[str, float]] = []
    for step in range(4):
        loss = loss_of(ddp_model, batch(step, process))
        (loss * (torch.inf if step == 2 and process == 1 else 1.0)).backward()  # the third step is skipped
        if process == 0:
            logged.append(state.metrics())
        together = state.ledger.metrics()
        if process == 0:
            logged[-1] = {"same": all(logged[-1][name] == together[name] for name in together)}
    return [entry["same"] for entry in logged]


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, inputs: Tensor) -> Tensor:
        return inputs.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        raise KeyError("the script's own")


def summary_after_a_failure(process: int, processes: int) -> bool:
    """Whether ``summary`` has the sums of the last whole step after a backward pass that failed in its midst.

    The second process is late, so the first one's thread is in its first bucket when ``summary`` is called,
    and that of the second process has ended.
    """
    layers = network()
    ddp_model = DistributedDataParallel(nn.ModuleList(layers), bucket_cap_mb=0.005)
    ddp_model.module.forward = lambda inputs, fails: _through(layers, inputs, fails)
    state = compress(ddp_model, "top_k", density=0.1)
    for _ in range(2):
        ddp_model(batch(0, process), False).square().sum().backward()
    before = state.metrics()
    loss = ddp_model(batch(1, process), True).square().sum()
    time.sleep(process)
    try:
        loss.backward()
    except KeyError:
        time.sleep(0.5 * process)
        found = state.summary()
    return all(found[name] == before[name] for name in ("step", "compression/total_error"))


def _through(layers: nn.Module, inputs: Tensor, fails: bool) -> Tensor:
    for place, layer in enumerate(layers):
        inputs = layer(_Fails.apply(inputs) if fails and place == 2 else inputs)
    assert inputs.shape[1] == WIDTH
    return inputs
