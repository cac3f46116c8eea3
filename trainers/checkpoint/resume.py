"""The start of a run: its first step, its last good checkpoint, or another run's."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainers.checkpoint.files import (
    Checkpoint,
    DamagedCheckpointError,
    describe_checkpoint,
    read_checkpoint,
    step_folders,
)
from trainers.checkpoint.fit import Rows, require_own, require_records
from trainers.checkpoint.redistribution import redistribute
from trainers.checkpoint.state import CheckpointMismatch, Snapshot
from trainers.comm.communicator import Communicator
from trainers.records.files import RECORDS, UnreadableFileError, parse_records, read_config, read_file
from trainers.records.identity import Origin, identify
from trainers.records.plain import Config
from trainers.schedules.autolrs import AutoLRS

if TYPE_CHECKING:
    from trainers.loop import Trainer

AUTO, NEVER = "auto", "never"
FOLDER = "checkpoint"  # in a run folder


@dataclass(frozen=True)
class Start:
    """The checkpoint from which a run continues, if any, and messages about it."""

    checkpoint: Checkpoint | None = None
    records: bytes = b""  # of metrics.jsonl, up to the checkpoint
    rows: Rows = field(default=(), repr=False)  # the same, read
    is_own: bool = False  # of this run, which began at its first step
    messages: tuple[str, ...] = ()


def origin_of(config: Config) -> Origin:
    """The checkpoint that ``resume`` names.

    Raises ``ValueError`` for a setting that names no checkpoint, or one of another number of workers without
    ``redistribute``.
    """
    path = _path_of(config["resume"])
    try:
        checkpoint = describe_checkpoint(path)
    except DamagedCheckpointError as error:
        raise ValueError(f"resume={config['resume']}: {error}") from error
    if checkpoint.num_workers != config["workers"] and not config["checkpoint"]["redistribute"]:
        raise ValueError(
            f"workers must be {checkpoint.num_workers} as in the checkpoint, got {config['workers']}; "
            "checkpoint.redistribute=true deals their residuals out to another number"
        )
    exact = f"{checkpoint.run} {path.name} {checkpoint.identity}"
    return Origin(exact, _group_of(path, checkpoint.run) or exact)


def _group_of(path: Path, run: str) -> str:
    """What a checkpoint shares with that of the same step of the same run with another seed.

    Empty where that is not known: without the run's config beside it, or where it began at another's.
    """
    try:
        its_own = identify(read_config(path.parents[1]))
    except UnreadableFileError:
        return ""
    return f"{its_own.group} {path.name}" if its_own.id == run else ""


def choose_start(run: str, folder: Path, resume: str) -> Start:
    """The start of the run with this id and folder.

    ``auto`` takes the newest checkpoint of its own that is whole and whose records are there; ``never``
    takes none; a path takes that one, unless it is another run's and this run has come further already.
    Raises ``ValueError`` for a path to something that is no whole checkpoint.
    """
    if resume == NEVER:
        return Start()
    path = _path_of(resume) if resume != AUTO else None
    own: Start | None = None
    messages: list[str] = []
    if path is None or describe_checkpoint(path).run != run:
        own, messages = _newest(run, folder)
    if own is not None or path is None:
        return replace(own or Start(), messages=tuple(messages), is_own=own is not None and path is None)
    try:
        return replace(_start_of(read_checkpoint(path), path.parents[1]), messages=tuple(messages))
    except DamagedCheckpointError as error:
        raise ValueError(f"resume={resume}: {error}") from error


def snapshot_of(start: Start, communicator: Communicator, trainer: "Trainer", run: str) -> Snapshot | None:
    """What this process's workers go on from; the first process's ``start`` is everybody's.

    Raises ``CheckpointMismatch``, in all processes, for one that this run cannot have come to or that
    cannot be read, and for one with nothing left to train, but for that of the end of the run with this
    id, which may lack no more than its summary.
    """
    path = communicator.first_text(str(start.checkpoint.path) if start.checkpoint is not None else "")
    if not path:
        return None
    snapshot, problem = None, ""
    try:
        # which the first process has read through
        snapshot = _snapshot(
            start, start.checkpoint or describe_checkpoint(Path(path)), communicator, trainer, run
        )
    except (DamagedCheckpointError, CheckpointMismatch) as error:
        problem = str(error)
    problem = communicator.first_text(problem)
    if problem:
        raise CheckpointMismatch(problem)
    return snapshot


def _snapshot(
    start: Start, checkpoint: Checkpoint, communicator: Communicator, trainer: "Trainer", run: str
) -> Snapshot:
    facts, step = checkpoint.facts, checkpoint.step
    searched = facts["search"].get("steps", 0) if isinstance(trainer.schedule, AutoLRS) else 0
    if checkpoint.num_workers != communicator.size and trainer.settings.steps is None:
        step = trainer.step_at(facts["epoch"])  # as far into the data, by other steps
    if step + searched >= trainer.num_steps + (checkpoint.run == run):
        tried = f" after {searched} steps of trials" if searched else ""
        raise CheckpointMismatch(
            f"{checkpoint.path}: the checkpoint is at step {step}{tried}, "
            f"and this run ends at {trainer.num_steps}"
        )
    if start.is_own:
        require_own(trainer, facts, start.rows, str(checkpoint.path))
    if checkpoint.num_workers == communicator.size:
        return checkpoint.load(communicator.local_workers)
    return redistribute(checkpoint, communicator.local_workers, communicator.size, step)


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
                raise DamagedCheckpointError(f"{path.name} is of another run, {checkpoint.run}")
            return _start_of(checkpoint, folder), messages
        except DamagedCheckpointError as error:
            messages.append(f"a checkpoint cannot be used: {error}")
    return None, messages


def _start_of(checkpoint: Checkpoint, folder: Path) -> Start:
    """The checkpoint with what metrics.jsonl held at its time."""
    records = _records_of(checkpoint, folder)
    try:
        rows = parse_records(records, folder / RECORDS)
        require_records(checkpoint.facts, rows, checkpoint.path.name)
    except (UnreadableFileError, CheckpointMismatch) as error:
        raise DamagedCheckpointError(str(error)) from error
    return Start(checkpoint, records, rows)


def _records_of(checkpoint: Checkpoint, folder: Path) -> bytes:
    length, digest = checkpoint.facts["records"]
    try:
        records = read_file(folder / RECORDS)[:length]
    except UnreadableFileError as error:
        raise DamagedCheckpointError(f"{checkpoint.path.name}: its metrics.jsonl cannot be read") from error
    if len(records) != length or hashlib.blake2b(records).hexdigest() != digest:
        raise DamagedCheckpointError(f"{checkpoint.path.name}: metrics.jsonl is not what it was then")
    return records
