"""Complete trainings on the pretended device, and the host's waits in them."""

import importlib.util
import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from configs import CONF, resolved
from own_script import BUCKET_MEGABYTES, batch, loss_of, network, reducer_for, weights
from planted_faults import AskingTopK, StrayTopK
from pretended_device import CUDA, Wait, disguised, pretended_device
from pretended_nccl import Group, as_plain, pretended_nccl
from resuming import config_of, crash_after, outcome
from resuming import train as finished
from torch.nn.parallel import DistributedDataParallel

from compressors.api import Codec, Reducer
from compressors.build import build_reducer
from compressors.feedback import StoredResidual
from contract.cases import Case, cases_in, cases_of
from trainers.comm.communicator import Communicator
from trainers.config.instantiation import make
from trainers.hooks.ddp import CompressionState, compression_hook
from trainers.loop import run
from trainers.requirements import require_trainable
from trainers.run import training
from trainers.run.build import build_training
from trainers.step.advance import Advance
from trainers.training import Training

ROOT = CONF.parent
# A small network. A step is an epoch, so that schedules over epochs change
SETTINGS = (
    "experiment=quick",
    "model.hidden=[8]",
    "model.dropout=0.1",
    "workers=2",
    "budget.density=0.1",
    "optimizer.momentum=0",
    "optimizer.nesterov=false",
    "trainer.epochs=null",
    "trainer.steps=3",
    "trainer.batch_size=null",
    "schedule=constant",
    "tracker=none",
)
NUM_SEGMENTS, NUM_WORKERS = 4, 2
STEP = "a step begins"
IN_STEP = ("trainers/step/advance.py:__call__",)
GRADIENTS = ("trainers/step/gradients.py:_check",)


@cache
def methods() -> dict[str, Case]:
    """Every method of conf/compressor and of examples/methods, with all of its examples."""
    found = cases_in(CONF)
    for path in sorted((ROOT / "examples" / "methods").glob("*.py")):
        found += cases_of(*_classes_in(path))
    return {str(case): case for case in found}


PLANTED = {str(case): case for case in (Case(kind, {"density": 0.1}) for kind in (AskingTopK, StrayTopK))}


