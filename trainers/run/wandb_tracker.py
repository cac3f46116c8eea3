"""Tracker of Weights & Biases: one W&B run per training, online or offline."""

import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainers.files.atomic import write_whole
from trainers.files.files import CONFIG, ENVIRONMENT, RECORDS, SUMMARY, read_wandb_id
from trainers.files.goals import LINK_BYTES, OBJECTIVE, SEARCH_LINK_BYTES, Objective
from trainers.files.offline import WANDB_ID, sync_command, unfinished_part
from trainers.files.plain import Config, Record
from trainers.run.attempts import Attempts, print_error
from trainers.run.described import aggregate_of, axis_of, layers_of, tags_of

if TYPE_CHECKING:
    import wandb  # takes seconds to import

Summary = Mapping[str, object]  # of a run
_START_SECONDS = 30.0  # limit for W&B's start before the training; after it the run is recorded offline
_SERVICE_SECONDS = "120"  # limit for the start of its process; W&B's own, 30, is missed on busy cores
_UPLOAD_SECONDS = 60.0  # limit for uploads after the training; the rest is kept on disk
_AXES = ("step", "epoch", LINK_BYTES)
_FILES = (CONFIG, SUMMARY, RECORDS, ENVIRONMENT)  # of a run folder


@dataclass(eq=False)
class WeightsAndBiases:
    """One W&B run. Offline, it starts with the first record, so that training need not wait for it.

    A failure during the training is printed once; no more records are sent, and the training continues. With
    ``continues``, it is the W&B run that an earlier part of the training began in ``folder``, and those of
    the ``earlier`` lines of metrics.jsonl that did not arrive are sent; all of them if no part has begun one.
    """

    settings: Config
    folder: Path
    _: KW_ONLY
    continues: bool = False
    keeps_checkpoints: bool = False
    objective: Objective | None = None
    earlier: bytes = b""

    def __post_init__(self) -> None:
        self.run: wandb.Run | None = None
        self.attempt = Attempts("Weights & Biases", self._after_failure)
        self._sent: dict[str, float] = {}  # link bytes, as last recorded
        self._defined: set[str] = set()  # names of metrics
        self._step = 0  # of the last record

    @property
    def sync_command(self) -> str | None:
        """The command that uploads all offline parts; None unless this part is offline."""
        if self.run is None or self.run.settings.mode != "offline":
            return None
        return sync_command([self.folder])

    def start(self) -> None:
        """Start the W&B run, offline if W&B cannot be reached. Raises W&B's error for other failures."""
        import wandb

        # W&B records the commit of this project, wherever the run folder is.
        git_root = str(Path(__file__).parents[2])
        quiet = wandb.Settings(silent=True, console="off", finish_timeout=_UPLOAD_SECONDS, git_root=git_root)
        quiet.finish_timeout_raises = True
        if "WANDB_INIT_TIMEOUT" not in os.environ:
            quiet.init_timeout = _START_SECONDS
        os.environ.setdefault("WANDB__SERVICE_WAIT", _SERVICE_SECONDS)
        logging.raiseExceptions = False  # on a full disk, W&B's log would print an error for every line
        kept = read_wandb_id(self.folder / WANDB_ID) if self.continues else None
        name = self._id(kept)
        resume: Literal["allow"] | None = "allow" if self.continues else None
        try:
            self.run = wandb.init(**self.settings, id=name, resume=resume, settings=quiet)
        except wandb.errors.CommError as error:
            if "timed out" not in str(error).lower():  # such as an invalid API key
                raise
            reason = str(error).splitlines()[0]
            wandb.teardown()  # W&B's service still uses the id
            offline = self.settings | {"mode": "offline"}
            self.run = wandb.init(**offline, id=name, resume=resume, settings=quiet)
            print_error(f"tracker.mode=online: Weights & Biases cannot be reached ({reason}); ")
            print_error(f"recording offline; upload it later by: {self.sync_command}\n")
        for axis in _AXES:
            self.run.define_metric(axis)
        if self.continues and (kept is None or self.run.settings.mode == "online"):
            for record in map(json.loads, self.earlier.splitlines()):
                if record["step"] >= self.run.starting_step:  # not sent, because the process was killed
                    self._send(self.run, record)
        self.earlier = b""

    def start_if_online(self) -> None:
        """Start a run with mode=online. Raises ``ValueError`` if W&B does not start."""
        if self.settings.get("mode", os.environ.get("WANDB_MODE")) != "online":
            return
        try:
            self.start()
        except Exception as error:  # of many classes; each means that W&B cannot go online
            reason = " ".join(str(error).split())
            raise ValueError(f"tracker.mode=online: Weights & Biases cannot start: {reason}") from error

    def log(self, record: Record) -> None:
        def log() -> None:
            if self.run is None:
                self.start()
            assert self.run is not None
            self._send(self.run, record)

        self.attempt(log)

    def _send(self, run: "wandb.Run", record: Record) -> None:
        self._step = int(record["step"])
        record_and_goal = self._with_objective(record)
        self._define(run, record_and_goal)
        run.log(record_and_goal, step=self._step)

    def _with_objective(self, record: Record) -> Record:
        """The record with the objective, if known, from the bytes of this or an earlier record."""
        if self.objective is None:
            return record
        self._sent |= {name: record[name] for name in (LINK_BYTES, SEARCH_LINK_BYTES) if name in record}
        value = self.objective.value(self._sent | record)
        return record if value is None else record | {OBJECTIVE: value}

    def fail(self, reason: str) -> None:
        """Send an alert, which W&B shows and, if the user has chosen so, sends by e-mail."""
        run = self.run
        if run is not None:
            self.attempt(lambda: run.alert("Training failed", reason, level="ERROR"))

    def finish(self, summary: Summary | None) -> None:
        run = self.run
        if run is None:
            return

        def finish() -> None:
            if summary is not None:
                totals = {key: value for key, value in summary.items() if key != "layers"}
                # W&B aggregates the metrics with a goal itself
                run.summary.update({key: totals[key] for key in totals if aggregate_of(key) is None})
            with _staging(self.folder / "wandb"):
                if summary is not None:
                    self._log_layers(run, summary)
                self._log_files(run)
            run.finish(exit_code=0 if summary is not None else 1)

        self.attempt(finish)

    def _define(self, run: "wandb.Run", record: Record) -> None:
        """Define axis and aggregates of metrics that occur for the first time."""
        for name in record.keys() - self._defined - {*_AXES}:
            run.define_metric(name, step_metric=axis_of(name), summary=aggregate_of(name))
            self._defined.add(name)

    def _log_layers(self, run: "wandb.Run", summary: Summary) -> None:
        """Log error and density by layer as a table, and the error as a bar chart."""
        import wandb

        columns, rows = layers_of(summary)
        if rows:
            table = wandb.Table(columns=columns, data=rows)
            bar = wandb.plot.bar(table, "layer", "total_error", title="total error by layer")
            run.log({"layers": table, "layers/total_error": bar}, step=self._step)

    def _log_files(self, run: "wandb.Run") -> None:
        """Log the run folder's files as an artifact and, if requested, its checkpoint as another one.

        The files are not copied: offline records refer to them.
        """
        import wandb

        parts = {"run": [self.folder / name for name in _FILES]}
        if self.keeps_checkpoints:
            parts["checkpoint"] = sorted((self.folder / "checkpoint").rglob("*"))
        for kind, files in parts.items():
            artifact = wandb.Artifact(f"{kind}-{self.folder.name}", type=kind)
            for file in filter(Path.is_file, files):
                name = str(file.relative_to(self.folder))
                artifact.add_file(str(file), name, policy="immutable", skip_cache=True)
            if artifact.manifest.entries:
                run.log_artifact(artifact)

    def _after_failure(self) -> str:
        """End W&B's service, so that the next run starts its own; return the command for a later upload."""
        import wandb

        with suppress(Exception):
            wandb.teardown()
        if self.run is None or self.run.settings.mode == "offline":
            return ""
        part = unfinished_part(self.folder)
        return f"; its records are kept; upload them by: wandb sync --no-skip-online {part}" if part else ""

    def _id(self, kept: str | None) -> str:
        """The W&B run's id, which the first part saves in the run folder for later parts, as ``kept``."""
        path = self.folder / WANDB_ID
        chosen = os.environ.get("WANDB_RUN_ID") if os.environ.get("WANDB_SWEEP_ID") else None  # by an agent
        name = chosen or kept or secrets.token_hex(4)
        if name != kept:
            path.parent.mkdir(exist_ok=True)
            write_whole(path, f"{name}\n")
        return name


