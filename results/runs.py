"""Run folders as they lie on disk, to configs, totals and curves."""

import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

import trainers.run_files as run_files
from compressors import naming
from results.escaping import one_line
from results.records import read_records
from results.showable import require_config, require_method, require_summary, require_within

NOT_THE_SETTING = (
    "compressor",
    "budget",
    "feedback",
    "seed",
    "name",
    "output",
    "tracker",
    "processes",
    "isolate",
    "threads",
)
NOT_THE_SETTING += (
    "device",
    "experiment",
    "resume",
    "checkpoint",
    "timeout_seconds",
    "diagnostics",
    "kernels",
)
LONGEST_REASON = 500  # characters
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


@dataclass(frozen=True)
class Run:
    """One finished run."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    records: pd.DataFrame  # one row per record, metrics as columns
    environment: dict[str, Any] = field(default_factory=dict)  # empty where it was not recorded
    across: tuple[str, ...] = ()  # settings, such as scope or data.alpha, that count as part of the method

    @property
    def id(self) -> str:
        """The hash of what can change the result, which its folder is named after."""
        return self.summary.get("id", self.path.name)

    @property
    def commit(self) -> str | None:
        """The commit of the code that ran, or None where that is not known."""
        return self.environment.get("commit")

    @property
    def modified(self) -> bool:
        """Whether the code differed from its commit."""
        return bool(self.environment.get("commit_is_modified"))

    @property
    def code(self) -> str:
        """The version of the code, short: ten digits of its commit, and a star if it was modified."""
        return (self.commit or "unknown")[:10] + "*" * self.modified

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def compressor(self) -> str:
        """The method's name, as on the command line."""
        return naming.compressor_name(self.config)

    @property
    def subject(self) -> str:
        """What was trained, without the method: model and data, unless the run was given a name."""
        return naming.subject(self.config)

    @property
    def method(self) -> str:
        """The method with its settings, for a legend."""
        words = [f"{key.split('.')[-1]} {_at(self.config, key)}" for key in self.across]
        return ", ".join([naming.method(self.config), *words])

    @property
    def setting(self) -> str:
        """Everything but method and seed, as one string: runs that may be compared share it."""
        kept = {k: v for k, v in self.config.items() if k not in (*NOT_THE_SETTING, *self.across)}
        idle = ("root", "download", "home", "memory_gib", "decoders")
        kept["data"] = {k: v for k, v in kept["data"].items() if k not in idle}
        kept["model"] = {k: v for k, v in kept["model"].items() if k != "download"}
        if kept["data"].get("partition") != "dirichlet":
            kept["data"].pop("alpha", None)
        kept["trainer"] = {k: v for k, v in kept["trainer"].items() if k not in ("log_every", "overlap")}
        for group, _, key in (name.partition(".") for name in self.across if "." in name):
            kept[group] = {k: v for k, v in kept[group].items() if k != key}
        return json.dumps(kept, sort_keys=True)

    def curve(self, metric: str) -> pd.Series:
        """A metric by step, where it was recorded; empty where it never was.

        Of two records of one step, as a run leaves that went on from a checkpoint, the last.
        """
        if metric not in self.records:
            return pd.Series(dtype=float, name=metric, index=pd.Index([], dtype="int64", name="step"))
        curve = self.records.set_index("step")[metric].dropna()
        return curve if curve.index.is_unique else curve[~curve.index.duplicated(keep="last")]


def compared_across(runs: Iterable[Run], keys: str) -> list[Run]:
    """The same runs, to be told apart by settings, named between commas, as if they were part of the method.

    A run that lacks a setting is left out; raises ``ValueError`` for a setting that none has.
    """
    names = tuple(key.strip() for key in keys.split(",") if key.strip())
    runs, kept = list(runs), []
    for run in runs:
        try:
            for key in names:
                _at(run.config, key)
        except ValueError as error:
            missing = error
            left_out(run.path, error)
        else:
            kept.append(replace(run, across=names))
    if runs and not kept:
        raise missing
    return kept


def _at(config: dict[str, Any], key: str) -> Any:
    """The setting at a dotted key."""
    value: Any = config
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise ValueError(f"no setting {key} in its config.yaml")
        value = value[part]
    return value


def read_runs(folders: Iterable[Path]) -> list[Run]:
    """All finished runs below ``folders``, in the order of their paths.

    Folders of runs that did not finish or cannot be read are named on standard error and left out;
    what lies inside a run's folder is not looked at. Raises ``FileNotFoundError`` for a folder that is
    not there.
    """
    runs, seen = [], set()
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"no folder {folder}")
        for path in run_folders(folder):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                if not str(path).isprintable():
                    raise ValueError("its name holds characters that cannot be shown")
                runs.append(_read(path))
            except (OSError, ValueError) as error:
                left_out(path, error)
    return runs


def left_out(path: Path, reason: object) -> None:
    """Name a run folder that is not shown, and why, on standard error: one line, whatever its files hold."""
    said = str(reason).replace(f"{path}{os.sep}", "")
    print(f"left out {one_line(path)}: {one_line(said)[:LONGEST_REASON]}", file=sys.stderr)


