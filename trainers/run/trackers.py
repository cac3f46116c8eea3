"""Trackers of records: metrics.jsonl, and Weights & Biases."""

import errno
import hashlib
import json
import logging
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trainers.config.checks import INSTALL_WANDB, has_wandb
from trainers.config.wandb_settings import wandb_settings
from trainers.records.files import read_wandb_id
from trainers.records.offline import WANDB_ID, sync_command
from trainers.records.plain import Config, Record
from trainers.records.safe_files import replacing, write_all, write_whole

if TYPE_CHECKING:
    import wandb  # which takes seconds to import

Summary = Mapping[str, object]  # of a run
_UPLOAD_SECONDS = 120.0  # that W&B may take after the training; what it has not uploaded is kept on disk


class Tracker(Protocol):
    """One destination of records."""

    def log(self, record: Record) -> None:
        """Take one record; ``step`` never decreases from one to the next."""

    def finish(self, summary: Summary | None) -> None:
        """Close: with the run's summary, or with None when it failed."""


class ExternalTracker(Tracker, Protocol):
    """A destination beside the run folder's own files, as a config names it."""

    @property
    def sync_command(self) -> str | None:
        """What uploads the run later, where that is left to do."""


OpenTracker = Callable[..., Sequence[ExternalTracker]]


class Trackers:
    """All destinations of one run as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self.trackers = trackers

    def log(self, record: Record) -> None:
        for tracker in self.trackers:
            tracker.log(record)

    def finish(self, summary: Summary | None) -> None:
        for tracker in self.trackers:
            tracker.finish(summary)


class JsonLines:
    """One JSON object per line, on disk as soon as it is logged; ``kept`` are the lines to go on from."""

    def __init__(self, path: Path, kept: bytes = b"") -> None:
        with replacing(path, path.with_suffix(".partial")) as file:  # a crash here leaves the lines of before
            write_all(file, kept, path)
        self.path = path
        self.file = file  # without a buffer, so that nothing is left to write after a failure
        self._bytes, self._digest = len(kept), hashlib.blake2b(kept)

    def log(self, record: Record) -> None:
        self._require_place()
        self._write((json.dumps(record, allow_nan=False) + "\n").encode())

    def position(self) -> tuple[int, str]:
        """Bytes written so far and their checksum."""
        return self._bytes, self._digest.hexdigest()

    def sync(self) -> None:
        """Wait until what was logged is on disk."""
        self._require_place()
        os.fsync(self.file.fileno())

    def finish(self, summary: Summary | None) -> None:
        self.file.close()

    def _require_place(self) -> None:
        """Raises ``OSError`` when the file is not where it was: nobody would find what is written to it."""
        here, there = os.fstat(self.file.fileno()), self.path.stat()
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise FileNotFoundError(errno.ENOENT, "it was replaced during the run", str(self.path))

    def _write(self, line: bytes) -> None:
        write_all(self.file, line, self.path)
        self._bytes += len(line)
        self._digest.update(line)


class WeightsAndBiases:
    """One W&B run. Offline, it starts with the first record, so that training need not wait for it.

    It never stops a training: what goes wrong with it is said once, and from then on it is left out.
    ``goes_on`` takes up the W&B run that an earlier part of the training began in ``folder``.
    """

    def __init__(self, settings: Config, folder: Path, *, goes_on: bool = False) -> None:
        self.settings = settings
        self.folder = folder
        self.goes_on = goes_on
        self.run: wandb.Run | None = None
        self.failed = False

    @property
    def sync_command(self) -> str | None:
        """What uploads all parts that were recorded offline."""
        if self.run is None or self.run.settings.mode != "offline":
            return None
        return sync_command([self.folder])

    def start(self) -> None:
        """Raises ``ValueError`` when W&B refuses to go online; goes offline if it cannot be reached."""
        import wandb

        # The commit of this project, wherever runs are written to and whether their folder is still there.
        git_root = str(Path(__file__).parents[2])
        quiet = wandb.Settings(silent=True, console="off", finish_timeout=_UPLOAD_SECONDS, git_root=git_root)
        quiet.finish_timeout_raises = True
        logging.raiseExceptions = False  # W&B's own log, on a full disk, would tell of every line it lacks
        name = self._id()
        resume: Literal["allow"] | None = "allow" if self.goes_on else None
        try:
            self.run = wandb.init(**self.settings, id=name, resume=resume, settings=quiet)
        except wandb.errors.CommError as error:
            if "timed out" not in str(error).lower():  # what W&B says of a key that is no good
                raise
            reason = str(error).splitlines()[0]
            wandb.teardown()  # which holds the id in use
            offline = self.settings | {"mode": "offline"}
            self.run = wandb.init(**offline, id=name, resume=resume, settings=quiet)
            _say(f"tracker.mode=online: Weights & Biases cannot be reached ({reason}); recording offline, ")
            _say(f"to be uploaded by: {self.sync_command}\n")

    def log(self, record: Record) -> None:
        def log() -> None:
            if self.run is None:
                self.start()
            assert self.run is not None
            self.run.log(record, step=int(record["step"]))

        self._attempt(log)

    def finish(self, summary: Summary | None) -> None:
        run = self.run
        if run is None:
            return

        def finish() -> None:
            if summary is not None:
                run.summary.update({key: v for key, v in summary.items() if key != "layers"})
            run.finish(exit_code=0 if summary is not None else 1)

        self._attempt(finish)

    def _attempt(self, action: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            action()
        except Exception as error:  # W&B raises many kinds, its own, sockets', protobuf's
            self.failed = True
            reason = " ".join(str(error).split()) or type(error).__name__
            _say(f"Weights & Biases failed, the training goes on without it: {reason}\n")
            import wandb

            with suppress(Exception):  # else the next run in this process would meet the same dead service
                wandb.teardown()

    def _id(self) -> str:
        """The W&B run's id, kept in the run folder from its first part on."""
        path = self.folder / WANDB_ID
        name = read_wandb_id(path) if self.goes_on else None
        if name is None:
            name = secrets.token_hex(4)
            path.parent.mkdir(exist_ok=True)
            write_whole(path, f"{name}\n")
        return name


