"""Construction of a training from a config."""

import inspect
from collections.abc import Mapping
from functools import partial
from typing import get_args, get_type_hints

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
        fitting = ", ".join(_fitting_data(parameters))
        remedy = f"; data must be one of {fitting}" if fitting else ""
        own, theirs = (target.rpartition(".")[2] for target in (model, data))
        raise ValueError(f"{own} cannot be trained on the data of {theirs}{remedy}")
    decided = sorted(arguments & settings.keys())
    if decided:
        raise ValueError(f"model.{decided[0]} has no effect: the dataset sets this argument")


def _fitting_data(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The choices of conf/data whose default settings provide the arguments of a model.

    A dataset's class declares its arguments in the return type of ``model_arguments`` (``data.protocols``).
    """
    required = {name for name, p in parameters.items() if p.default is p.empty}
    found = []
    for path in sorted((CONF / "data").glob("*.yaml")):
        returned = get_type_hints(named(yaml.safe_load(path.read_text())["_target_"]))["return"]
        default = (*get_args(returned), returned)[0]  # the first of several kinds
        provided = get_type_hints(get_type_hints(default.model_arguments)["return"]).keys()
        if required <= provided <= parameters.keys():
            found.append(path.stem)
    return found
