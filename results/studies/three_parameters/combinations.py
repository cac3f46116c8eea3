"""The runs of the study of three key parameters by their settings, and differences from plain SGD."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from results.compare.measures import LINK_BYTES, Measure, costs, qualities
from results.compare.statistics import Difference
from results.read.matching import by_key
from results.read.run import Run
from results.studies.kit import Seeds, paired, require_compressors

SCHEMES = {"random_k": "random k", "random_block": "random block", "top_k": "Top-k"}
PLAIN = "none"
REDUCE_SECONDS = "time/reduce_seconds"


class Combination(NamedTuple):
    """Values of all settings that the study varies, except the seed."""

    scheme: str  # compressor, as on the command line
    coordinates: str  # "shared" by all workers, or each worker's "own", as for Top-k
    scope: str
    feedback: str  # on or off
    density: float


@dataclass(frozen=True)
class Network:
    """One network's runs."""

    subject: str
    plain: Seeds
    combinations: dict[Combination, Seeds]  # in the order of a table
    quality: Measure
    total_error: Measure
    megabytes: Measure
    reduce: Measure  # milliseconds of a step

    @property
    def densities(self) -> list[float]:
        """The densities, from the highest to the lowest."""
        return sorted({combination.density for combination in self.combinations}, reverse=True)

    def difference(self, combination: Combination) -> Difference | None:
        """Quality minus plain SGD's, with its 95 % interval, over common seeds; None if there are none."""
        return paired(self.quality, self.combinations[combination], self.plain)


def networks(runs: Sequence[Run]) -> list[Network]:
    """The networks by subject, each with the runs of both scopes.

    Raises ``ValueError`` for an unknown method, for two settings of one subject, and if the quality or plain
    SGD is missing.
    """
    require_compressors(runs, sorted([*SCHEMES, PLAIN]))
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.subject].append(run)
    for subject, own in groups.items():
        if len({run.identity.across(["scope"]).setting for run in own}) > 1:
            raise ValueError(f"runs of {subject} must differ in method, scope and seed alone")
    return [_network(groups[subject]) for subject in sorted(groups)]


def _network(runs: list[Run]) -> Network:
    subject = runs[0].subject
    measures = qualities(runs)
    if not measures:
        raise ValueError(f"runs of {subject} must have a quality, got none")
    plain = by_key((run for run in runs if run.compressor == PLAIN), lambda _: PLAIN).get(PLAIN, {})
    combinations = by_key((run for run in runs if run.compressor != PLAIN), combination_of)
    if not plain:
        raise ValueError(f"runs of {subject} must include compressor={PLAIN}, got none")
    if not combinations:
        raise ValueError(f"runs of {subject} must include one of {', '.join(SCHEMES)}, got none")
    cost = {measure.name: measure for measure in costs(runs)}
    return Network(
        subject,
        plain,
        {combination: combinations[combination] for combination in sorted(combinations, key=_order)},
        _comparable(measures[0]),
        cost["compression/total_error"],
        cost[LINK_BYTES],
        Measure(REDUCE_SECONDS, "compression and communication, ms a step", _median_reduce, 1e3),
    )


def combination_of(run: Run) -> Combination:
    """The combination of a run, from its config."""
    compressor, config = run.config["compressor"], run.config
    is_off = config["feedback"]["_target_"].endswith("no_feedback")
    return Combination(
        run.compressor,
        "shared" if compressor.get("shared_coordinates") else "own",
        config["scope"],
        "off" if is_off else "on",
        float(compressor["density"]),
    )


def _order(combination: Combination) -> tuple[bool, int, bool, bool, float]:
    """Sort key: with feedback first; then scheme; shared, own; layer, global; densities descending."""
    schemes = list(SCHEMES)
    is_own, is_global = combination.coordinates == "own", combination.scope == "global"
    return (
        combination.feedback == "off",
        schemes.index(combination.scheme),
        is_own,
        is_global,
        -combination.density,
    )


def _comparable(quality: Measure) -> Measure:
    """The quality or, for a perplexity, its loss: one diverged run would dominate a mean of perplexities."""
    if not quality.name.endswith("/perplexity"):
        return quality
    name = quality.name.removesuffix("perplexity") + "loss"
    label = f"{name.replace('/', ' ')}, nats per token"
    return Measure(name, label, lambda run: run.summary.get(name), digits=3)


def _median_reduce(run: Run) -> float | None:
    """The median over recorded steps, in seconds, which the slow first steps do not change."""
    seconds = [value for value in run.curve(REDUCE_SECONDS) if math.isfinite(value)]
    return statistics.median(seconds) if seconds else None
