"""Construction of a training from a config."""

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args, get_type_hints

import torch
import yaml

from compressors.build import build_reducer
from compressors.core.randomness import derive_seed, generator
from compressors.kernels import choice
from data.protocols import Dataset
from trainers.comm.agreement import first_process_first
from trainers.comm.communicator import Communicator
from trainers.comm.nodes import nodes_of
from trainers.config.installed import CONF
from trainers.config.instantiation import make
from trainers.config.targets import check_factories, named, parameters_of
from trainers.files.plain import Config
from trainers.launch.device import choose_device
from trainers.launch.memory import require_memory
from trainers.requirements import require_trainable
from trainers.step.layout import Layout
from trainers.step.local import Rounds, bytes_of_a_worker
from trainers.training import Training

_WITHOUT_DATA = ("local", "trainer", "checkpoint", "schedule", "compressor", "wire", "diagnostics")


def check_parts(config: Config, num_processes: int) -> None:
    """Check the parts of a config that need neither data nor model; used also for a finished run.

    Raises ``ConfigError`` and ``ValueError`` for settings with which ``num_processes`` cannot train.
    """
    check_factories(config)
    choose_device(config["device"], num_processes, 0)
    for group in _WITHOUT_DATA:
        make(config[group])


def build_training(config: Config, communicator: Communicator, device: torch.device) -> Training:
    """The training that the config describes, checked but not started.

    Raises ``ConfigError`` and ``ValueError`` for settings that cannot be built.
    """
    check_factories(config)
    choice.choose(config["kernels"])
    settings = make(config["trainer"])
    schedule = make(config["schedule"])
    method = make(config["compressor"])
    wire = make(config["wire"])
    with first_process_first(communicator):  # only the first process downloads
        dataset: Dataset = make(config["data"]).to(device)
    torch.manual_seed(derive_seed("model", config["seed"]))  # the same initial weights in all processes
    arguments = dataset.model_arguments()
    _require_match(config["model"], config["data"]["_target_"], set(arguments))
    with first_process_first(communicator):  # it may leave results on disk for the others
        model = make(config["model"], **arguments).to(device)
    if settings.channels_last:
        model = model.to(memory_format=torch.channels_last)
    layout = Layout(dict(model.named_parameters()), config["scope"])
    nodes = None if config.get("nodes") is None else nodes_of(communicator, config["nodes"])
    if device.type == "cpu":
        rows = 1 + len(communicator.local_workers) + (len(nodes.across.local_workers) if nodes else 0)
        require_memory(4 * layout.num_parameters * rows, "the gradients of all workers")
    optimizer, local = make(config["optimizer"])(model), make(config["local"])
    if local is not None and device.type == "cpu":
        own = bytes_of_a_worker(optimizer, layout)
        require_memory(own * len(communicator.local_workers), "the workers' weights and moments")
    feedback = make(config["feedback"])
    diagnostics = make(config["diagnostics"])
    seed, local_workers = config["seed"], communicator.local_workers
    loader = dataset.loader(communicator.size, local_workers, settings.batch_size, partial(generator, seed))
    if local is not None:
        loader = Rounds(loader, local.steps_at_once, communicator)
    training = Training(
        model=model,
        dataset=dataset,
        reducer=build_reducer(method, layout.num_parameters, feedback, wire),
        optimizer=optimizer,
        schedule=schedule,
        layout=layout,
        communicator=communicator,
        loader=loader,
        settings=settings,
        seed=seed,
        diagnostics=diagnostics,
        local=local,
        nodes=nodes,
    )
    require_trainable(training)
    return training


def _require_match(settings: Config, data: str, arguments: set[str]) -> None:
    """Raise ``ValueError`` for a model that does not take the ``arguments`` of this kind of data."""
    model = settings["_target_"]
    parameters = parameters_of(model)
    if not arguments <= parameters.keys():
        own, theirs = (target.rpartition(".")[2] for target in (model, data))
        raise ValueError(f"{own} cannot be trained on the data of {theirs}{_remedy(data, parameters)}")
    decided = sorted(arguments & settings.keys())
    if decided:
        raise ValueError(f"model.{decided[0]} has no effect: the dataset sets this argument")


def _remedy(data: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """The end of an error: the objectives of the same ``data`` that fit a model, or else the data that do."""
    fitting = [kind for kind in _kinds_of(data) if hasattr(kind, "objective") and _fits(kind, parameters)]
    if fitting:
        return f"; data.objective must be {' or '.join(kind.objective for kind in fitting)}"
    choices = ", ".join(_fitting_data(parameters))
    return f"; data must be one of {choices}" if choices else ""


def _fitting_data(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The choices of conf/data whose default settings provide the arguments of a model."""
    found = []
    for path in sorted((CONF / "data").glob("*.yaml")):
        default = _kinds_of(yaml.safe_load(path.read_text())["_target_"])[0]
        if _fits(default, parameters):
            found.append(path.stem)
    return found


def _kinds_of(data: str) -> tuple[Any, ...]:
    """The classes of datasets that a factory returns, that of its default settings first."""
    returned = get_type_hints(named(data)).get("return")
    return get_args(returned) or (returned,)


def _fits(kind: Any, parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether datasets of a class provide the arguments of a model.

    The class declares its arguments in the return type of ``model_arguments`` (``data.protocols``).
    """
    required = {name for name, p in parameters.items() if p.default is p.empty}
    provided = get_type_hints(get_type_hints(kind.model_arguments)["return"]).keys()
    return required <= provided <= parameters.keys()
