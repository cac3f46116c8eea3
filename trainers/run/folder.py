"""The run folder: its path, which follows from the config, and its files."""

import hashlib
import json
import math
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from filelock import FileLock, Timeout

from trainers.files.atomic import write_whole
from trainers.files.files import (
    RECORDS,
    SUMMARY,
    MissingFileError,
    UnreadableFileError,
    read_config,
    read_environment,
    read_records,
    read_summary,
    summary_checksum,
)
from trainers.files.plain import Config, Fields
from trainers.identity.identity import Identity, identify, names_checkpoint, subject_of
from trainers.run.code import digest_of_code
from trainers.run.described import group_of
from trainers.run.environment import environment

if TYPE_CHECKING:
    from trainers.checkpoint.resume import Start  # imports torch, which a finished run does not need


def identity_of(config: Config) -> Identity:
    """The identity of the run that a command with this config starts or continues.

    If the run begins at another run's checkpoint, this checkpoint is part of the identity. Raises
    ``ValueError`` for a ``resume`` that names no checkpoint.
    """
    own = identify(config)
    if not names_checkpoint(config):
        return own
    from trainers.checkpoint.resume import origin_of

    origin = origin_of(config)
    return own if origin.checkpoint.startswith(f"{own.id} ") else identify(config, origin)


