"""Trainings of the league: their definition, outcomes of finished ones, and new ones by run.py."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from results.compare.measures import LINK_BYTES
from results.escaping import one_line
from results.read.folders import run_folders
from results.studies.kit import ROOT
from results.studies.league.methods import Entry
from results.studies.league.tasks import TASKS, TUNING_SEED
from trainers.files import files as run_files
from trainers.identity.identity import without_effect
from trainers.launch.commands import Commands

PREFIX = "league_"  # a run is named league_TASK-METHOD
COMPARED, TUNING = "league", "league_tuning"  # folders below the root of outputs
DIAGNOSTICS = ("diagnostics=[gap,hindsight]",)  # of compared runs
OWN_SETTINGS = ("experiment", "output", "seed", "optimizer.lr", "diagnostics", "trainer.evaluate_every")
OWN_GROUPS = ("budget", "compressor", "feedback")
MODULES = ("models.gpt", "sklearn.datasets", "torchvision.models")  # slow imports of the tasks
AT_THE_END = ("trainer.evaluate_every=1000",)  # epochs; runs that only tune need the last quality alone


@dataclass(frozen=True)
class Trial:
    """One training."""

    task: str
    method: str
    share: int | None  # of ``SHARES``; None: no budget
    knob: str  # settings that meet the budget: overrides separated by blanks
    rate: float  # learning rate
    seed: int

    def overrides(self, entry: Entry, root: Path) -> list[str]:
        """The overrides of run.py, with an output below ``root``."""
        quoted = f"'{self.knob}'" if self.knob else "null"
        words = [f"experiment=league/{self.task}", *entry.overrides, *self.knob.split()]
        words += [f"budget.method={self.method}", f"budget.knob={quoted}"]
        words += [f"budget.share={'null' if self.share is None else self.share}"]
        words += [f"optimizer.lr={self.rate:.4g}", f"seed={self.seed}", "tracker=none"]
        if self.seed == TUNING_SEED:
            evaluation = AT_THE_END if TASKS[self.task].is_evaluated else ()
            return [*words, f"output={root / TUNING}", *evaluation]
        return [*words, f"output={root / COMPARED}", *DIAGNOSTICS]

    @property
    def short_knob(self) -> str:
        """The knob's overrides with only the last part of each key, such as rank=2."""
        pairs = [word.partition("=") for word in self.knob.split()]
        return " ".join(f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs)

    def has_end_rate(self, tried: Iterable["Trial"]) -> bool:
        """Whether the rate is the lowest or the highest of those tried for this method, task and budget."""
        task, own = TASKS[self.task], (self.task, self.method, self.share)
        rates = task.rates(self.method)
        if task.further_rates(self.method):  # runs of other rates may be left from an earlier league
            rates += [trial.rate for trial in tried if (trial.task, trial.method, trial.share) == own]
        return self.rate in (min(rates), max(rates))

    def __str__(self) -> str:
        budget = "" if self.share is None else f" dense/{self.share}"
        return f"{self.task} {self.method}{budget} {self.knob or '-'} lr={self.rate:.4g} seed={self.seed}"


class Outcome(NamedTuple):
    """The result of a trial; ``error`` is empty unless it failed, ``folder`` None unless it was read."""

    sent: float  # bytes that left a worker
    quality: float
    size: int  # D, the number of parameters
    seconds: float  # wall time
    error: str = ""
    folder: Path | None = None  # of the run


class TrainingError(Exception):
    """A training ended with an error, or its quality is not finite."""


def trial_of(config: dict[str, Any]) -> Trial:
    """The trial of a run's config. Raises ``ValueError`` for a run of another study."""
    task, _, method = str(config["name"]).removeprefix(PREFIX).partition("-")
    budget = config["budget"]
    if task not in TASKS or "share" not in budget:
        raise ValueError(f"runs must be named {PREFIX}TASK-METHOD, got {config['name']}")
    return Trial(
        task, method, budget["share"], budget["knob"] or "", float(config["optimizer"]["lr"]), config["seed"]
    )


def foreign_settings(config: dict[str, Any], overrides: Iterable[str]) -> list[str]:
    """The overrides of a training that the league does not set, without those that change no result."""
    ours = (*OWN_SETTINGS, "tracker")
    return [
        word
        for word in overrides
        if _key(word) not in ours
        and _key(word).partition(".")[0] not in OWN_GROUPS
        and not without_effect(config, _key(word))
    ]


def outcome_of(task: str, summary: dict[str, Any]) -> Outcome:
    """The outcome of a run of ``task`` that has finished or failed."""
    quality, error = summary.get(TASKS[task].quality, math.nan), ""
    if summary["status"] != "finished":
        error = str(summary.get("error") or summary["status"])
    elif not math.isfinite(quality):
        error = f"{TASKS[task].quality} is {quality}"
    size = sum(layer["elements"] for layer in summary.get("layers", {}).values())
    return Outcome(summary.get(LINK_BYTES, math.nan), quality, size, summary.get("wall_seconds", 0.0), error)


