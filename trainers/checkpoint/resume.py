"""The start of a run: from its first step, its last valid checkpoint, or another run's checkpoint."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainers.checkpoint.files import (
    Checkpoint,
    DamagedCheckpointError,
    describe_checkpoint,
    read_checkpoint,
    step_folders,
)
from trainers.checkpoint.shares import merged, shares
from trainers.checkpoint.state import FRESH, CheckpointMismatch, Snapshot, WorkerState
from trainers.comm.agreement import first_text, run_together
from trainers.comm.communicator import Communicator
from trainers.files.files import RECORDS, UnreadableFileError, read_config, read_file
from trainers.files.plain import Config
from trainers.identity.identity import Origin, identify
from trainers.schedules.autolrs import AutoLRS
from trainers.training import Training

AUTO, NEVER = "auto", "never"
FOLDER = "checkpoint"  # in a run folder


@dataclass(frozen=True)
class Start:
    """The checkpoint from which a run continues, if any, and messages about it."""

    checkpoint: Checkpoint | None = None
    records: bytes = b""  # content of metrics.jsonl up to the checkpoint
    messages: tuple[str, ...] = ()


def origin_of(config: Config) -> Origin:
    """The checkpoint that ``resume`` names.

    Raises ``ValueError`` for a setting that names no checkpoint, and for a checkpoint of another number of
    workers without ``redistribute``.
    """
    path = _path_of(config["resume"])
    try:
        checkpoint = describe_checkpoint(path)
    except DamagedCheckpointError as error:
        raise ValueError(f"resume={config['resume']}: {error}") from error
    if checkpoint.num_workers != config["workers"] and not config["checkpoint"]["redistribute"]:
        raise ValueError(
            f"workers must be {checkpoint.num_workers} as in the checkpoint, got {config['workers']}; "
            "checkpoint.redistribute=true redistributes their residuals"
        )
    exact = f"{checkpoint.run} {path.name} {checkpoint.identity}"
    return Origin(exact, _group_of(path, checkpoint.run) or exact)


def _group_of(path: Path, run: str) -> str:
    """A name that is equal for the checkpoints of one step in runs that differ only in the seed.

    Empty if it is not known: without the run's config, or if the run began at another run's checkpoint.
    """
    try:
        its_own = identify(read_config(path.parents[1]))
    except UnreadableFileError:
        return ""
    return f"{its_own.group} {path.name}" if its_own.id == run else ""


def choose_start(run: str, folder: Path, resume: str) -> Start:
    """The start of the run with this id and folder.

    ``auto`` takes the run's newest checkpoint that is complete and has its records. ``never`` takes none. A
    path takes that checkpoint; if it belongs to another run, a valid checkpoint of this run has priority.
    Raises ``ValueError`` for a path that is not a complete checkpoint.
    """
    if resume == NEVER:
        return Start()
    path = _path_of(resume) if resume != AUTO else None
    own: Start | None = None
    messages: list[str] = []
    if path is None or describe_checkpoint(path).run != run:
        own, messages = _newest(run, folder)
    if own is not None or path is None:
        return replace(own or Start(), messages=tuple(messages))
    try:
        return replace(_start_of(read_checkpoint(path), path.parents[1]), messages=tuple(messages))
    except DamagedCheckpointError as error:
        raise ValueError(f"resume={resume}: {error}") from error


def snapshot_of(start: Start, communicator: Communicator, training: Training, run: str) -> Snapshot | None:
    """The state from which this process's workers continue; the first process's ``start`` decides for all.

    Raises ``CheckpointMismatch``, in all processes, for a checkpoint that this run cannot have written or
    that cannot be read. Raises it also if no step is left to train, except for the last checkpoint of this
    run itself: the run may have ended before it wrote its summary.
    """
    path = first_text(communicator, str(start.checkpoint.path) if start.checkpoint is not None else "")
    if not path:
        return None

    def read() -> Snapshot:
        checkpoint = start.checkpoint or describe_checkpoint(Path(path))  # the first process has checked it
        return _snapshot(checkpoint, communicator, training, run)

    return run_together(communicator, read, (DamagedCheckpointError, CheckpointMismatch), CheckpointMismatch)


def _snapshot(checkpoint: Checkpoint, communicator: Communicator, training: Training, run: str) -> Snapshot:
    facts, step = checkpoint.facts, checkpoint.step
    found, nodes = facts["num_nodes"], training.nodes and training.nodes.across.size
    if found != nodes:
        raise CheckpointMismatch(
            f"{checkpoint.path}: nodes must be {found}, as in the checkpoint, got {nodes}"
        )
    now = training.numbers_of_data()
    if checkpoint.run == run and (was := facts.get("data", now)) != now:
        name = next(name for name in [*was, *now] if was.get(name) != now.get(name))
        raise CheckpointMismatch(
            f"{checkpoint.path}: the data have changed since the checkpoint, {name} from {was.get(name)} to "
            f"{now.get(name)}; resume=never begins anew"
        )
    searched = facts["search"].get("steps", 0) if isinstance(training.schedule, AutoLRS) else 0
    if training.settings.steps is None and facts["epoch"] != step * training.epochs_per_step:
        step = training.step_at(facts["epoch"])  # of other workers, batches or samples
    if step + searched >= training.num_steps + (checkpoint.run == run):
        tried = f" after {searched} steps of trials" if searched else ""
        raise CheckpointMismatch(
            f"{checkpoint.path}: the checkpoint is at step {step}{tried}, "
            f"and this run ends at {training.num_steps}"
        )
    if checkpoint.num_workers == communicator.size:
        return checkpoint.load(communicator.local_workers).at_step(step)
    return redistribute(checkpoint, communicator.local_workers, communicator.size, step)


def redistribute(
    checkpoint: Checkpoint, local_workers: Sequence[int], num_workers: int, step: int
) -> Snapshot:
    """The snapshot for ``local_workers``, of ``num_workers`` = m, to continue at ``step``.

    A new worker gets the mean of the old residuals over its part (``shares.py``). The mean over workers, and
    with it the update still to be sent, is therefore unchanged. The ledger's sums are divided in the same
    way; of a largest value, a new worker gets the largest. The states of the loss between batches are
    reset, because the workers read other shards.
    """
    parts_of = {new: list(shares(new, num_workers, checkpoint.num_workers)) for new in local_workers}
    old = checkpoint.load(sorted({worker for parts in parts_of.values() for worker, _ in parts}))
    workers = {}
    for new, parts in parts_of.items():
        names = [name for name in old.workers[parts[0][0]].tensors if not name.startswith("memory")]
        tensors = {
            name: merged(name, parts, {worker: old.workers[worker].tensors[name] for worker, _ in parts})
            for name in names
        }
        workers[new] = WorkerState(tensors, FRESH)
    return old.at_step(step)._replace(workers=workers, redistributed=True)


def _path_of(resume: object) -> Path:
    path = Path(resume).absolute() if isinstance(resume, str) and resume else None
    if path is None or not path.is_dir():
        raise ValueError(f"resume must be {AUTO}, {NEVER} or the path of a checkpoint, got {resume!r}")
    if path.name.startswith("step-"):
        return path
    inside = step_folders(path if path.name == FOLDER else path / FOLDER)
    if not inside:
        raise ValueError(f"resume={resume}: there is no checkpoint in this folder")
    return inside[0]


def _newest(run: str, folder: Path) -> tuple[Start | None, list[str]]:
    messages: list[str] = []
    for path in step_folders(folder / FOLDER):
        try:
            checkpoint = read_checkpoint(path)
            if checkpoint.run != run:
                raise DamagedCheckpointError(f"{path.name} belongs to another run, {checkpoint.run}")
            return _start_of(checkpoint, folder), messages
        except DamagedCheckpointError as error:
            messages.append(f"a checkpoint cannot be used: {error}")
    return None, messages


def _start_of(checkpoint: Checkpoint, folder: Path) -> Start:
    """The checkpoint with the content that metrics.jsonl had when it was saved."""
    length, digest = checkpoint.facts["records"]
    try:
        records = read_file(folder / RECORDS)[:length]
    except UnreadableFileError as error:
        raise DamagedCheckpointError(f"{checkpoint.path.name}: its metrics.jsonl cannot be read") from error
    if len(records) != length or hashlib.blake2b(records).hexdigest() != digest:
        raise DamagedCheckpointError(
            f"{checkpoint.path.name}: metrics.jsonl was changed after the checkpoint"
        )
    return Start(checkpoint, records)