class RunFolder:
    """OUTPUT/NAME/ID/ with config.yaml, metrics.jsonl, summary.json, environment.json and checkpoint/."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.identity = identity_of(config)
        self.id = self.identity.id
        self.path = Path(config["output"]) / config["name"] / self.id
        self.metrics = self.path / RECORDS
        self.checkpoints = self.path / "checkpoint"
        self.lock = FileLock(self.path.parent / f".{self.id}.lock", timeout=0)

    def facts(self) -> dict[str, object]:
        """Method, setting, id and commit of the run, without nesting, for a tracker's filters and groups.

        ``group`` is the same for all seeds of one setting. ``threshold`` and ``density`` are those of the
        compressor, None if it has none or if they follow from other settings. ``command`` runs this job
        alone; if its overrides are not known, it is the typed command. Call ``open`` first.
        """
        method, subject = self.identity.method, subject_of(self.config)
        data, command = self.config["data"], self.environment["command"]
        overrides = self.environment.get("overrides")
        words = ["run.py", *overrides] if overrides is not None else command
        return {
            "method": method.label,
            "subject": subject,
            "compressor_name": method.compressor,
            "threshold": self.identity.settings.get("compressor.threshold"),
            "density": self.identity.settings.get("compressor.density"),
            "run_id": self.id,
            "commit": self.environment["commit"],
            "group": group_of(subject, method.label, self.identity.group),
            "model_name": _factory(self.config["model"]),
            "data_name": data.get("name") or _factory(data),
            "preset": preset_of(words),
            "command": f"python {shlex.join(words)}",
        }

    def summary(self) -> Fields | None:
        """The summary of the finished run in this folder, or None.

        Raises ``UnreadableFileError`` for a damaged summary or damaged records, unless the run can continue
        from a checkpoint or is to start again (``resume=never``).
        """
        self.damage = ""
        try:
            summary = read_summary(self.path)
            if (summary["id"], summary["seed"]) != (self.id, self.config["seed"]):
                raise UnreadableFileError(f"{self.path / SUMMARY} is of another run, {summary['id']}")
            if summary["status"] != "finished":
                return None
            read_records(self.path, summary)
        except UnreadableFileError as error:
            if isinstance(error, MissingFileError) and not (self.path / SUMMARY).exists():
                return None
            if self.config["resume"] != "never" and not self._has_checkpoint():
                raise UnreadableFileError(f"{error}; resume=never runs it again") from error
            self.damage = str(error)
            return None
        return summary

    def _has_checkpoint(self) -> bool:
        from trainers.checkpoint.files import is_complete, step_folders

        return any(is_complete(folder) for folder in step_folders(self.checkpoints))

    def ran_other_code(self) -> bool:
        """Whether the finished run in this folder is known to have used other code than the present one."""
        try:
            before = read_environment(self.path).get("code")
        except UnreadableFileError:  # only a remark in the output depends on it
            return False
        return bool(before) and before != digest_of_code(self.config)

    def not_measured(self) -> list[str]:
        """The chosen diagnostics that the finished run in this folder did not measure."""
        try:
            before = read_config(self.path)
        except UnreadableFileError:  # only a remark in the output depends on it
            return []
        absent = self.config["diagnostics"].keys() - before.get("diagnostics", {}).keys()
        return sorted(absent - {"_target_", "every"})

    def open(self) -> "Start":
        """Lock the folder and prepare it; return the start of the run.

        The lock holds until its ``release`` or until this process ends. Records without a checkpoint to
        continue from are renamed. Raises ``OSError`` if the folder cannot be written or is locked by another
        process, and ``ValueError`` for a ``resume`` without a valid checkpoint.
        """
        from trainers.checkpoint.files import step_folders
        from trainers.checkpoint.resume import choose_start

        self.path.mkdir(parents=True, exist_ok=True)
        try:
            self.lock.acquire()
        except Timeout as error:
            raise BlockingIOError(f"another process is running {self.path}") from error
        is_finished = self.summary() is not None  # by another process, after this one had looked
        if is_finished and self.config["resume"] != "never":
            raise FileExistsError(
                f"another process has just finished {self.path}; the same command prints its results"
            )
        start = choose_start(self.id, self.path, self.config["resume"])
        self.environment = self._environment(start)  # before anything is removed, because it may fail
        if self.damage:
            start = replace(start, messages=(self.damage, *start.messages))
        if start.checkpoint is None:
            if self.metrics.exists():
                self.metrics.replace(self.path / "metrics.previous.jsonl")
                message = "an earlier attempt left no checkpoint; starting again, its records are in "
                if self.config["resume"] == "never":
                    message = "resume=never: training again from the start; earlier records are in "
                start = replace(start, messages=(*start.messages, message + "metrics.previous.jsonl"))
            shutil.rmtree(self.checkpoints, ignore_errors=True)
        else:
            for newer in step_folders(self.checkpoints):
                if newer.resolve() == start.checkpoint.path.resolve():
                    break
                shutil.rmtree(newer)  # incomplete, or of steps that will be repeated
        (self.path / SUMMARY).unlink(missing_ok=True)
        write_whole(self.path / "config.yaml", yaml.safe_dump(self.config, sort_keys=False))
        write_whole(self.path / "environment.json", json.dumps(self.environment, indent=2) + "\n")
        return start

    def close(
        self, summary: Mapping[str, object], seconds: float, status: str = "finished"
    ) -> dict[str, object]:
        """Write summary.json with the status and the wall time in seconds; return it without checksums.

        It is the last file that a run writes. It has the checksum of the records, which are on disk by then.
        """
        origin = self.identity.origin
        fields = {
            "status": status,
            "id": self.id,
            "seed": self.config["seed"],
            **({"origin": origin.checkpoint, "origin_group": origin.group} if origin else {}),
            "wall_seconds": seconds,
            **_finite(summary),
        }
        checksums = {RECORDS: self._records_checksum(), SUMMARY: summary_checksum(fields)}
        text = json.dumps({**fields, "checksums": checksums}, indent=2, allow_nan=False)
        write_whole(self.path / SUMMARY, text + "\n")
        return fields

    def _records_checksum(self) -> str:
        if not self.metrics.is_file():
            raise FileNotFoundError(f"{self.metrics} was removed during the run")
        with self.metrics.open("rb") as file:
            os.fsync(file.fileno())
            return hashlib.file_digest(file, "blake2b").hexdigest()

    def _environment(self, start: "Start") -> Fields:
        """This process's environment and, for a run that continues, those of the processes before it."""
        now = environment(self.config)
        if start.checkpoint is None:
            return now
        try:
            folder = start.checkpoint.path.parents[1]
            before = read_environment(folder)
        except UnreadableFileError:  # no result depends on it
            before = {}
        earlier = [*before.pop("earlier", []), before]
        return {**now, "resumed_at_step": start.checkpoint.step, "earlier": earlier}


def preset_of(words: Sequence[str]) -> str | None:
    """The experiment or the sweep that a command names; None where it names none."""
    named = [word.partition("=") for word in words]
    return next((value for key, _, value in named if key.lstrip("+") in ("experiment", "sweeps")), None)


def _factory(settings: Config) -> str:
    """The name of the function or class that a group of the config names."""
    return str(settings["_target_"]).rpartition(".")[2]


def _finite(summary: Mapping[str, object]) -> dict[str, object]:
    """The summary without NaN and infinities, which JSON does not have."""
    kept = {k: v for k, v in summary.items() if not isinstance(v, float) or math.isfinite(v)}
    return {key: _finite(value) if isinstance(value, dict) else value for key, value in kept.items()}