def ended_trials(folder: Path) -> dict[Trial, Outcome]:
    """Outcomes of the trials below ``folder`` that have finished or failed.

    Interrupted runs and those of other studies are left out.
    """
    found = {}
    for path in run_folders(folder) if folder.is_dir() else ():
        try:
            summary, trial = run_files.read_summary(path), trial_of(run_files.read_config(path))
        except (run_files.UnreadableFileError, ValueError):
            continue
        found[trial] = outcome_of(trial.task, summary)._replace(folder=path)
    return found


class Trainings:
    """Trains trials that have no outcome yet. Several threads may call it, for different trials.

    ``overrides`` are added to every training. ``report`` receives a line after each. Raises ``ValueError``
    for overrides of settings that the league chooses.
    """

    def __init__(
        self,
        root: Path,
        overrides: Iterable[str] = (),
        report: Callable[[str], None] = print,
        commands: Commands | None = None,
    ) -> None:
        self.root, self.commands = root, commands or Commands()
        self.overrides = tuple(overrides)
        for key in map(_key, self.overrides):
            if key in OWN_SETTINGS or key.partition(".")[0] in OWN_GROUPS:
                raise ValueError(f"--set must not set {key}, which the league chooses")
        self.report = report
        self.outcomes = ended_trials(root / COMPARED) | ended_trials(root / TUNING)

    def __call__(self, entry: Entry, trial: Trial) -> Outcome:
        """The outcome of ``trial``.

        Raises ``TrainingError`` if it failed, now or before, ``ValueError`` if run.py refused it or if it was
        trained before with other ``overrides``, and ``KeyboardInterrupt`` if a signal stopped ``commands``.
        """
        if trial not in self.outcomes:
            self.outcomes[trial] = self._train(entry, trial)
        outcome = self.outcomes[trial]
        if outcome.folder is not None:
            self._require_overrides(outcome.folder, trial.overrides(entry, self.root))
        if outcome.error:
            raise TrainingError(f"{trial}: {outcome.error}")
        return outcome

    def _require_overrides(self, folder: Path, own: Sequence[str]) -> None:
        """Raise ``ValueError`` if the run in ``folder`` had others than ``own`` and ``overrides``.

        Overrides that do not change a training are not compared.
        """
        config, keys = run_files.read_config(folder), {_key(word) for word in own}

        def further(words: Iterable[str]) -> str:
            changing = (word for word in words if not without_effect(config, _key(word)))
            return " ".join(sorted({word for word in changing if _key(word) not in keys}))

        recorded = run_files.read_environment(folder).get("overrides") or []
        before, now = further(recorded), further(self.overrides)
        if before != now:
            raise ValueError(
                f"{folder} was trained with --set {before or 'nothing'}, not {now or 'nothing'}: "
                "use another --root"
            )

    def _train(self, entry: Entry, trial: Trial) -> Outcome:
        words = [*trial.overrides(entry, self.root), *self.overrides]
        done = self.commands.run_py(words, ROOT, MODULES)
        if done.returncode and (outcome := self._failed(trial)):
            self.report(f"{trial}: {outcome.error}")
            return outcome
        found = re.findall(r"^(?:run folder: (.+)|(.+?) is finished already.*)$", done.stdout, re.M)
        if not found:
            silent = f"run.py printed nothing for {trial}, exit status {done.returncode}"
            printed = ((done.stderr or done.stdout).strip() or silent).splitlines()[-1]
            raise ValueError(one_line(printed.removeprefix("error: ")))
        folder = ROOT / next(name for name in found[-1] if name)
        outcome = outcome_of(trial.task, run_files.read_summary(folder))
        self.report(f"{trial}: {outcome.error or _described(outcome)}")
        return outcome

    def _failed(self, trial: Trial) -> Outcome | None:
        """The outcome of ``trial`` if it began to train and failed, as by a gradient that is not finite."""
        kind = TUNING if trial.seed == TUNING_SEED else COMPARED
        outcome = ended_trials(self.root / kind / f"{PREFIX}{trial.task}-{trial.method}").get(trial)
        return outcome if outcome is not None and outcome.error else None


def _key(override: str) -> str:
    """KEY of KEY=VALUE or +KEY=VALUE."""
    return override.lstrip("+").partition("=")[0]


def _described(outcome: Outcome) -> str:
    return f"{outcome.sent:,.0f} bytes, quality {outcome.quality:.4g}, {outcome.seconds:.0f} s"
