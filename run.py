"""Compose the config, build what it names, train. `python run.py --help` lists what can be said."""

import sys

if __name__ == "__main__":  # before the imports below, in which Ctrl-C would end with a traceback
    try:
        from trainers.launch.stopping import leave_when_interrupted

        leave_when_interrupted()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trainers.config import guard as config_guard
from trainers.config import yaml_loader as config_yaml

if TYPE_CHECKING:  # what takes long to import is imported where it is used
    import torch

    from data.protocols import Dataset
    from trainers.comm.communicator import Communicator
    from trainers.loop import Trainer

config_guard.install()
Config = dict[str, Any]
statuses: list[int] = []  # of a command that failed or was stopped
begun: list[bool] = []  # of jobs: what is raised before the first one is Hydra's


class ConfigError(Exception):
    """A run that cannot start or go on, in one line for the user."""


@hydra.main(version_base="1.3", config_path=str(Path(__file__).parent / "conf"), config_name="config")
def main(config: DictConfig) -> None:
    """One job: the only one of a command, or one of a sweep."""
    from trainers.launch.jobs import Job, current_sweep, perform
    from trainers.launch.stopping import StoppedError

    begun.append(True)
    hydra_config = HydraConfig.get()
    overrides = tuple(OmegaConf.to_container(hydra_config.overrides.task, resolve=False))
    if hydra_config.mode == RunMode.MULTIRUN:
        sweep = current_sweep()
        if sweep is not None:  # else it could not start, which has been said
            job = Job(hydra_config.job.num, overrides)
            perform(sweep, job, lambda: run(resolve(config, overrides, True), in_sweep=True), ConfigError)
        return
    try:
        run(resolve(config, overrides))
    except ConfigError as refusal:
        print(f"error: {refusal}", file=sys.stderr, flush=True)
        statuses.append(1)
    except StoppedError as stop:
        stop.say()
        statuses.append(128 + stop.signal)


def resolve(config: DictConfig, overrides: Sequence[str], in_sweep: bool = False) -> Config:
    """The config as plain values, without settings that were typed and have no effect."""
    from trainers.config.checks import check, refuse_idle_settings

    with refusing():
        try:
            resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            config_yaml.end()
        except RecursionError:
            raise ConfigError("a config must not refer to itself") from None
        check(resolved)
        typed = {override.split("=")[0].lstrip("+~") for override in overrides}
        refuse_idle_settings(resolved, typed, in_sweep=in_sweep)
    return resolved


