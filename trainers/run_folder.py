"""What a run leaves behind, and how the same command finds it again."""

import copy
import hashlib
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from filelock import FileLock, Timeout

from compressors import naming
from trainers.environment import environment
from trainers.run_files import (
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
from trainers.safe_files import require_own_file, require_run_folder, write_whole

if TYPE_CHECKING:
    from trainers.resume import Start  # which needs torch; to look at a finished run takes none

# What decides where and how fast a run computes, not what it finds. A budget works through the
# compressor's density.
NOT_IN_ID = {
    "": (
        "processes",
        "isolate",
        "threads",
        "device",
        "kernels",
        "output",
        "name",
        "tracker",
        "budget",
        "resume",
        "checkpoint",
        "diagnostics",
        "timeout_seconds",
    ),
    "data": ("root", "download", "home", "memory_gib", "decoders"),
    "model": ("download",),
    "trainer": ("overlap", "bucket_megabytes"),
}
OWN_FILES = ("data.image_folder.image_folder",)


def run_id(config: dict[str, Any]) -> str:
    """A hash of every setting that can change the result, 10 hexadecimal digits.

    A run that begins at another run's checkpoint owes its result to that one too. Raises ``ValueError``
    for a ``resume`` that names no checkpoint.
    """
    own = _hash_of(config, None)
    if config["resume"] in ("auto", "never"):
        return own
    from trainers.resume import origin_of

    origin = origin_of(config)
    return own if origin.startswith(f"{own} ") else _hash_of(config, origin)


def _hash_of(config: dict[str, Any], origin: str | None) -> str:
    config = copy.deepcopy(config)
    buckets = {key: config["trainer"].get(key) for key in NOT_IN_ID["trainer"]}
    # The user's own files have no name but where they are.
    own_files = config["data"].get("root") if config["data"].get("_target_") in OWN_FILES else None
    for group, keys in NOT_IN_ID.items():
        settings = config.get(group, {}) if group else config
        for key in keys:
            settings.pop(key, None)
    if config["trainer"]["steps"] is not None:
        del config["trainer"]["epochs"]  # not looked at then
    if config["trainer"].get("nonfinite") == "stop":  # as it was before there was a choice
        del config["trainer"]["nonfinite"]
    if config["trainer"].get("reduction") == "worker_order":  # what one process has always done
        del config["trainer"]["reduction"]
    if config.get("compressor", {}).get("schedule") == "constant":
        del config["compressor"]["schedule"]
    for key, usual in (("reshard", "never"), ("drop_last", False)):  # as before there was a choice
        if config["data"].get(key) == usual:
            del config["data"][key]
    wire = config.get("wire", {})
    if (wire.get("indices"), wire.get("values")) == ("plain", "fp32"):  # as it was before there was a choice
        del config["wire"]
    elif wire and buckets["overlap"]:  # each is a message then, whose bytes depend on what is in it
        config["trainer"] |= buckets
    if config["data"].get("partition") != "dirichlet":
        config["data"].pop("alpha", None)
    if own_files is not None:
        config["data"]["root"] = own_files
    if origin is not None:
        config["resume"] = origin
    written = json.dumps(_with_numbers_alike(config), sort_keys=True)
    return hashlib.blake2b(written.encode(), digest_size=5).hexdigest()


# Whole numbers that conf/ writes with a point. All others count without one, as they are typed.
WRITTEN_AS_FLOATS = {
    ("data.skew", 1),
    ("data.taste", 2),
    ("model.dropout", 0),
    ("optimizer.momentum", 0),
    ("optimizer.weight_decay", 0),
    ("schedule.exploration", 1),
    ("schedule.high", 1),
}
AS_WRITTEN = {("schedule.peak", 1)}  # conf/ has it both ways


def _with_numbers_alike(value: Any, path: str = "") -> Any:
    """``value`` with equal numbers written alike: 0, 0.0 and -0.0 are one setting."""
    if isinstance(value, dict):
        return {key: _with_numbers_alike(entry, f"{path}.{key}".lstrip(".")) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_numbers_alike(entry, path) for entry in value]
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not is_whole or isinstance(value, bool) or (path, value) in AS_WRITTEN:
        return value
    whole = int(value)  # which has no -0
    return float(whole) if (path, whole) in WRITTEN_AS_FLOATS else whole


class RunFolder:
    """OUTPUT/NAME/ID/ with config.yaml, metrics.jsonl, summary.json, environment.json and checkpoint/."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.id = run_id(config)
        self.path = Path(config["output"]) / config["name"] / self.id
        self.metrics = self.path / RECORDS
        self.checkpoints = self.path / "checkpoint"

    def facts(self) -> dict[str, Any]:
        """What tells this run from others, flat, for a tracker's filters and groups.

        ``group`` is the same for all seeds of one setting. ``threshold`` and ``density`` are those of the
        compressor, None where it has none or they follow from others. After ``open`` only.
        """
        compressor = self.config["compressor"]
        method, subject = naming.method(self.config), naming.subject(self.config)
        return {
            "method": method,
            "subject": subject,
            "compressor_name": naming.compressor_name(self.config),
            "threshold": compressor.get("threshold"),
            "density": compressor.get("density"),
            "run_id": self.id,
            "commit": self.environment["commit"],
            "group": f"{subject}, {method}, {run_id(self.config | {'seed': None})}",
        }

    def summary(self) -> dict[str, Any] | None:
        """The summary of a run that finished here, or None.

        Raises ``UnreadableFileError`` for one that is damaged, or whose records are, unless there is a
        checkpoint to go on from, or the run is to begin anew.
        """
        self.damage = ""
        try:
            summary = read_summary(self.path)
            if (summary.get("id"), summary.get("seed")) != (self.id, self.config["seed"]):
                raise UnreadableFileError(f"{self.path / SUMMARY} is of another run, {summary.get('id')}")
            if summary["status"] != "finished":
                return None
            if "checksums" in summary:
                read_records(self.path, summary)
        except UnreadableFileError as error:
            if isinstance(error, MissingFileError) and not (self.path / SUMMARY).exists():
                return None
            if self.config["resume"] != "never" and not self._has_checkpoint():
                raise UnreadableFileError(f"{error}; resume=never runs it anew") from error
            self.damage = str(error)
            return None
        return summary

    def _has_checkpoint(self) -> bool:
        from trainers.checkpoint_files import is_complete, step_folders

        return any(is_complete(folder) for folder in step_folders(self.checkpoints))

    def not_measured(self) -> list[str]:
        """The diagnostics that are asked for and that the run which finished here did not take."""
        try:
            before = read_config(self.path)
        except UnreadableFileError:  # which nothing hangs on
            return []
        absent = self.config["diagnostics"].keys() - before.get("diagnostics", {}).keys()
        return sorted(absent - {"_target_", "every"})

    def open(self) -> "Start":
        """Take the folder for this process and make it ready; where the run begins.

        The folder is this process's until it ends, however it ends. Records that nothing goes on from
        are set aside. Raises ``OSError`` when the folder cannot be written, holds a link, or belongs to
        another process that is running the same, ``ValueError`` for a ``resume`` without a good checkpoint.
        """
        from trainers.checkpoint_files import step_folders
        from trainers.resume import choose_start

        self.path.mkdir(parents=True, exist_ok=True)
        lock = self.path.parent / f".{self.id}.lock"
        require_own_file(lock)
        self.lock = FileLock(lock, timeout=0)
        try:
            self.lock.acquire()
        except Timeout as error:
            raise BlockingIOError(f"another process is running {self.path}") from error
        require_run_folder(self.path)
        if self.summary() is not None:  # by another process, while this one was being set up
            self.lock.release()
            raise FileExistsError(f"another process has just finished {self.path}; the same command shows it")
        start = choose_start(self.id, self.path, self.config["resume"])
        if self.damage:
            start = replace(start, messages=(self.damage, *start.messages))
        if start.checkpoint is None:
            if self.metrics.exists():
                self.metrics.replace(self.path / "metrics.previous.jsonl")
                message = "an earlier try left no checkpoint; starting again, its records are in "
                start = replace(start, messages=(*start.messages, message + "metrics.previous.jsonl"))
            shutil.rmtree(self.checkpoints, ignore_errors=True)
        else:
            for newer in step_folders(self.checkpoints):
                if newer == start.checkpoint.path:
                    break
                shutil.rmtree(newer)  # not whole, or from a time that is about to happen again
        (self.path / SUMMARY).unlink(missing_ok=True)
        write_whole(self.path / "config.yaml", yaml.safe_dump(self.config, sort_keys=False))
        self.environment = self._environment(start)
        write_whole(self.path / "environment.json", json.dumps(self.environment, indent=2) + "\n")
        return start

    def close(self, summary: dict[str, Any], seconds: float, status: str = "finished") -> dict[str, Any]:
        """Write summary.json with the status and the wall time in seconds; return it without checksums.

        It is the last file that a run writes, and vouches for the records, which are on disk by then.
        """
        fields = {
            "status": status,
            "id": self.id,
            "seed": self.config["seed"],
            "wall_seconds": seconds,
            **_finite(summary),
        }
        checksums = {RECORDS: self._records_checksum(), SUMMARY: summary_checksum(fields)}
        text = json.dumps({**fields, "checksums": checksums}, indent=2, allow_nan=False)
        write_whole(self.path / SUMMARY, text + "\n")
        self.lock.release()
        return fields

    def _records_checksum(self) -> str:
        with self.metrics.open("rb") as file:
            os.fsync(file.fileno())
            return hashlib.file_digest(file, "blake2b").hexdigest()

    def _environment(self, start: "Start") -> dict[str, Any]:
        """This process's environment and, if it goes on from a checkpoint, those of the ones before it."""
        now = environment(self.config)
        if start.checkpoint is None:
            return now
        try:
            folder = start.checkpoint.path.parents[1]
            before = read_environment(folder)
        except UnreadableFileError:  # it informs, and nothing hangs on it
            before = {}
        earlier = [*before.pop("earlier", []), before]
        return {**now, "resumed_at_step": start.checkpoint.step, "earlier": earlier}


def _finite(summary: Any) -> Any:
    """The same without numbers that JSON does not know."""
    if not isinstance(summary, dict):
        return summary
    kept = {k: v for k, v in summary.items() if not isinstance(v, float) or math.isfinite(v)}
    return {key: _finite(value) for key, value in kept.items()}
