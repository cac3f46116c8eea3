"""Saving of checkpoints: periodically, and when a run is stopped."""

import copy
import errno
import shutil
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Protocol

from compressors.core.checks import is_count, is_real, require, require_flag
from trainers.checkpoint.files import is_complete, step_folder, step_folders, write_part
from trainers.checkpoint.state import Snapshot, TrainingState
from trainers.comm.communicator import Communicator
from trainers.launch.stopping import StoppedError, StopRequest

KEPT = 2  # complete checkpoints: if the newest is damaged, the one before it is used
_NOTHING, _SAVE = 0, 1  # actions after a step; a larger number is a signal to stop


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """Intervals of checkpoints. Raises ``ValueError`` for invalid settings."""

    every_steps: int | None  # None: no interval in steps
    every_minutes: float | None  # None: no interval in time
    at_end: bool  # keep a checkpoint of the finished run; otherwise its checkpoints are removed
    redistribute: bool  # resume=PATH may change the number of workers

    def __post_init__(self) -> None:
        valid = self.every_steps is None or is_count(self.every_steps)
        require(valid, "checkpoint.every_steps", "an integer >= 1, or null", self.every_steps)
        valid = self.every_minutes is None or (is_real(self.every_minutes) and self.every_minutes > 0)
        require(valid, "checkpoint.every_minutes", "> 0, or null", self.every_minutes)
        require_flag("checkpoint.at_end", self.at_end)
        require_flag("checkpoint.redistribute", self.redistribute)


class Records(Protocol):
    """Interface of the file of records, whose position a checkpoint contains."""

    def position(self) -> tuple[int, str]:
        """Bytes written so far and their checksum."""

    def sync(self) -> None:
        """Wait until the records are on disk."""


@dataclass(eq=False)
class Checkpoints:
    """The checkpoints of one run, in ``root``; each process writes its own part.

    The state is copied between two steps and written by a thread during the training. ``records`` is the file
    of records in the first process, and None in the others. If a write fails, for example on a full disk, a
    message is printed, the training continues, and earlier checkpoints are kept.
    """

    settings: CheckpointSettings
    root: Path
    run: str
    communicator: Communicator
    request: StopRequest
    _: KW_ONLY
    records: Records | None = None
    resume: str = "auto"  # of this run's command

    def __post_init__(self) -> None:
        self.start: Snapshot | None = None  # set by ``begin_at``
        self.seconds_before = 0.0
        self._started = self._saved_at = time.monotonic()
        self._saved: tuple[int, int] | None = None  # ``_moment`` of the newest on disk
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._copy: Snapshot | None = None  # to write; an argument of the thread would outlive the write
        self._writing: Future[None] | None = None
        self._target: tuple[int, int] | None = None  # ``_moment`` of the write in progress

    @property
    def seconds(self) -> float:
        """Wall time of the run, including the time before interruptions."""
        return self.seconds_before + time.monotonic() - self._started

    def begin_at(self, start: Snapshot | None) -> None:
        """Note where the run begins: None for its first step.

        A state that was read from this run's own checkpoint is not saved again; its time is counted.
        """
        self.start = start
        if start is not None and Path(start.place).resolve().parent == self.root.resolve():
            self.seconds_before = start.facts["seconds"]
            self._saved = _moment(start)

    def after_step(self, state: TrainingState, snapshot: Snapshot | None = None) -> None:
        """Save if a checkpoint is due. Raises ``StoppedError`` in all processes if one must stop.

        Saves ``state`` or, if its steps will be reverted, the ``snapshot`` from before them.
        """
        action = self.request.signal or (_SAVE if self._is_due(state.step) else _NOTHING)
        action = self.communicator.all_reduce_max(action)
        if action == _NOTHING:
            return
        snapshot = snapshot or self._capture(state)
        self.save(snapshot)
        if action > _SAVE:
            self.settle()
            done = f"stopped after step {snapshot.facts['step']}"
            if self._saved == _moment(snapshot):
                way = "resume=auto" if self.resume == "never" else "the same command"
                raise StoppedError(action, f"{done}; its state is saved; {way} continues from there")
            raise StoppedError(
                action,
                f"{done}; its state could not be saved; the same command continues from an earlier one",
            )

    def save(self, snapshot: Snapshot) -> None:
        """Write the state, after the write in progress, unless it is on disk; all processes call it."""
        self.settle()
        self._saved_at = time.monotonic()
        if self._saved == _moment(snapshot):
            return
        facts = copy.deepcopy(snapshot.facts)  # a search changes its snapshot's during the write
        facts["seconds"] = self.seconds
        if self.records is not None:
            facts["records"] = self.records.position()
        self._target = _moment(snapshot)
        self._copy = snapshot._replace(facts=facts)
        self._writing = self._thread.submit(self._write)

    def settle(self) -> None:
        """Wait until all processes have written; remove the checkpoint if one of them could not."""
        self.wait()
        target, self._target = self._target, None
        if self.communicator.all_reduce_max(target not in (None, self._saved)) and target is not None:
            self._saved = None
            if self.communicator.rank == 0:
                shutil.rmtree(step_folder(self.root, *target), ignore_errors=True)

    def wait(self) -> None:
        """Wait until this process's part is on disk; report an error of the write."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        try:
            writing.result()
        except OSError as error:
            message = f"a checkpoint was not written, the training continues: {error}"
            print(message, file=sys.stderr, flush=True)

    def at_end(self, state: TrainingState) -> None:
        """Save a finished training, if ``at_end`` is set."""
        if self.settings.at_end:
            self.save(self._capture(state))

    def close(self) -> None:
        """Wait for the writing thread to end."""
        self.wait()
        self._thread.shutdown()

    def clear(self) -> None:
        """Remove the checkpoints of a finished run, except its last one if ``at_end`` is set."""
        forget(self.root, 1 if self.settings.at_end else 0)

    def _capture(self, state: TrainingState) -> Snapshot:
        """A copy of the state, after the write of the last one, whose memory is then free."""
        self.wait()
        return state.capture()

    def _is_due(self, step: int) -> bool:
        every_steps, every_minutes = self.settings.every_steps, self.settings.every_minutes
        if every_steps is not None and step % every_steps == 0:
            return True
        if every_minutes is None or self.communicator.rank > 0:  # the first process's clock decides
            return False
        return time.monotonic() - self._saved_at >= 60 * every_minutes

    def _write(self) -> None:
        snapshot, self._copy = self._copy, None
        assert snapshot is not None
        try:
            if not self.root.parent.is_dir():  # do not write to a removed folder
                raise FileNotFoundError(errno.ENOENT, "the run folder was removed", str(self.root.parent))
            if self.records is not None:
                self.records.sync()
            write_part(self.root, snapshot, self.run, self.communicator.rank, self.communicator.world_size)
            self._saved = _moment(snapshot)
        finally:
            if self.communicator.rank == 0:
                forget(self.root, KEPT)


def forget(root: Path, keep: int) -> None:
    """Remove all except the ``keep`` newest complete checkpoints and newer ones that are being written."""
    kept = 0
    for age, folder in enumerate(step_folders(root)):
        whole = is_complete(folder)
        if kept >= keep or not (whole or age < 2):
            shutil.rmtree(folder, ignore_errors=True)
        kept += whole
    if not keep:
        shutil.rmtree(root, ignore_errors=True)


def _moment(snapshot: Snapshot) -> tuple[int, int]:
    """Steps of the training, and steps of all trials of a search before it."""
    return snapshot.facts["step"], snapshot.facts["search"].get("steps", 0)
