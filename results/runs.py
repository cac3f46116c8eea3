"""Run folders as they lie on disk, to configs, totals and curves."""

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

import trainers.records.files as run_files
from results.escaping import one_line
from results.records import read_records
from results.settings import differences
from results.showable import require_config, require_method, require_summary, require_within
from trainers.records.identity import (
    METHOD,
    USUAL,
    Identity,
    Origin,
    Settings,
    at,
    identify,
    names_checkpoint,
    subject_of,
    without_effect,
)

Cell = TypeVar("Cell", bound=Hashable)
LONGEST_REASON = 500  # characters


@dataclass(frozen=True)
class Run:
    """One finished run."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    records: pd.DataFrame  # one row per record, metrics as columns
    environment: dict[str, Any] = field(default_factory=dict)  # empty where it was not recorded
    across: tuple[str, ...] = ()  # settings, such as scope or data.alpha, that count as part of the method

    @cached_property
    def identity(self) -> Identity:
        """Method, setting and seed, by today's rules; an older version's summary holds another id."""
        own, known = identify(self.config), self.summary.get("id", self.path.name)
        if names_checkpoint(self.config) and known != own.id:  # an older version's id is of config and origin
            checkpoint = str(self.summary.get("origin", known))
            origin = Origin(checkpoint, str(self.summary.get("origin_group", checkpoint)))
            own = identify(self.config, origin)
        return own.across(self.across)

    @property
    def id(self) -> str:
        """The hash of what can change the result."""
        return self.identity.id

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
        return self.identity.method.compressor

    @property
    def subject(self) -> str:
        """What was trained, without the method: model and data, unless the run was given a name."""
        return subject_of(self.config)

    @property
    def method(self) -> str:
        """The method with its settings, for a row of a table."""
        return self.identity.method.label

    @property
    def setting(self) -> Settings:
        """Everything but method and seed: runs that may be compared share it."""
        return self.identity.setting

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

    A run that lacks a setting is left out; raises ``ValueError`` for a setting that none has, that is
    part of the method, and that cannot change a result.
    """
    names = tuple(dict.fromkeys(key.strip() for key in keys.split(",") if key.strip()))
    runs, kept = list(runs), []
    for key in names:
        if key.partition(".")[0] in (*METHOD, "seed"):
            raise ValueError(f"{key} is told apart already: it is part of the method, or the seed")
        reasons = [without_effect(run.config, key) for run in runs]
        if runs and all(reasons):
            raise ValueError(f"{key} has no effect {reasons[0].reason.format_map(runs[0].config)}")
    for run in runs:
        missing = [key for key in names if key not in USUAL and not _has(run.config, key)]
        if missing:
            error = ValueError(f"no setting {missing[0]} in its config.yaml")
            left_out(run.path, error)
        else:
            kept.append(replace(run, across=names))
    if runs and not kept:
        raise error
    return kept


def _has(config: dict[str, Any], key: str) -> bool:
    """Whether there is a value at a dotted key, null among them."""
    group, _, last = key.rpartition(".")
    held = at(config, group) if group else config
    return isinstance(held, dict) and last in held and not isinstance(held[last], dict)


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
    for said in warnings(runs):
        print(f"warning: {said}", file=sys.stderr)
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
    groups: dict[Settings, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.setting].append(run)
    return list(groups.values())


def by_method(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """One setting's runs by method, in a fixed order, seeds ascending.

    Raises ``ValueError`` as ``by_cell`` does.
    """
    found = by_cell(sorted(runs, key=lambda run: run.identity.method.order), lambda run: run.method)
    return {method: list(of_seed.values()) for method, of_seed in found.items()}


def by_cell(runs: Iterable[Run], cell: Callable[[Run], Cell]) -> dict[Cell, dict[int, Run]]:
    """Runs by what a table has a row for, in the order they first come in, each by its seed, ascending.

    Of two folders of one run the one whose path comes last counts, which is said. Raises ``ValueError`` for
    two runs that would be of one row and differ in more than their seed.
    """
    cells: dict[Cell, list[Run]] = defaultdict(list)
    for run in runs:
        cells[cell(run)].append(run)
    found = {}
    for name, members in cells.items():
        first, of_seed = members[0], {}
        for run in sorted(members, key=lambda run: (run.seed, run.path)):
            if run.identity.group != first.identity.group:
                differ = differences(first.identity, run.identity)
                raise ValueError(
                    f"{first.path} and {run.path} would be one row, {name}, and differ: {differ}"
                )
            if run.seed in of_seed:
                print(f"two runs of {run.method}, seed {run.seed}: using {run.path}", file=sys.stderr)
            of_seed[run.seed] = run
        found[name] = of_seed
    return found


def latest(runs: Iterable[Run]) -> list[Run]:
    """``runs`` without those of which another is the same run: the one whose path comes last is kept."""
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
    last = {run.id: run.path for run in sorted(runs, key=lambda run: run.path)}
    return {run.path: last[run.id] for run in runs if run.path != last[run.id]}


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