class StartOfSweep(Callback):
    """Tells the jobs of a sweep, in whatever processes they run, where to say what became of them."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        from trainers.launch.jobs import start_sweep

        try:
            start_sweep(Path(config.hydra.sweep.dir))
            for number in (signal.SIGINT, signal.SIGTERM):  # which lets us stop the jobs
                signal.signal(number, signal.default_int_handler)
        except OSError as error:  # Hydra turns what a callback raises into a warning
            print(f"error: {one_line(error)}", file=sys.stderr)
            sys.exit(1)  # before Hydra writes there itself


def run(config: Config, *, in_sweep: bool = False) -> tuple[str, Path]:
    """Train, unless that is done; jobs of a sweep each in a process of its own.

    Returns whether the run was ``finished`` now or ``skipped``, finished before, and its folder.
    """
    from compressors.encoding.settings import EncodingError
    from trainers.config.checks import check, require_inside
    from trainers.launch.isolation import JobError, run_isolated
    from trainers.launch.jobs import FINISHED, SKIPPED
    from trainers.launch.processes import PeerLostError
    from trainers.run.folder import RunFolder
    from trainers.run.leftovers import clear_leftovers
    from trainers.run.report import print_summary

    with refusing():
        check(config)
        folder = RunFolder(config)
        require_inside(folder.path, config["output"])
        finished = folder.summary()
    if finished is not None:
        if os.environ.get("RANK", "0") == "0":
            print(f"{folder.path} is finished already; its numbers:")
            print_summary(finished)
            if folder.not_measured():
                absent = ",".join(folder.not_measured())
                print(f"it did not measure diagnostics={absent}; another output=FOLDER runs it anew")
            clear_leftovers(folder.path)
        return SKIPPED, folder.path
    isolated = in_sweep and config["isolate"] and "WORLD_SIZE" not in os.environ
    try:  # by name: under joblib the functions of this file are not those of a module
        refusal = run_isolated("run:start_in_child", config) if isolated else start(config)
    except (JobError, PeerLostError, EncodingError, OSError) as error:
        raise ConfigError(one_line(error)) from error
    if refusal is not None:
        raise ConfigError(refusal)
    return FINISHED, folder.path


def start(config: Config) -> None:
    """Train in this process or, with ``processes`` > 1 and no launcher around, in new ones."""
    if "WORLD_SIZE" in os.environ or config["processes"] == 1:
        train(config)
        return
    from trainers.launch.processes import launch

    launch("run:train_together", config, config["processes"])


def train_together(config: Config) -> None:
    """``train`` in one of several new processes, which share a refusal."""
    from trainers.launch.isolation import JobError

    try:
        train(config)
    except ConfigError as refusal:
        raise JobError(str(refusal)) from refusal


def start_in_child(config: Config) -> str | None:
    """``start`` in the process of a job; its refusal, in words."""
    from compressors.encoding.settings import EncodingError
    from trainers.launch.isolation import JobError
    from trainers.launch.processes import PeerLostError
    from trainers.launch.stopping import StoppedError

    try:
        start(config)
    except (ConfigError, JobError, PeerLostError, EncodingError, OSError) as refusal:
        return one_line(refusal)
    except StoppedError as stop:
        stop.say()
        sys.exit(128 + stop.signal)
    return None


def train(config: Config) -> None:
    """Build and train with the processes there are; the first one leaves the run folder behind."""
    import torch

    from trainers.checkpoint.resume import Start, snapshot_of
    from trainers.checkpoint.saving import Checkpoints
    from trainers.checkpoint.state import CheckpointMismatch
    from trainers.comm.communicator import Communicator
    from trainers.gradients import NonFiniteGradientError
    from trainers.launch.device import choose_device
    from trainers.launch.memory import keep_freed_memory
    from trainers.launch.process_group import process_group, world
    from trainers.launch.stopping import end_with_torchrun, stop_request
    from trainers.reading import UnreadableDataError
    from trainers.run.folder import RunFolder
    from trainers.run.report import announce, print_summary
    from trainers.run.trackers import JsonLines, Terminal, Trackers

    end_with_torchrun()
    keep_freed_memory()
    process, processes, local_process = world()
    torch.set_num_threads(config["threads"])
    with refusing():
        device = choose_device(config["device"], processes, local_process)
        saving = instantiate(config["checkpoint"], _convert_="all")
    with process_group(device, timeout_seconds=config["timeout_seconds"]):
        with refusing():
            folder = RunFolder(config)
            communicator = Communicator(
                config["workers"],
                rank=process,
                world_size=processes,
                device=device,
                reduction=config["trainer"].get("reduction", "worker_order"),
            )
            trainer = build(config, communicator, device)
        trackers, external, records = Trackers([]), [], None
        problem, start = None, Start()
        if process == 0:
            try:
                with refusing():
                    start = folder.open()
                    name = f"{config['name']}-{folder.id}"
                    open_tracker = instantiate(config["tracker"], _convert_="all")
                    about = {"config": config, "facts": folder.facts()}
                    about["goes_on"] = start.checkpoint is not None
                    external = open_tracker(folder=folder.path, name=name, **about)
                    announce(trainer, folder.path, start)
                    records = JsonLines(folder.metrics, start.records)
                    trackers = Trackers([records, Terminal(trainer.num_steps), *external])
            except ConfigError as refusal:
                problem = refusal
        if communicator.all_reduce_max(problem is not None):
            raise problem or ConfigError("the first process could not start")
        summary = None
        with stop_request() as request:
            checkpoints = Checkpoints(
                saving, folder.checkpoints, folder.id, communicator, request, records=records
            )
            try:
                checkpoints.start = snapshot_of(start, communicator, trainer, folder.id)
                summary = trainer.run(trackers, checkpoints)
                checkpoints.close()
                communicator.all_reduce_max(0)  # all parts of a last checkpoint are there
                if process == 0:
                    summary = folder.close(summary, checkpoints.seconds)
                    checkpoints.clear()
            except (NonFiniteGradientError, UnreadableDataError, CheckpointMismatch) as error:
                if process == 0:
                    folder.close({"error": str(error)}, checkpoints.seconds, "failed")
                raise ConfigError(str(error)) from error
            finally:
                checkpoints.close()
                trackers.finish(summary)
        if process == 0:
            print_summary(summary)
            print(f"run folder: {folder.path}")
            for tracker in external:
                if tracker.sync_command:
                    print(f"to Weights & Biases: {tracker.sync_command}")


def build(config: Config, communicator: "Communicator", device: "torch.device") -> "Trainer":
    """The trainer that the config describes, checked, with nothing run yet."""
    import torch

    from compressors.build import build_reducer
    from compressors.core import backends
    from compressors.core.randomness import derive_seed, generator
    from trainers.config.targets import check_factories, require_match
    from trainers.launch.memory import require_memory
    from trainers.layout import Layout
    from trainers.loop import Trainer

    check_factories(config)
    backends.choose(config["kernels"])
    settings = instantiate(config["trainer"], _convert_="all")
    schedule = instantiate(config["schedule"], _convert_="all")
    method = instantiate(config["compressor"], _convert_="all")
    wire = instantiate(config["wire"], _convert_="all")
    with communicator.first_process_first():  # alone while it downloads
        dataset: Dataset = instantiate(config["data"], _convert_="all").to(device)
    torch.manual_seed(derive_seed("model", config["seed"]))  # the same start on all processes
    arguments = dataset.model_arguments()
    require_match(config["model"], config["data"]["_target_"], set(arguments))
    with communicator.first_process_first():  # it may leave results on disk for the others
        model = instantiate(config["model"], _convert_="all", **arguments).to(device)
    if settings.channels_last:
        if not any(parameter.dim() == 4 for parameter in model.parameters()):
            raise ValueError("trainer.channels_last has no effect on a model without convolutions")
        model = model.to(memory_format=torch.channels_last)
    layout = Layout(dict(model.named_parameters()), config["scope"])
    if device.type == "cpu":
        require_memory(
            4 * layout.num_parameters * (1 + len(communicator.local_workers)), "the gradients of all workers"
        )
    feedback = instantiate(config["feedback"], _convert_="all")
    diagnostics = instantiate(config["diagnostics"], _convert_="all")
    seed, local_workers = config["seed"], communicator.local_workers
    loader = dataset.loader(communicator.size, local_workers, settings.batch_size, partial(generator, seed))
    return Trainer(
        model=model,
        dataset=dataset,
        reducer=build_reducer(method, layout.num_parameters, feedback, wire),
        optimizer=instantiate(config["optimizer"], _convert_="all")(model),
        schedule=schedule,
        layout=layout,
        communicator=communicator,
        loader=loader,
        settings=settings,
        seed=seed,
        diagnostics=diagnostics,
    )


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what a bad setting raises while a run is being built into a one-line refusal."""
    try:
        yield
    except InstantiationException as error:
        cause = error.__cause__
        if not isinstance(cause, (ValueError, OSError, TypeError, OverflowError, MemoryError, RuntimeError)):
            raise
        raise ConfigError(one_line(cause)) from error
    except (ValueError, OSError, OmegaConfBaseException) as error:
        raise ConfigError(one_line(error)) from error


