"""Trackers of records: metrics.jsonl, and the destinations that a config names."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.config.destinations import DESTINATIONS, IF_INSTALLED, NONE, is_installed
from trainers.files.atomic import replacing, write_all
from trainers.files.goals import Objective
from trainers.files.plain import Config, Record
from trainers.run.tensorboard_tracker import TensorBoard
from trainers.run.terminal import Terminal
from trainers.run.wandb_tracker import WeightsAndBiases, wandb_settings

Summary = Mapping[str, object]  # of a run


# A destination in addition to the run folder's files, which a config names
ExternalTracker = WeightsAndBiases | TensorBoard
OpenTracker = Callable[..., Sequence[ExternalTracker]]


@dataclass(frozen=True)
class Trackers:
    """All destinations of one run, used as one; there are none in processes other than the first."""

    destinations: Sequence["JsonLines | Terminal | ExternalTracker"] = ()
    external: Sequence[ExternalTracker] = ()  # those that the config names
    lines: "JsonLines | None" = None

    def log(self, record: Record) -> None:
        for tracker in self.destinations:
            tracker.log(record)

    def finish(self, summary: Summary | None) -> None:
        for tracker in self.destinations:
            tracker.finish(summary)


class JsonLines:
    """One JSON object per line, written as soon as it is logged, after the earlier lines ``kept``."""

    def __init__(self, path: Path, kept: bytes = b"") -> None:
        with replacing(path, path.with_suffix(".partial")) as file:  # a crash here leaves the old file
            write_all(file, kept, path)
        self.path = path
        self.file = file  # without a buffer: a failed write is not repeated later
        self._bytes, self._digest = len(kept), hashlib.blake2b(kept)

    def log(self, record: Record) -> None:
        self._require_place()
        self._write((json.dumps(record, allow_nan=False) + "\n").encode())

    def position(self) -> tuple[int, str]:
        """Bytes written so far and their checksum."""
        return self._bytes, self._digest.hexdigest()

    def sync(self) -> None:
        """Wait until all records are on disk."""
        self._require_place()
        os.fsync(self.file.fileno())

    def finish(self, summary: Summary | None) -> None:
        self.file.close()

    def _require_place(self) -> None:
        """Raise ``OSError`` if the file was replaced or removed: records written to it would be lost."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.path} was removed during the run") from None
        here = os.fstat(self.file.fileno())
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise FileNotFoundError(f"{self.path} was replaced during the run")

    def _write(self, line: bytes) -> None:
        write_all(self.file, line, self.path)
        self._bytes += len(line)
        self._digest.update(line)


def open_trackers(
    *,
    folder: Path,
    name: str,
    config: Config,
    facts: Mapping[str, object],
    destinations: Mapping[str, object],
    project: str | None = None,
    entity: str | None = None,
    mode: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    checkpoints: bool = False,
    objective: str | None = None,
    byte_budget: float | None = None,
    continues: bool = False,
    earlier: bytes = b"",
) -> list[ExternalTracker]:
    """The trackers of one run; ``destinations`` as ``trainers.config.destinations`` describes them.

    ``facts`` are those of ``RunFolder.facts``. With ``continues``, the run begins at a checkpoint, and the
    trackers continue the records of an earlier part; ``earlier`` has the lines of metrics.jsonl up to the
    checkpoint. The other settings are those of ``conf/tracker``. Raises ``ValueError`` for settings that a
    destination refuses, and if W&B does not start online.
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
    found: list[ExternalTracker] = []
    for destination, wanted in destinations.items():
        about = DESTINATIONS.get(destination)
        if about is None:
            assert destination == NONE  # checked by ``check_destinations``
        elif wanted == IF_INSTALLED and not is_installed(about.package):
            print(
                f"{about.name} is not installed, so the records are only in the run folder; {about.install}"
            )
        elif destination == "wandb":
            tracker = WeightsAndBiases(
                wandb_settings(folder, name, config, facts, typed),
                folder,
                continues=continues,
                keeps_checkpoints=checkpoints,
                objective=None if objective is None else Objective(objective, byte_budget),
                earlier=earlier,
            )
            tracker.start_if_online()
            found.append(tracker)
        else:
            found.append(TensorBoard(folder, config, facts, continues=continues, earlier=earlier))
    return found
