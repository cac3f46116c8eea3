"""Hard threshold against Top-k: pairs of equal bytes, interpolation to equal bytes, and the figures."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from results.compare.measures import LINK_BYTES as BYTES
from results.compare.measures import Measure, qualities, require_several_workers
from results.compare.statistics import paired_difference
from results.figures.groups import file_stem, groups
from results.figures.kinds import figures_of
from results.figures.saving import Figures
from results.read.matching import by_method, by_setting
from results.read.naming import asked, lambda_in_force
from results.read.run import Run
from results.studies.kit import Seeds, by_name, first_of
from results.studies.looks import Look

NEAR = 0.1  # largest difference of a pair's bytes, as a share of Top-k's bytes
SUBOPTIMALITY = "convex/suboptimality"
DENSITY = "compression/density"
FIGURES = ("quality_bytes", "total_error_bytes", "density", "quality_density", "suboptimality")
MEASURES = {"total error": "compression/total_error", "f(x) - f*": SUBOPTIMALITY}  # of convex problems
SMALLER = ("smaller with the threshold", "larger with the threshold")


@dataclass(frozen=True)
class MatchedRuns:
    """One setting's runs by method, each by seed."""

    subject: str
    dense: Seeds  # may be empty
    top_k: dict[str, Seeds]
    thresholds: dict[str, Seeds]

    @property
    def first(self) -> Run:
        return next(iter(next(iter(self.top_k.values())).values()))

    @property
    def is_convex(self) -> bool:
        return SUBOPTIMALITY in self.first.summary

    def of_seeds(self, own: Seeds) -> list[Run]:
        """The runs of the seeds that every method has."""
        return [own[seed] for seed in self.seeds]

    @property
    def seeds(self) -> list[int]:
        """The seeds that every method has."""
        every = [*self.top_k.values(), *self.thresholds.values(), *([self.dense] if self.dense else [])]
        return sorted(set.intersection(*(set(seeds) for seeds in every)))


def problems_of(runs: Sequence[Run]) -> list[MatchedRuns]:
    """The runs of each setting.

    Raises ``ValueError`` if a setting lacks Top-k, a threshold or a common seed, and for runs of one worker.
    """
    require_several_workers(runs)
    found = []
    for group in by_setting(runs):
        kinds: dict[str, dict[str, Seeds]] = {"none": {}, "top_k": {}, "hard_threshold": {}}
        for method, of_method in by_method(group).items():
            compressor = of_method[0].compressor
            if compressor not in kinds:
                raise ValueError(f"runs must be of {', '.join(kinds)}, got {compressor}")
            kinds[compressor][method] = {run.seed: run for run in of_method}
        subject = group[0].subject
        for name in ("top_k", "hard_threshold"):
            if not kinds[name]:
                raise ValueError(f"runs of {subject} must include {name}, got none")
        dense = next(iter(kinds["none"].values()), {})
        problem = MatchedRuns(subject, dense, kinds["top_k"], kinds["hard_threshold"])
        if not problem.seeds:
            raise ValueError(f"runs of {subject} must have a seed in common, got none")
        found.append(problem)
    return sorted(found, key=lambda problem: problem.is_convex)


def pairs_of(problem: MatchedRuns) -> list[tuple[str, str]]:
    """Every Top-k with the threshold of nearest bytes, if their bytes differ by at most ``NEAR``."""
    pairs = []
    for top_k, theirs in problem.top_k.items():
        away = {
            threshold: abs(statistics.fmean(ratios(ours, theirs, BYTES, problem.seeds)) - 1)
            for threshold, ours in problem.thresholds.items()
        }
        nearest = min(away, key=lambda threshold: away[threshold])
        if away[nearest] <= NEAR:
            pairs.append((top_k, nearest))
    return pairs


def within(problem: MatchedRuns) -> list[str]:
    """The thresholds whose bytes are between those of Top-k's densities, for every seed."""
    found = []
    for method, of_seed in problem.thresholds.items():
        is_inside = []
        for seed in problem.seeds:
            sent = [seeds[seed].summary[BYTES] for seeds in problem.top_k.values()]
            is_inside.append(min(sent) <= of_seed[seed].summary[BYTES] <= max(sent))
        if all(is_inside):
            found.append(method)
    return found