def _classes_in(path: Path) -> list[Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [value for value in vars(module).values() if inspect.isclass(value)]
    return [kind for kind in own if issubclass(kind, (Codec, Reducer)) and kind.__module__ == path.stem]


def options(group: str) -> list[str]:
    """The names of all yamls of a group."""
    return [path.stem for path in sorted((CONF / group).glob("*.yaml"))]


class _Records:
    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def log(self, record: dict[str, float]) -> None:
        self.last |= {name: value for name, value in record.items() if not name.startswith("time/")}


class Refused(Exception):
    """Settings that are rejected before training, in all processes."""


def train(
    overrides: Sequence[str], method: str, device: torch.device, process: int = 0, processes: int = 1
) -> dict[str, Any]:
    """The records of a training, and its weights on the CPU.

    ``overrides`` change ``SETTINGS``, or the experiment that the first one names.
    """
    settings = ("tracker=none",) if "experiment=" in overrides[0] else SETTINGS
    config = resolved(*settings, *overrides)
    communicator = Communicator(
        config["workers"],
        rank=process,
        world_size=processes,
        device=device,
        reduction=config["trainer"]["reduction"],
    )
    try:
        trainer = build_training(config, communicator, device)
        if method:
            trainer = _with_method(trainer, config, method)
    except ValueError as error:
        raise Refused(str(error)) from error
    records = _Records()
    run(trainer, records)
    weights = torch.cat([p.detach().flatten().cpu() for p in trainer.model.parameters()])
    return {"records": records.last, "weights": weights}


def _with_method(trainer: Training, config: dict[str, Any], name: str) -> Training:
    feedback = make(config["feedback"])
    wire = make(config["wire"])
    method = (methods() | PLANTED)[name].method(threshold=0.02)
    size = trainer.layout.num_parameters
    changed = replace(trainer, reducer=build_reducer(method, size, feedback, wire))
    require_trainable(changed)
    return changed


def train_all(
    process: int, processes: int, trainings: list[tuple[str, list[str]]], folder: str = ""
) -> dict[str, Any]:
    """``train`` of each (method, overrides) on the device and, with one process, on the CPU.

    Returns by ``name_of``: differences from the CPU, an error, the waits of the host, and the calls of NCCL.
    """
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        calls: list[Group] = []
        if processes > 1:
            calls = stack.enter_context(pretended_nccl(f"{folder}/meeting", process, processes))
        for method, overrides in trainings:
            own: dict[str, Any] = {}
            found[name_of(method, overrides)] = own
            calls.clear()
            with pretended_device() as waits, _steps_marked(waits):
                if processes > 1:
                    dist.barrier()
                try:
                    on_device = train(overrides, method, CUDA, process, processes)
                except Refused as error:
                    own["error"] = f"ValueError: {error}"
                    continue
                except Exception as error:  # any error, so that the other trainings still run
                    if processes > 1:  # otherwise the other processes wait
                        raise
                    own["error"] = f"{type(error).__name__}: {error}"
                    continue
            own |= {"waits": [list(wait) for wait in waits], "calls": as_plain(calls), **on_device}
            if processes == 1:
                own["unlike"] = _unlike(train(overrides, method, torch.device("cpu")), on_device)
    return found


def name_of(method: str, overrides: Sequence[str]) -> str:
    return " ".join([method, *overrides])


@contextmanager
def _steps_marked(waits: list[Wait]) -> Iterator[None]:
    """Context manager that adds a mark to ``waits`` at the start of every step."""
    advance = Advance.__call__

    def marking(self: Advance, *args: Any, **kwargs: Any) -> Any:
        waits.append(Wait(STEP, "", IN_STEP))
        return advance(self, *args, **kwargs)

    with patch.object(Advance, "__call__", marking):
        yield


def steps_of(waits: list[Any]) -> list[list[Wait]]:
    """The waits of each step."""
    steps: list[list[Wait]] = []
    for wait in (Wait(*own) for own in waits):
        if wait.what == STEP:
            steps.append([])
        elif any(frame in wait.frames for frame in IN_STEP):
            steps[-1].append(wait)
    return steps


def part_of(wait: Wait) -> str:
    """The name in docs/gpu.md of the part of a step in which the host waited."""
    if any(frame.startswith("compressors/kernels/gpu/trial.py") for frame in wait.frames):
        return "trial"
    if wait.what == "torch.cuda.synchronize":
        return "clock"
    if any(frame in wait.frames for frame in GRADIENTS):
        return "gradients"
    if "trainers/step/gradients.py:raise_together" in wait.frames:
        return "processes"
    if "trainers/diagnostics/probe.py:reduce" in wait.frames and not _is_in(
        wait, "compressors/core/compress.py:reduce"
    ):
        return "diagnostics"
    return "reduction" if any(frame.startswith("compressors/") for frame in wait.frames) else "elsewhere"


def _is_in(wait: Wait, frame: str) -> bool:
    return frame in wait.frames


def _unlike(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """The differences of two trainings."""
    unlike = [] if torch.equal(expected["weights"], found["weights"]) else ["weights"]
    one, other = expected["records"], found["records"]
    return unlike + [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]


def run_all(process: int, processes: int, runs: list[list[str]], folder: str) -> dict[str, Any]:
    """run.py's training with each of these overrides: started on the CPU and resumed on the device, twice.

    Returns by overrides: the differences of records, summary and last checkpoint from an uninterrupted run
    on the CPU, and the waits of the host.
    """
    found: dict[str, Any] = {}
    for number, overrides in enumerate(runs):
        settings = [*SETTINGS, "checkpoint.every_steps=1", *overrides]
        config = config_of(Path(folder, f"{number}"), *settings, "device=cpu")
        with crash_after(2):
            training.train(config)
        with pretended_device() as waits, _steps_marked(waits):
            config = config_of(Path(folder, f"{number}"), *settings, "device=cuda")
            with crash_after(4):
                training.train(config)
            training.train(config)
        whole = config_of(Path(folder, f"{number}-whole"), *settings, "device=cpu")
        one, other = (
            {**own["tensors"], **own["summary"], "records": own["records"]}
            for own in (outcome(config), finished(whole))
        )
        found[" ".join(overrides)] = {
            "unlike": [key for key in one.keys() | other.keys() if not _equal(one.get(key), other.get(key))],
            "waits": [list(wait) for wait in waits],
        }
    return found


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def with_hook(process: int, processes: int, folder: str, steps: int, memory: str | None) -> dict[str, Any]:
    """A user's script with DistributedDataParallel and the hook, on the device."""
    with pretended_device() as waits, pretended_nccl(f"{folder}/meeting", process, processes) as calls:
        model = network().to("cuda")
        ddp_model = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MEGABYTES)
        reducer = reducer_for(model)
        state = CompressionState(reducer if memory is None else StoredResidual(reducer, memory=memory), model)
        ddp_model.register_comm_hook(state, disguised(compression_hook))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        waits.clear()
        for step in range(steps):
            optimizer.zero_grad()
            inputs = batch(step, process).to("cuda", non_blocking=True)
            loss_of(ddp_model, inputs).backward()
            optimizer.step()
        found = [list(wait) for wait in waits]
        result = {"weights": weights(model).cpu(), "calls": as_plain(calls), "waits": found}
        result["devices"] = {residual.device.type for residual in state.state.residual.values()}
        return result | {"summary": state.summary()}
