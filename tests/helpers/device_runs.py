"""Whole trainings on the pretended device, and what the host waited for in them."""

import importlib.util
import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from configs import CONF, resolved
from pretended_device import CUDA, Wait, pretended_device
from pretended_nccl import pretended_nccl
from resuming import config_of, crash_after, outcome
from resuming import train as finished

import run
from compressors.api import Codec, Reducer
from compressors.build import build_reducer
from compressors.testing.cases import Case, cases_in, cases_of
from trainers.communicator import Communicator
from trainers.loop import Trainer

ROOT = CONF.parent
# Two epochs of a small network, so that densities and regimes that follow epochs change
SETTINGS = (
    "experiment=quick",
    "model.hidden=[8]",
    "model.dropout=0.1",
    "workers=2",
    "budget.density=0.1",
    "optimizer.momentum=0",
    "optimizer.nesterov=false",
    "trainer.epochs=null",
    "trainer.steps=6",
    "trainer.batch_size=384",
    "schedule=constant",
    "tracker=none",
)
NUM_LAYERS, NUM_WORKERS = 4, 2
IN_STEP = "trainers/advance.py:__call__"


def methods() -> dict[str, Case]:
    """Every method of conf/compressor and of examples/methods, with every example that it gives."""
    found = cases_in(CONF)
    for path in sorted((ROOT / "examples" / "methods").glob("*.py")):
        found += cases_of(*_classes_in(path))
    return {str(case): case for case in found}


def _classes_in(path: Path) -> list[Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [value for value in vars(module).values() if inspect.isclass(value)]
    return [kind for kind in own if issubclass(kind, (Codec, Reducer)) and kind.__module__ == path.stem]


def options(group: str) -> list[str]:
    """The yamls of a group, those to come too."""
    return [path.stem for path in sorted((CONF / group).glob("*.yaml"))]


class _Records:
    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def log(self, record: dict[str, float]) -> None:
        self.last |= {name: value for name, value in record.items() if not name.startswith("time/")}


def train(
    overrides: Sequence[str], method: str, device: torch.device, process: int = 0, processes: int = 1
) -> dict[str, Any]:
    """What a training left: its records, and its weights on the CPU."""
    config = resolved(*SETTINGS, *overrides)
    communicator = Communicator(
        config["workers"],
        process=process,
        processes=processes,
        device=device,
        reduction=config["trainer"]["reduction"],
    )
    trainer = run.build(config, communicator, device)
    if method:
        trainer = _with_method(trainer, config, method)
    records = _Records()
    trainer.run(records)
    weights = torch.cat([p.detach().flatten().cpu() for p in trainer.model.parameters()])
    return {"records": records.last, "weights": weights}


def _with_method(trainer: Trainer, config: dict[str, Any], name: str) -> Trainer:
    feedback = run.instantiate(config["feedback"], _convert_="all")
    wire = run.instantiate(config["wire"], _convert_="all")
    method = methods()[name].method(threshold=0.02)
    size = trainer.layout.num_parameters
    return replace(trainer, reducer=build_reducer(method, size, feedback, wire))


@contextmanager
def _nowhere() -> Iterator[list[Wait]]:
    yield []


def train_all(
    process: int, processes: int, trainings: list[tuple[str, list[str]]], folder: str = ""
) -> dict[str, Any]:
    """``train`` of each (method, overrides) on the device and, if alone, on the CPU.

    By method and overrides: what was not equal on the CPU, an error, the waits per step by cause and place,
    and what was handed to NCCL.
    """
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        calls: list[Any] = []
        if processes > 1:
            calls = stack.enter_context(pretended_nccl(f"{folder}/meeting", process, processes))
        for method, overrides in trainings:
            name = " ".join([method, *overrides])
            calls.clear()
            with pretended_device() as waits:
                if processes > 1:
                    torch.distributed.barrier()
                try:
                    on_device = train(overrides, method, CUDA, process, processes)
                except Exception as error:
                    if processes > 1:
                        raise
                    found[name] = {"error": f"{type(error).__name__}: {error}"}
                    continue
            found[name] = {
                "waits": [list(wait) for wait in waits],
                "calls": [[list(call) for call in group] for group in calls],
                "weights": on_device["weights"],
                "records": on_device["records"],
            }
            if processes == 1:
                found[name]["unlike"] = _unlike(train(overrides, method, torch.device("cpu")), on_device)
    return found


def _unlike(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What differs between two trainings."""
    unlike = [] if torch.equal(expected["weights"], found["weights"]) else ["weights"]
    one, other = expected["records"], found["records"]
    return unlike + [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]


def run_all(process: int, processes: int, runs: list[list[str]], folder: str) -> dict[str, Any]:
    """run.py's training with each of these overrides: on the device, broken off and gone on with; on the CPU.

    By overrides: what of the records, the summary and the last checkpoint differs, and the waits by place.
    """
    found: dict[str, Any] = {}
    for number, overrides in enumerate(runs):
        name, settings = " ".join(overrides), [*SETTINGS, "checkpoint.every_steps=2", *overrides]
        outcomes = []
        with pretended_device() as waits:
            config = config_of(Path(folder, f"{number}"), *settings, "device=cuda")
            with crash_after(4):
                run.train(config)
            run.train(config)
            outcomes.append(outcome(config))
        config = config_of(Path(folder, f"{number}-cpu"), *settings, "device=cpu")
        outcomes.append(finished(config))
        one, other = ({**own["tensors"], **own["summary"], "records": own["records"]} for own in outcomes)
        found[name] = {
            "unlike": [key for key in one.keys() | other.keys() if not _equal(one.get(key), other.get(key))],
            "waits": [list(wait) for wait in waits],
        }
    return found


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)