def finished_runs(folders: Iterable[Path], needs: Sequence[str] = ()) -> list[Run]:
    """``read_runs`` without duplicates, and what ``warnings`` has to say on standard error.

    A run whose summary lacks one of the metrics that are needed is left out, with a line. Raises
    ``FileNotFoundError`` where there is no finished run.
    """
    folders = list(folders)
    runs = with_numbers(read_runs(folders), needs)
    if not runs:
        raise FileNotFoundError(f"no finished run in {', '.join(map(str, folders))}")
    for text in warnings(runs):
        print(f"warning: {text}", file=sys.stderr)
    return latest(runs)


def with_numbers(runs: Iterable[Run], needs: Sequence[str]) -> list[Run]:
    """``runs`` whose summaries have all these metrics; the others are named on standard error."""
    kept = []
    for run in runs:
        if lacking := [name for name in needs if name not in run.summary]:
            left_out(run.path, f"its summary has no {lacking[0]}; an earlier version of this project ran it")
        else:
            kept.append(run)
    return kept


def run_folders(folder: Path) -> Iterator[Path]:
    """Folders at and below ``folder`` that hold a run, finished or not, in the order of their paths."""
    for parent, folders, files in os.walk(folder):
        if {"config.yaml", "metrics.jsonl", "summary.json"} & set(files):
            folders.clear()
            yield Path(parent)
        else:
            folders[:] = sorted(name for name in folders if name != "wandb" and not name.startswith("."))


def by_setting(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs that differ in method and seed only, together."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.setting].append(run)
    return list(groups.values())


def by_method(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """One setting's runs by method, in a fixed order, seeds ascending; of two with one seed, the last."""
    runs = list(runs)
    scales = {run.config["feedback"].get("scale") for run in runs} - {None}
    found: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in sorted(runs, key=lambda run: run.path):
        scale = run.config["feedback"].get("scale")
        name = f"{run.method}, residual by {scale}" if scale and len(scales) > 1 else run.method
        if run.seed in found[name]:
            print(f"two runs of {name}, seed {run.seed}: using {run.path}", file=sys.stderr)
        found[name][run.seed] = run
    return {
        method: [found[method][s] for s in sorted(found[method])] for method in sorted(found, key=_natural)
    }


def _natural(text: str) -> list[str | float]:
    """A key for sorting: numbers by their size, 1e-05 before 0.01, what stands between them as text."""
    parts = _NUMBER.split(text)
    return [float(part) if i % 2 else part for i, part in enumerate(parts)]


def latest(runs: Iterable[Run]) -> list[Run]:
    """``runs`` without those of which another has the same id, or the same setting, method and seed.

    Of such runs the one whose path comes last is kept.
    """
    runs = list(runs)
    replaced = _replaced(runs)
    return [run for run in runs if run.path not in replaced]


def warnings(runs: Iterable[Run]) -> list[str]:
    """What a reader of a comparison of ``runs`` must know: duplicates, versions of the code, lone seeds."""
    runs = list(runs)
    replaced = _replaced(runs)
    found = [f"{path} is left out: {kept} is the same run" for path, kept in replaced.items()]
    for group in by_setting(run for run in runs if run.path not in replaced):
        versions = Counter(run.code for run in group)
        if len(versions) > 1:
            counts = ", ".join(f"{code} ({count})" for code, count in sorted(versions.items()))
            several = f"runs of {len(versions)} versions of the code (*: modified)"
            found.append(f"{group[0].subject}: {several}: {counts}")
        elif group[0].modified:
            found.append(f"{group[0].subject}: runs of modified code, which may differ: {group[0].code}")
        alone = [method for method, seeds in by_method(group).items() if len(seeds) == 1]
        if alone:
            found.append(f"{group[0].subject}: one seed only of {'; '.join(alone)}")
    return list(dict.fromkeys(found))


def _replaced(runs: Iterable[Run]) -> dict[Path, Path]:
    """Paths of runs that another one stands in for, and its path."""
    replaced, ids, alike = {}, {}, {}
    for run in sorted(runs, key=lambda run: run.path):
        key = (run.setting, run.method, run.config["feedback"].get("scale"), run.seed)
        for earlier in {ids.get(run.id), alike.get(key)} - {None, run.path}:
            replaced[earlier] = run.path
        ids[run.id] = alike[key] = run.path
    return replaced


def _read(path: Path) -> Run:
    """A finished run. Raises ``ValueError`` for one that is not, or that no table could show."""
    require_within(path)
    try:
        summary = run_files.read_summary(path)
    except run_files.MissingFileError as error:
        raise ValueError("it has no summary; the run is still going or was interrupted") from error
    if summary["status"] != "finished":
        because = f", {summary['error']}" if summary.get("error") else ""
        raise ValueError(f"its status is {summary['status']!r}{because}")
    config = run_files.read_config(path)
    require_config(config)
    require_summary(summary)
    records = read_records(path, summary)
    try:
        environment = run_files.read_environment(path)
    except run_files.UnreadableFileError:  # the numbers are good without it
        environment = {}
    run = Run(path, config, summary, records, environment)
    require_method(run.method)
    return run