def wandb_settings(
    folder: Path, name: str, config: Config, facts: Mapping[str, object], typed: Mapping[str, object]
) -> dict[str, Any]:
    """The arguments of ``wandb.init``; for null W&B reads its variable, else there is a default.

    ``facts``, those of ``RunFolder.facts``, are added to the nested config as flat keys. A W&B agent locks
    the keys that its sweep sets, so that ``compressor`` is a string instead of a mapping: group runs by the
    flat keys. The default group is that of the facts, the same for all seeds; the default tags and notes
    follow from the facts too.
    """
    defaults = {
        ("project", "WANDB_PROJECT"): "total-error",
        ("mode", "WANDB_MODE"): "offline",
        ("group", "WANDB_RUN_GROUP"): facts["group"],
        ("job_type", "WANDB_JOB_TYPE"): "train",
        ("tags", "WANDB_TAGS"): tags_of(facts),
        ("notes", "WANDB_NOTES"): facts.get("command"),
    }
    settings: dict[str, Any] = {"name": name, "config": {**config, **facts}, "dir": str(folder)}
    settings |= {key: value for (key, variable), value in defaults.items() if not os.environ.get(variable)}
    settings |= {key: value for key, value in typed.items() if value is not None}
    entity, slash, project = settings.get("project", "").rpartition("/")
    if slash:
        settings |= {"entity": entity, "project": project}
    return settings


@contextmanager
def _staging(folder: Path) -> Iterator[None]:
    """Context manager: W&B keeps manifests of artifacts in ``folder``, unless WANDB_DATA_DIR is set."""
    variable = "WANDB_DATA_DIR"
    if os.environ.get(variable):
        yield
        return
    os.environ[variable] = str(folder)
    try:
        yield
    finally:
        del os.environ[variable]