def one_line(error: BaseException) -> str:
    named = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
    return " ".join(named.split()) or type(error).__name__


def command_line() -> int:
    """Run ``main``; the exit status, not 0 if a job failed."""
    from trainers.launch.jobs import end_sweep

    try:
        sys.argv = [bracketed(home_expanded(word)) for word in sys.argv]
    except ConfigError as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        status = run_hydra()
    finally:
        config_yaml.end()
    for number, handler in handlers.items():  # a sweep has had its own
        signal.signal(number, handler or signal.SIG_DFL)
    return max([status, end_sweep(interrupted=status == 130), *statuses])


def home_expanded(word: str) -> str:
    """``KEY=~/FOLDER`` with the home folder for ``~``, which neither the shell nor Hydra puts there.

    Raises ``ConfigError`` for the home of a user that is not known.
    """
    key, equals, value = word.partition("=")
    if not value.startswith("~"):
        return word
    try:
        return f"{key}{equals}{Path(value).expanduser()}"
    except RuntimeError:
        raise ConfigError(f"{key} must begin with a known home folder, got {value!r}") from None


def bracketed(word: str) -> str:
    """``diagnostics=a,b`` as Hydra writes the choice of several options, which else would be a sweep.

    Raises ``ConfigError`` for an option that is not there: of several Hydra does not say which there are.
    """
    key, _, value = word.partition("=")
    if key != "diagnostics":
        return word
    asked = [name.strip() for name in value.removeprefix("[").removesuffix("]").split(",") if name.strip()]
    known = sorted(path.stem for path in (Path(__file__).parent / "conf" / "diagnostics").glob("*.yaml"))
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise ConfigError(f"diagnostics must be some of {', '.join(known)}, got {unknown[0]}")
    return f"{key}=[{','.join(asked)}]"


def run_hydra() -> int:
    """Run ``main``; 0 if Hydra did. What Hydra refuses is said in its own words, in one line."""
    from trainers.config.api_keys import refuse_keys

    os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints the errors below its own way and exits
    try:
        refuse_keys(sys.argv[1:])
        config_guard.check_options(sys.argv[1:])
    except ValueError as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
    try:
        main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenProcessPool:
        print("error: a process of the launcher was killed; the same command does the rest", file=sys.stderr)
        return 1
    except HydraException as error:
        said = [
            one_line(e).split(" Config search path:")[0] for e in (error, error.__cause__) if str(e or "")
        ]
        print(f"error: {': '.join(dict.fromkeys(said))}", file=sys.stderr)
        return 1
    except Exception as error:  # of many kinds: what Hydra meets where it expects no such words or files
        if begun and not isinstance(error, (OSError, OmegaConfBaseException)):
            raise
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    from trainers.launch.streams import keep_streams

    keep_streams()
    sys.exit(command_line())
