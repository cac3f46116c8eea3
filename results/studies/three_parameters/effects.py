"""Effects of the three key parameters: means over pairs of combinations that differ in one parameter."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from results.compare.measures import Measure
from results.compare.statistics import Difference, paired_difference
from results.studies.three_parameters.combinations import Combination, Network


class Change(NamedTuple):
    """A change of one parameter from one value to another."""

    label: str
    parameter: str  # a field of Combination
    value: str
    instead_of: str
    feedback: str  # of the compared combinations; empty for a change of feedback


class Effect(NamedTuple):
    """The effect of a change on the quality at one density, and the number of pairs of combinations."""

    difference: Difference
    pairs: int


_BETWEEN = (
    ("random block instead of random k", "scheme", "random_block", "random_k"),
    ("Top-k instead of random k, own coordinates", "scheme", "top_k", "random_k"),
    ("own coordinates instead of shared", "coordinates", "own", "shared"),
    ("the whole model instead of layers", "scope", "global", "layer"),
)
CHANGES = (
    Change("no feedback instead of feedback", "feedback", "off", "on", ""),
    *(Change(*words, feedback) for feedback in ("on", "off") for words in _BETWEEN),
)


def pairs(
    network: Network, change: Change, density: float | None = None
) -> list[tuple[Combination, Combination]]:
    """Pairs of combinations with and without the change, otherwise equal; at one density or at all."""
    found = []
    for combination in network.combinations:
        other = combination._replace(**{change.parameter: change.instead_of})
        if getattr(combination, change.parameter) != change.value or other not in network.combinations:
            continue
        if change.feedback in ("", combination.feedback) and density in (None, combination.density):
            found.append((combination, other))
    return found


def effect(network: Network, change: Change, density: float) -> Effect | None:
    """Quality with the change minus quality without it, with Student's 95 % interval over seeds.

    Each seed that all combinations have counts once, by its mean over the pairs. None without common seeds.
    """
    chosen = pairs(network, change, density)
    values = _by_seed(network, chosen, network.quality)
    if not values:
        return None
    with_it = [statistics.fmean(a for a, _ in of_seed) for of_seed in values]
    without = [statistics.fmean(b for _, b in of_seed) for of_seed in values]
    return Effect(paired_difference(with_it, without), len(chosen))


def ratio(network: Network, change: Change, measure: Measure) -> float | None:
    """Ratio of a measure with the change to that without it: geometric mean over pairs and seeds.

    None without pairs, or if a value is not positive and finite.
    """
    values = _by_seed(network, pairs(network, change), measure)
    both = [pair for of_seed in values for pair in of_seed]
    if not both or not all(math.isfinite(x) and x > 0 for pair in both for x in pair):
        return None
    return math.exp(statistics.fmean(math.log(a / b) for a, b in both))


def _by_seed(
    network: Network, chosen: Sequence[tuple[Combination, Combination]], measure: Measure
) -> list[list[tuple[float, float]]]:
    """The values of every pair, for each seed that all combinations have."""
    if not chosen:
        return []
    combinations = {combination for pair in chosen for combination in pair}
    seeds = sorted(
        set.intersection(*(set(network.combinations[combination]) for combination in combinations))
    )

    def value(combination: Combination, seed: int) -> float | None:
        return measure.value(network.combinations[combination][seed])

    found = [
        [(value(combination, seed), value(other, seed)) for combination, other in chosen] for seed in seeds
    ]
    return [of_seed for of_seed in found if None not in {x for pair in of_seed for x in pair}]
