"""Groups of runs for one figure, and its notes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.compare.statistics import FEWEST_SEEDS
from results.figures.style import Styled, line_styles
from results.header import ranges
from results.read.matching import by_method, by_setting
from results.read.naming import common_words, legends, order, short_names, unused
from results.read.run import Run
from results.read.settings import differing, is_told
from trainers.identity.identity import text

MOST_WORDS = 4  # settings in a title, of those in which groups differ
LONGEST_STEM = 120


@dataclass(frozen=True)
class Group:
    """The runs of one subject and setting, by method."""

    stem: str  # beginning of file names, unique
    subject: str
    facts: str  # workers, steps, and the settings in which it differs from the subject's other groups
    methods: dict[str, list[Run]]  # by name, in the order of a legend, seeds ascending
    styles: dict[str, dict[str, Any]]

    @property
    def runs(self) -> list[Run]:
        return [run for runs in self.methods.values() for run in runs]


def groups(runs: Iterable[Run]) -> list[Group]:
    """A group per subject and setting, in the order of their file names."""
    subjects: dict[str, list[list[Run]]] = defaultdict(list)
    for setting in by_setting(runs):
        subjects[" and ".join(sorted({run.subject for run in setting}))].append(setting)
    made: dict[str, Group] = {}
    for subject, settings in sorted(subjects.items()):
        methods = [named(by_method(setting)) for setting in settings]
        words = what_differs([setting[0] for setting in settings])
        ordered = sorted(zip(words, settings, methods, strict=True), key=lambda each: each[0])
        for differs, setting, of_method in ordered:
            stem = unused(file_stem("-".join([subject, *differs[:MOST_WORDS]])), made)
            made[stem] = Group(
                stem,
                subject,
                ", ".join([*_size(setting), *_shown(differs), *common_words(of_method)]),
                of_method,
                styles_of(of_method),
            )
    return list(made.values())


def styles_of(methods: Mapping[str, Sequence[Run]]) -> dict[str, dict[str, Any]]:
    """Matplotlib's arguments per name."""
    lines = (
        Styled(name, runs[0].compressor, runs[0].identity.method.family, order(runs[0]))
        for name, runs in methods.items()
    )
    return line_styles(lines, marked=True)


def named(methods: Mapping[str, list[Run]]) -> dict[str, list[Run]]:
    """Methods by their names in one figure."""
    called = short_names(methods)
    return {called[label]: runs for label, runs in methods.items()}


def what_differs(runs: list[Run]) -> list[list[str]]:
    """Per run, the settings in which the runs differ, with its values: "scope layer"."""
    own = differing([run.setting for run in runs])
    lasts = Counter(key.rsplit(".", 1)[-1] for key in own[0])
    names = {key: last if lasts[last := key.rsplit(".", 1)[-1]] == 1 else key for key in own[0]}
    return [
        [f"{names[key]} {text(value)}" for key, value in each.items() if is_told(key, value)] for each in own
    ]


def seeds_of(methods: Mapping[str, Sequence[Run]]) -> str:
    """A note on the seeds of the means, and on dots and bars; fewer than three seeds have no interval."""
    seeds, has_others = _most_seeds(methods)
    others = " (others: see the legend)" if has_others else ""
    if len(seeds) == 1:
        return f"one seed only ({seeds[0]}){others}"
    bars = ", bars: 95 % interval of the mean" if len(seeds) >= FEWEST_SEEDS else ""
    return f"mean over seeds {ranges(seeds)}; dots: single seeds{bars}{others}"


def legend_labels(methods: Mapping[str, Sequence[Run]]) -> dict[str, str]:
    """Labels of methods in a legend, with their seeds if these differ from those of most methods."""
    others = other_seeds(methods)
    return {method: name + others[method] for method, name in legends(methods).items()}


def other_seeds(methods: Mapping[str, Sequence[Run]]) -> dict[str, str]:
    """The end of a method's label: its seeds if these differ from those of most methods."""
    same, _ = _most_seeds(methods)
    said = {}
    for method, runs in methods.items():
        seeds = tuple(run.seed for run in runs)
        listed = f" ({'one seed' if len(seeds) == 1 else 'seeds'}: {', '.join(map(str, seeds))})"
        said[method] = listed if seeds != same else ""
    return said


def code_note(runs: Iterable[Run]) -> str | None:
    """A note on the versions of the code that made the runs; None for one version."""
    codes = Counter(run.code for run in runs)
    if len(codes) < 2:
        return None
    listed = ", ".join(f"{code} ({count} run{'s' * (count > 1)})" for code, count in sorted(codes.items()))
    changed = "; * with uncommitted changes" if any("*" in code for code in codes) else ""
    return f"Runs of {len(codes)} versions of the code: {listed}{changed}."


def file_stem(name: str) -> str:
    """The name as the beginning of a file name that is valid on any system."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[:LONGEST_STEM] or "_"


def _most_seeds(methods: Mapping[str, Sequence[Run]]) -> tuple[tuple[int, ...], bool]:
    """The most common seeds of methods (in a tie, the more seeds), and whether some methods have others."""
    found = Counter(tuple(run.seed for run in runs) for runs in methods.values())
    same = max(found, key=lambda seeds: (found[seeds], len(seeds), seeds))
    return same, len(found) > 1


def _size(runs: list[Run]) -> list[str]:
    """Numbers of workers and steps of the runs, or their ranges."""
    facts = []
    if workers := sorted({run.config["workers"] for run in runs if "workers" in run.config}):
        number = f"{workers[0]}" if len(workers) == 1 else f"{workers[0]} to {workers[-1]}"
        nodes = sorted({run.config["nodes"] for run in runs if run.config.get("nodes")})
        inside = f" in {' or '.join(map(str, nodes))} nodes" if nodes else ""
        facts.append(f"{number} worker{'s' * (workers[-1] != 1)}{inside}")
    if steps := sorted({run.summary["step"] for run in runs if "step" in run.summary}):
        length = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
        facts.append(f"{length} steps")
    return facts


def _shown(differs: list[str]) -> list[str]:
    shown = [word for word in differs if not word.startswith("workers ")]
    more = len(shown) - MOST_WORDS
    return shown if more <= 0 else [*shown[:MOST_WORDS], f"and {more} more setting{'s' * (more > 1)}"]