def _say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def open_wandb(
    *,
    folder: Path,
    name: str,
    config: Config,
    facts: Mapping[str, object],
    project: str | None = None,
    entity: str | None = None,
    mode: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    goes_on: bool = False,
) -> list[ExternalTracker]:
    """The tracker of one run, online or offline; null takes W&B's environment variable or a default.

    ``facts``, as of ``RunFolder.facts``, stand beside the nested config, flat. A W&B agent locks the keys
    that its sweep sets, which makes ``compressor`` a word there: group by the flat ones. Without a group it
    is that of the facts, which is that of all seeds.
    ``goes_on`` says that the run begins at a checkpoint, so that its W&B run goes on as well.
    Raises ``ValueError`` as ``wandb_settings``, and when W&B refuses to go online.
    """
    typed = {
        "project": project,
        "entity": entity,
        "mode": mode,
        "group": group,
        "job_type": job_type,
        "notes": notes,
        "tags": tags,
    }
    found, said = wandb_settings(typed, os.environ)
    if said:
        print(said, flush=True)
    settings = {
        "name": name,
        "config": {**config, **facts},
        "dir": str(folder),
        "group": facts["group"],
        **found,
    }
    tracker = WeightsAndBiases(settings, folder, goes_on=goes_on)
    if settings["mode"] == "online":
        try:
            tracker.start()
        except Exception as error:  # W&B raises many kinds; each means that it cannot go online
            reason = " ".join(str(error).split())
            raise ValueError(f"tracker.mode=online: Weights & Biases does not start: {reason}") from error
    return [tracker]


def open_wandb_if_installed(**run: Any) -> Sequence[ExternalTracker]:
    """``open_wandb``, or no tracker and a line that says so."""
    if has_wandb():
        return open_wandb(**run)
    print(f"Weights & Biases is not installed, so the run folder keeps the records alone; {INSTALL_WANDB}")
    return no_tracker(**run)


def no_tracker(**run: object) -> list[ExternalTracker]:
    """No destination beside the run folder's own files."""
    return []
