"""Pairs of Top-k and hard thresholds at equal bytes, and interpolation to equal bytes."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from results.compare.measures import LINK_BYTES as BYTES
from results.compare.measures import require_several_workers
from results.read.matching import by_method, by_setting
from results.read.run import Run
from results.studies.kit import Seeds

NEAR = 0.1  # largest difference of a pair's bytes, as a share of Top-k's bytes
SUBOPTIMALITY = "convex/suboptimality"


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
    return sorted(found, key=lambda problem: SUBOPTIMALITY in problem.first.summary)


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
