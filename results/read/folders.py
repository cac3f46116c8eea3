"""Reading of run folders."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import trainers.files.files as run_files
from results.escaping import one_line
from results.read.matching import latest, warnings
from results.read.records import read_records
from results.read.run import Run
from trainers.identity.identity import DEFAULTS, METHOD, at, without_effect

LONGEST_REASON = 500  # characters


def compared_across(runs: Iterable[Run], keys: str) -> list[Run]:
    """The same runs, with the settings ``keys`` (separated by commas) as part of the method.

    A run that lacks a setting is left out. Raises ``ValueError`` for a setting that no run has, that is
    already part of the method, or that cannot change a result.
    """
    names = tuple(dict.fromkeys(key.strip() for key in keys.split(",") if key.strip()))
    runs, kept = list(runs), []
    for key in names:
        if key.partition(".")[0] in (*METHOD, "seed"):
            raise ValueError(f"{key} is already compared: it is part of the method, or the seed")
        reasons = [why for run in runs if (why := without_effect(run.config, key)) is not None]
        if runs and len(reasons) == len(runs):
            raise ValueError(f"{key} has no effect {reasons[0].reason.format_map(runs[0].config)}")
    for run in runs:
        missing = [key for key in names if key not in DEFAULTS and not _has(run.config, key)]
        if missing:
            error = ValueError(f"no setting {missing[0]} in its config.yaml")
            left_out(run.path, error)
        else:
            kept.append(replace(run, across=names))
    if runs and not kept:
        raise error
    return kept


def _has(config: dict[str, Any], key: str) -> bool:
    """Whether there is a value, which may be null, at a dotted key."""
    group, _, last = key.rpartition(".")
    held = at(config, group) if group else config
    return isinstance(held, dict) and last in held and not isinstance(held[last], dict)


def read_runs(folders: Iterable[Path]) -> list[Run]:
    """All finished runs below ``folders``, in the order of their paths.

    Folders of runs that did not finish or cannot be read are named on standard error and left out. Folders
    inside a run's folder are not searched. Raises ``FileNotFoundError`` for a missing folder.
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
                runs.append(_read(path))
            except (OSError, ValueError) as error:
                left_out(path, error)
    return runs


def left_out(path: Path, reason: object) -> None:
    """Print one line on standard error with a run folder that is not shown and the reason."""
    said = str(reason).replace(f"{path}{os.sep}", "")
    print(f"left out {one_line(path)}: {one_line(said)[:LONGEST_REASON]}", file=sys.stderr)


def finished_runs(folders: Iterable[Path], needs: Sequence[str] = (), *, warn: bool = True) -> list[Run]:
    """``read_runs`` without duplicates; with ``warn``, prints ``warnings`` on standard error.

    A run whose summary lacks one of the metrics ``needs`` is left out, with a line on standard error. Raises
    ``FileNotFoundError`` if no run is left.
    """
    folders = list(folders)
    finished = read_runs(folders)
    runs = with_numbers(finished, needs)
    if not runs:
        lacked = f" has {' and '.join(needs)}" if finished else ""
        raise FileNotFoundError(f"no finished run in {', '.join(map(str, folders))}{lacked}")
    for said in warnings(runs) if warn else ():
        print(f"warning: {said}", file=sys.stderr)
    return latest(runs)


def with_numbers(runs: Iterable[Run], needs: Sequence[str]) -> list[Run]:
    """The ``runs`` whose summaries have all metrics ``needs``; the others are named on standard error."""
    kept = []
    for run in runs:
        if lacking := [name for name in needs if name not in run.summary]:
            why = "it has other data or diagnostics, or an earlier version of this project ran it"
            left_out(run.path, f"its summary has no {lacking[0]}; {why}")
        else:
            kept.append(run)
    return kept


def run_folders(folder: Path) -> Iterator[Path]:
    """Run folders at and below ``folder``, finished or not, in the order of their paths."""
    for parent, folders, files in os.walk(folder):
        if {"config.yaml", "metrics.jsonl", "summary.json"} & set(files):
            folders.clear()
            yield Path(parent)
        else:
            folders[:] = sorted(name for name in folders if name != "wandb" and not name.startswith("."))


def _read(path: Path) -> Run:
    """The finished run at ``path``. Raises ``ValueError`` if it is not finished or damaged."""
    try:
        summary = run_files.read_summary(path)
    except run_files.MissingFileError as error:
        raise ValueError("it has no summary; the run is still going or was interrupted") from error
    if summary["status"] != "finished":
        because = f", {summary['error']}" if summary.get("error") else ""
        raise ValueError(f"its status is {summary['status']!r}{because}")
    config = run_files.read_config(path)
    records = read_records(path, summary)
    try:
        environment = run_files.read_environment(path)
    except run_files.UnreadableFileError:  # the numbers do not depend on it
        environment = {}
    return Run(path, config, summary, records, environment)