def interpolated(problem: MatchedRuns, run: Run, metric: str) -> float:
    """The ``metric`` of Top-k, interpolated to the bytes of ``run``, with the same seed."""
    points = sorted(
        (math.log(seeds[run.seed].summary[BYTES]), math.log(seeds[run.seed].summary[metric]))
        for seeds in problem.top_k.values()
    )
    x, y = zip(*points, strict=True)
    return math.exp(np.interp(math.log(run.summary[BYTES]), x, y))


def ratios(ours: Seeds, theirs: Seeds, metric: str, seeds: Sequence[int]) -> list[float]:
    return [ours[seed].summary[metric] / theirs[seed].summary[metric] for seed in seeds]


def looks_of(look: Callable[..., Look | None], problem: MatchedRuns) -> Iterator[Look | None]:
    """The comparisons of one problem: by ``look`` of the engine, or of Top-k at a threshold's bytes."""
    if not problem.is_convex:
        for top_k, method in pairs_of(problem):
            theirs = problem.top_k[top_k]
            one = f"{problem.subject}: threshold"
            yield look(quality(theirs), one, density(theirs), problem.thresholds[method], theirs)
        return
    for method in within(problem):
        yield from (over_threshold(problem, method, *each) for each in MEASURES.items())


def over_threshold(problem: MatchedRuns, method: str, label: str, metric: str) -> Look:
    """The logarithm of Top-k's ``metric``, interpolated to a threshold's bytes, over the threshold's."""
    runs = problem.of_seeds(problem.thresholds[method])
    pairs = [(math.log(interpolated(problem, run, metric)), math.log(run.summary[metric])) for run in runs]
    found = paired_difference(*zip(*pairs, strict=True))
    one = f"{problem.subject}: {method}"
    return Look(one=one, other=label, difference=found, shown=found.shown_as_ratio(), ends=(one, label))


def counted(found: Sequence[Look]) -> str:
    """A statement on all comparisons of one measure; above 0, Top-k has the larger value."""
    words = Counter(each.finding.word(*SMALLER) for each in found if each.finding)
    return ", ".join(f"{word} at {count} of {len(found)}" for word, count in words.items())


def quality(own: Seeds) -> Measure:
    return qualities([first_of(own)])[0]


def density(own: Seeds) -> str:
    """The density of a Top-k, as text."""
    return f"Top-k {100 * first_of(own).config['compressor']['density']:g} %"


def threshold(own: Seeds) -> str:
    """The threshold of a method, as text."""
    run = first_of(own)
    settings, value = run.config["compressor"], lambda_in_force(run)
    if settings["threshold"] is not None or value is None:
        return asked(run).removeprefix("lambda ")
    return f"{value:.4g} (the rule for {100 * settings['density']:g} %)"


def ratios_of_the_rule(problem: MatchedRuns) -> list[float]:
    """The density sent over the one asked for, of each threshold by the paper's rule."""
    found = []
    for own in problem.thresholds.values():
        settings = first_of(own).config["compressor"]
        if settings["threshold"] is None:
            sent = statistics.fmean(run.summary[f"{DENSITY}_mean"] for run in problem.of_seeds(own))
            found.append(sent / settings["density"])
    return found


def early_and_late(problem: MatchedRuns) -> list[tuple[float, float, float]]:
    """Given thresholds, with the density in per cent in the first and in the last tenth of the records."""
    found = []
    for own in problem.thresholds.values():
        value = first_of(own).config["compressor"]["threshold"]
        curves = [run.curve(DENSITY) for run in problem.of_seeds(own)]
        if value is not None and not any(curve.empty for curve in curves):
            tenths = [(curve, max(1, len(curve) // 10)) for curve in curves]
            early = 100 * statistics.fmean(float(curve.iloc[:count].mean()) for curve, count in tenths)
            late = 100 * statistics.fmean(float(curve.iloc[-count:].mean()) for curve, count in tenths)
            found.append((value, early, late))
    return found


def names(runs: Sequence[Run], _: Sequence[Run] = ()) -> dict[str, Any]:
    """The names of the template."""
    return by_name(
        counted, density, early_and_late, looks_of, pairs_of, quality, ratios, ratios_of_the_rule
    ) | {
        **by_name(threshold, within),
        "MEASURES": MEASURES,
        "problems": problems_of(runs),
        "stem": lambda problem: file_stem(problem.subject),
        "NEAR": NEAR,
        "SMALLER": SMALLER,
    }


def figures(runs: Sequence[Run]) -> Figures:
    """The figures of ``python -m results figures`` that the page shows or names."""
    return figures_of(groups(runs), FIGURES)
