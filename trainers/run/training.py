"""A training in one process of a run: communicator, run folder, trackers and checkpoints."""

from contextlib import ExitStack

import torch

from compressors.build import threshold_in_force
from compressors.core.checks import MethodError
from trainers.checkpoint.resume import Start, snapshot_of
from trainers.checkpoint.saving import Checkpoints
from trainers.checkpoint.state import CheckpointMismatch
from trainers.comm.communicator import Communicator
from trainers.config.errors import ConfigError, refusing
from trainers.config.instantiation import make
from trainers.files.plain import Config
from trainers.launch.device import choose_device
from trainers.launch.jobs import current_sweep, parallel_job
from trainers.launch.memory import exhaustion_in_one_line, keep_freed_memory
from trainers.launch.process_group import process_group, world
from trainers.launch.stopping import end_with_torchrun, stop_request
from trainers.loop import run
from trainers.run.build import build_training
from trainers.run.folder import RunFolder
from trainers.run.report import announce, next_commands, print_summary
from trainers.run.terminal import Terminal
from trainers.run.trackers import JsonLines, OpenTracker, Trackers
from trainers.step.gradients import NonFiniteGradientError
from trainers.step.reading import UnreadableDataError
from trainers.training import Training


def open_all(config: Config, folder: RunFolder, training: Training, start: Start) -> Trackers:
    """The trackers of a run that begins or continues at ``start``."""
    open_tracker: OpenTracker = make(config["tracker"])
    facts = folder.facts()
    threshold = threshold_in_force(training.reducer)
    if threshold is not None:  # also where it follows from a density
        facts["threshold"] = threshold
    external = open_tracker(
        folder=folder.path,
        name=f"{config['name']}-{folder.id}",
        config=config,
        facts=facts,
        continues=start.checkpoint is not None,
        earlier=start.records,
    )
    lines = JsonLines(folder.metrics, start.records)
    first_step = start.checkpoint.step if start.checkpoint is not None else 0
    terminal = Terminal(training.num_steps, first_step=first_step, job=parallel_job())
    return Trackers([lines, terminal, *external], external, lines)


@exhaustion_in_one_line()
def train(config: Config) -> None:
    """Build and train, together with the other processes of the run; the first one writes the run folder.

    Raises ``ConfigError`` for a run that cannot start or continue, ``StoppedError`` for a stopped one, and
    ``OSError`` for exhausted memory and for files that cannot be written.
    """
    end_with_torchrun()
    keep_freed_memory()
    process, processes, local_process = world()
    torch.set_num_threads(config["threads"])
    with refusing():
        device = choose_device(config["device"], processes, local_process)
        saving = make(config["checkpoint"])
    with process_group(device, timeout_seconds=config["timeout_seconds"]), ExitStack() as at_end:
        with refusing():
            folder = RunFolder(config)
            at_end.callback(folder.lock.release)  # a notebook keeps the frames of the last error
            communicator = Communicator(
                config["workers"],
                rank=process,
                world_size=processes,
                device=device,
                reduction=config["trainer"].get("reduction", "worker_order"),
            )
            training = build_training(config, communicator, device)
        trackers = Trackers()
        problem, start = None, Start()
        if process == 0:
            try:
                with refusing():
                    start = folder.open()
                    trackers = open_all(config, folder, training, start)
                    announce(training, folder.path, start)
            except ConfigError as refusal:
                problem = refusal
        if communicator.all_reduce_max(problem is not None):
            raise problem or ConfigError("the first process could not start")
        summary = None
        with stop_request() as request:
            checkpoints = Checkpoints(
                saving,
                folder.checkpoints,
                folder.id,
                communicator,
                request,
                records=trackers.lines,
                resume=config["resume"],
            )
            try:
                checkpoints.begin_at(snapshot_of(start, communicator, training, folder.id))
                last = run(training, trackers, checkpoints)
                checkpoints.settle()
                if process == 0:
                    last = folder.close(last, checkpoints.seconds)
                    checkpoints.clear()
                request.is_finished = True
                summary = last  # trackers take a run without one for unfinished
            except (NonFiniteGradientError, UnreadableDataError, CheckpointMismatch, MethodError) as error:
                if process == 0:
                    for tracker in trackers.external:
                        tracker.fail(str(error))
                    folder.close({"error": str(error)}, checkpoints.seconds, "failed")
                raise ConfigError(str(error)) from error
            finally:
                checkpoints.close()
                trackers.finish(summary)
        if process == 0:
            print_summary(summary)
            print(f"run folder: {folder.path}")
            if current_sweep() is None:
                print(next_commands(folder.path, config["output"], summary))
            for tracker in trackers.external:
                if tracker.sync_command and current_sweep() is None:  # a sweep prints one for all jobs
                    print(f"to Weights & Biases: {tracker.sync_command}")
