"""Trainings of the league: what defines one, those that are finished, and new ones by run.py."""

import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from results.compare.measures import LINK_BYTES
from results.escaping import one_line
from results.read.folders import run_folders
from results.studies.kit import ROOT
from results.studies.league.knobs import Entry
from results.studies.league.tasks import TASKS, TUNING_SEED
from trainers.records import files as run_files

PREFIX = "league_"  # of a run's name: league_TASK-METHOD
COMPARED, TUNING = "league", "league_tuning"  # below the root of outputs
MEASURED = ("diagnostics=[gap,hindsight]",)  # in compared runs


@dataclass(frozen=True)
class Trial:
    """One training. ``knob`` has the settings that meet the budget, as overrides separated by blanks."""

    task: str
    method: str
    share: int | None  # None: no budget
    knob: str
    rate: float
    seed: int

    def overrides(self, entry: Entry, root: Path) -> list[str]:
        quoted = f"'{self.knob}'" if self.knob else "null"
        words = [f"experiment=league/{self.task}", *entry.overrides, *self.knob.split()]
        words += [f"budget.method={self.method}", f"budget.knob={quoted}"]
        words += [f"budget.share={'null' if self.share is None else self.share}"]
        words += [f"optimizer.lr={self.rate:.4g}", f"seed={self.seed}", "tracker=none"]
        if self.seed == TUNING_SEED:
            return [*words, f"output={root / TUNING}"]
        return [*words, f"output={root / COMPARED}", *MEASURED]

    def __str__(self) -> str:
        budget = "" if self.share is None else f" dense/{self.share}"
        return f"{self.task} {self.method}{budget} {self.knob or '-'} lr={self.rate:.4g} seed={self.seed}"


class Outcome(NamedTuple):
    """What a trial ended with; ``error`` is empty unless it failed."""

    sent: float  # bytes that left a worker
    quality: float
    size: int  # parameters
    seconds: float
    error: str = ""


class TrainingError(Exception):
    """A training failed, by its own numbers or with an error."""


def trial_of(config: dict[str, Any]) -> Trial:
    """The trial of a run's config. Raises ``ValueError`` for a run of another study."""
    task, _, method = str(config["name"]).removeprefix(PREFIX).partition("-")
    budget = config["budget"]
    if task not in TASKS or "share" not in budget:
        raise ValueError(f"runs must be named {PREFIX}TASK-METHOD, got {config['name']}")
    return Trial(
        task, method, budget["share"], budget["knob"] or "", float(config["optimizer"]["lr"]), config["seed"]
    )


def outcome_of(task: str, summary: dict[str, Any]) -> Outcome:
    """The outcome of a run that ended, well or not."""
    quality, error = summary.get(TASKS[task].quality, math.nan), ""
    if summary["status"] != "finished":
        error = str(summary.get("error") or summary["status"])
    elif not math.isfinite(quality):
        error = f"{TASKS[task].quality} is {quality}"
    size = sum(layer["elements"] for layer in summary.get("layers", {}).values())
    return Outcome(summary.get(LINK_BYTES, math.nan), quality, size, summary.get("wall_seconds", 0.0), error)


def ended(folder: Path) -> dict[Trial, Outcome]:
    """The trials below ``folder`` that ended; those that were interrupted are not among them."""
    found = {}
    for path in run_folders(folder) if folder.is_dir() else ():
        try:
            summary, config = run_files.read_summary(path), run_files.read_config(path)
        except run_files.UnreadableFileError:
            continue
        trial = trial_of(config)
        found[trial] = outcome_of(trial.task, summary)
    return found


class Trainings:
    """Trains what has not ended before. Several threads may call it, for different trials."""

    def __init__(self, root: Path, overrides: Iterable[str] = (), say: Callable[[str], None] = print) -> None:
        self.root = root
        self.overrides = tuple(overrides)
        self.say = say
        self.found = ended(root / COMPARED) | ended(root / TUNING)
        self.stopping = threading.Event()

    def __call__(self, entry: Entry, trial: Trial) -> Outcome:
        """The outcome of ``trial``.

        Raises ``TrainingError`` if it failed, now or before, ``ValueError`` if it was refused, and
        ``KeyboardInterrupt`` if the league was stopped.
        """
        if trial not in self.found:
            self.found[trial] = self._train(entry, trial)
        outcome = self.found[trial]
        if outcome.error:
            raise TrainingError(f"{trial}: {outcome.error}")
        return outcome

    def _train(self, entry: Entry, trial: Trial) -> Outcome:
        if self.stopping.is_set():
            raise KeyboardInterrupt
        words = [*trial.overrides(entry, self.root), *self.overrides]
        done = subprocess.run(
            [sys.executable, "run.py", *words],
            cwd=ROOT,
            env={"OMP_NUM_THREADS": "1"} | os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode < 0 or done.returncode >= 128 or self.stopping.is_set():
            raise KeyboardInterrupt
        found = re.findall(r"^(?:run folder: (.+)|(.+?) is finished already.*)$", done.stdout, re.M)
        if not found:
            said = (done.stderr or done.stdout).strip().splitlines()
            last = said[-1].removeprefix("error: ") if said else f"run.py said nothing about {trial}"
            raise ValueError(one_line(last))
        folder = ROOT / next(name for name in found[-1] if name)
        outcome = outcome_of(trial.task, run_files.read_summary(folder))
        self.say(f"{trial}: {outcome.error or _words(outcome)}")
        return outcome


def _words(outcome: Outcome) -> str:
    return f"{outcome.sent:,.0f} bytes, quality {outcome.quality:.4g}, {outcome.seconds:.0f} s"
