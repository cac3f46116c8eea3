"""Matching of runs by setting, method and seed; duplicates and warnings."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import TypeVar

from results.read.naming import names, order
from results.read.run import Run
from results.read.settings import differences
from trainers.identity.identity import Settings

Key = TypeVar("Key", bound=Hashable)
_MOST_NAMED = 5  # methods that a warning names


def by_setting(runs: Iterable[Run]) -> list[list[Run]]:
    """Groups of runs that differ only in method and seed."""
    groups: dict[Settings, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.setting].append(run)
    return list(groups.values())


def by_method(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """One setting's runs by method, in a fixed order, seeds ascending.

    Raises like ``by_key``.
    """
    found = by_key(sorted(runs, key=order), lambda run: run.method)
    return {method: list(of_seed.values()) for method, of_seed in found.items()}


def by_key(runs: Iterable[Run], key: Callable[[Run], Key]) -> dict[Key, dict[int, Run]]:
    """Runs by key, one key per row of a table, in the order of first appearance; seeds ascending.

    If two folders have the same run, the one with the last path is used, with a message. Raises
    ``ValueError`` for two runs with equal keys that differ in more than their seed, and for two runs of
    a seed that began at different checkpoints.
    """
    members_of: dict[Key, list[Run]] = defaultdict(list)
    for run in runs:
        members_of[key(run)].append(run)
    found = {}
    for name, members in members_of.items():
        first, of_seed = members[0], dict[int, Run]()
        for run in sorted(members, key=lambda run: (run.seed, run.path)):
            if run.identity.group != first.identity.group:
                differ = differences(first.identity, run.identity)
                raise ValueError(
                    f"{first.path} and {run.path} would be one row, {name}, and differ: {differ}"
                )
            if run.seed in of_seed and run.id != of_seed[run.seed].id:
                raise ValueError(
                    f"{of_seed[run.seed].path} and {run.path} are both {name}, seed {run.seed}, and began at "
                    "different checkpoints: compare them one at a time"
                )
            if run.seed in of_seed:
                print(f"two runs of {run.method}, seed {run.seed}: using {run.path}", file=sys.stderr)
            of_seed[run.seed] = run
        found[name] = of_seed
    return found


def latest(runs: Iterable[Run]) -> list[Run]:
    """``runs`` without duplicates: of equal runs the one with the last path is kept."""
    runs = list(runs)
    replaced = _replaced(runs)
    return [run for run in runs if run.path not in replaced]


def warnings(runs: Iterable[Run]) -> list[str]:
    """Warnings about a comparison of ``runs``: duplicates, versions of code, other data, one seed."""
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
        if found_on := _other_data(group):
            found.append(f"{group[0].subject}: {found_on}")
        methods = by_method(group)
        called = names(methods)
        alone = [called[method] for method, seeds in methods.items() if len(seeds) == 1]
        if alone:
            rest = f"; and {len(alone) - _MOST_NAMED} more" if len(alone) > _MOST_NAMED else ""
            found.append(f"{group[0].subject}: one seed only of {'; '.join(alone[:_MOST_NAMED])}{rest}")
    return list(dict.fromkeys(found))


def _other_data(group: list[Run]) -> str:
    """A fact in which the data of two runs of a seed differ, such as other versions of files; or empty."""
    firsts: dict[int, Run] = {}
    for run in group:
        first = firsts.setdefault(run.seed, run)
        ours, theirs = (each.summary.get("data", {}) for each in (first, run))
        if differ := [name for name in ours if name in theirs and ours[name] != theirs[name]]:
            values = f"{ours[differ[0]]} in {first.path} and {theirs[differ[0]]} in {run.path}"
            return f"the data of the runs differ, so their qualities do not compare: {differ[0]} is {values}"
    return ""


def _replaced(runs: Iterable[Run]) -> dict[Path, Path]:
    """Paths of duplicate runs, each with the path of the run that is used instead."""
    last = {run.id: run.path for run in sorted(runs, key=lambda run: run.path)}
    return {run.path: last[run.id] for run in runs if run.path != last[run.id]}
