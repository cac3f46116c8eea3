"""Facts of a report in addition to its numbers: series, common and varied settings, machines."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from results.figures.style import Styled
from results.read.matching import by_method, by_setting
from results.read.naming import family, names, order, part_name
from results.read.run import Run
from results.read.settings import differing, is_told, sortable
from trainers.identity.identity import text

# Settings not shown: paths of a run and its data, the seed, and settings that act through the compressor
NOT_SHOWN = ("output", "name", "tracker", "seed", "budget", "data.root", "data.download", "data.home")
MOST_VALUES = 12  # values shown of a setting that varies


@dataclass(frozen=True)
class Page:
    """A run with its key and folder in the report."""

    key: str  # unique in the report, equal for equal runs
    folder: str  # relative to the given folder
    run: Run

    @cached_property
    def flat_config(self) -> dict[str, str]:
        """Every setting of the run, as ``flat`` gives it."""
        return flat(self.run.config)

    @property
    def settings(self) -> str:
        """Every setting of the run, a line each."""
        return "".join(f"{key}: {value}\n" for key, value in self.flat_config.items())

    @property
    def command(self) -> str:
        """The command that repeats only this run.

        If the run's overrides are unknown, it is the recorded command, which may be that of a whole sweep.
        """
        environment = self.run.environment
        words = environment.get("command")
        if isinstance(overrides := environment.get("overrides"), list):
            return _typed(["run.py", *overrides])
        if not isinstance(words, list):
            return "not recorded"
        is_job = bool({"-m", "--multirun"} & set(words))
        return f"not recorded; a job of {_typed(words)}" if is_job else _typed(words)


@dataclass(frozen=True)
class Series:
    """The runs of one method in one setting, one per seed: a line of a figure, a row of a table."""

    label: str  # the method, and the settings in which it differs from the subject's other series
    family: str  # the label without the method's numbers; each family has its own trade-off curve
    compressor: str
    order: tuple[Any, ...]  # sort key
    pages: tuple[Page, ...]  # seeds ascending

    @property
    def styled(self) -> Styled:
        return Styled(self.label, self.compressor, self.family, self.order)

    @property
    def runs(self) -> list[Run]:
        return [page.run for page in self.pages]


def pages_of(runs: Iterable[Run], outputs: Iterable[Path]) -> list[Page]:
    """The runs in a fixed order, each with a key and its folder relative to its output folder."""
    outputs = list(outputs)
    named = [(_below(run.path, outputs), run) for run in runs]
    named.sort(key=lambda pair: (pair[1].subject, pair[1].identity.method.order, pair[1].seed, pair[0]))
    return [Page(f"run-{number}", folder, run) for number, (folder, run) in enumerate(named, 1)]


def series_of(pages: Iterable[Page]) -> dict[str, list[Series]]:
    """The series of each subject, in the order of their labels."""
    by_run = {id(page.run): page for page in pages}
    subjects: dict[str, list[Run]] = {}
    for page in by_run.values():
        subjects.setdefault(page.run.subject, []).append(page.run)
    return {subject: _series(runs, by_run) for subject, runs in sorted(subjects.items())}


def _series(runs: list[Run], by_run: dict[int, Page]) -> list[Series]:
    groups = by_setting(runs)
    found = []
    for group, own in zip(groups, differing([group[0].setting for group in groups]), strict=True):
        extra = [f"{key} {text(value)}" for key, value in own.items() if is_told(key, value)]
        rank = [sortable(value) for value in own.values()]
        methods = by_method(group)
        for called, seeds in zip(names(methods).values(), methods.values(), strict=True):
            first = seeds[0]
            label, shared = (", ".join([words, *extra]) for words in (called, family(first)))
            pages = tuple(by_run[id(run)] for run in seeds)
            found.append(Series(label, shared, first.compressor, (*order(first)[:2], rank, label), pages))
    return sorted(found, key=lambda series: series.order)


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as ``a.b`` -> value, with values as on the command line.

    A part is shown by its name: ``model: mlp``.
    """
    lines: dict[str, str] = {}
    for key, value in config.items():
        if key == "_target_":
            lines[prefix.removesuffix(".") or "part"] = part_name(str(value))
        elif key == "_partial_":  # not of interest to a reader
            continue
        elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
            lines |= flat({key: dict(enumerate(value))}, prefix)
        elif isinstance(value, dict):
            lines |= flat(value, f"{prefix}{key}.")
        else:
            lines[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return lines


def common_and_varying(pages: Iterable[Page]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Settings with one value in all runs that have them, and all values of the others."""
    values: dict[str, set[str]] = {}
    for page in pages:
        for key, value in page.flat_config.items():
            if key not in NOT_SHOWN and key.split(".")[0] not in NOT_SHOWN:
                values.setdefault(key, set()).add(value)
    common = {key: next(iter(found)) for key, found in values.items() if len(found) == 1}
    return common, {key: sorted(found, key=_natural) for key, found in values.items() if len(found) > 1}


def varying_within(subjects: dict[str, list[Series]]) -> dict[str, list[str]]:
    """Settings that vary among the runs of some subject, with their values in all of these subjects."""
    values: dict[str, set[str]] = {}
    for series in subjects.values():
        _, varies = common_and_varying(page for one in series for page in one.pages)
        for key, found in varies.items():
            values.setdefault(key, set()).update(found)
    return {key: sorted(found, key=_natural) for key, found in values.items()}


def default_question(subjects: dict[str, list[Series]]) -> str:
    """The default question of a report, from the settings that vary."""
    methods = sorted({one.compressor for series in subjects.values() for one in series})
    where = _listed(list(subjects))
    if len(methods) > 1:
        what = f"How do {_listed(methods)} compare in quality, bytes on the link and total error on {where}"
    else:
        cost = "with how many bytes on the link and how much total error"
        what = f"What quality does {methods[0]} reach on {where}, {cost}"
    keys = [key for key in varying_within(subjects) if key != "compressor"]
    return f"{what}, as {_listed(keys)} {'varies' if len(keys) == 1 else 'vary'}?" if keys else f"{what}?"


def code_versions(runs: Iterable[Run]) -> dict[str, int]:
    """Number of runs per version of the code; a modified version has a star and its untracked files."""
    return dict(sorted(Counter(map(_version, runs)).items()))


def _version(run: Run) -> str:
    files = run.environment.get("untracked_code")
    return f"{run.code}, with {', '.join(files)}, which no commit holds" if files else run.code


def machines(runs: Iterable[Run]) -> list[str]:
    """Hardware and main versions, a line for each kind."""
    lines = set()
    for run in runs:
        found = run.environment
        packages = found.get("packages", {})
        parts = [run.hardware, f"Python {found['python']}" if found.get("python") else None]
        parts += [f"torch {packages['torch']}" if packages.get("torch") else None]
        lines.add(", ".join(str(part) for part in parts if part) or "not recorded")
    return sorted(lines)


def shortened(values: list[str]) -> str:
    """At most a dozen values of a setting, and the number of the others."""
    shown = values[:MOST_VALUES]
    return ", ".join(shown) + (f", and {len(values) - len(shown)} more" if len(values) > len(shown) else "")


def _below(path: Path, outputs: list[Path]) -> str:
    for output in outputs:
        if path.is_relative_to(output):
            return path.relative_to(output).as_posix()
    return path.name


def _natural(text: str) -> list[tuple[int, float, str]]:
    """Sort key that compares numbers in a text by value."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text)
    return [(0, float(part), "") if index % 2 else (1, 0.0, part) for index, part in enumerate(parts)]


def _typed(words: list[Any]) -> str:
    return shlex.join(["python", *map(str, words)])


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
