"""Effects of the three key parameters: pairs of cells that differ in one of them, averaged."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from results.measures import Measure
from results.parameter_cells import Cell, Network
from results.statistics import Difference, paired_difference


class Change(NamedTuple):
    """One value of a parameter instead of another."""

    label: str
    parameter: str  # a field of Cell
    value: str
    instead_of: str
    feedback: str  # of the cells compared; empty where the change is one of feedback


class Effect(NamedTuple):
    """What a change does to the quality at one density, and how many pairs of cells say so."""

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


def pairs(network: Network, change: Change, density: float | None = None) -> list[tuple[Cell, Cell]]:
    """Cells with the change and those without it, all else equal; at one density or at all."""
    found = []
    for cell in network.cells:
        other = cell._replace(**{change.parameter: change.instead_of})
        if getattr(cell, change.parameter) != change.value or other not in network.cells:
            continue
        if change.feedback in ("", cell.feedback) and density in (None, cell.density):
            found.append((cell, other))
    return found


def effect(network: Network, change: Change, density: float) -> Effect | None:
    """Quality with the change minus quality without it, with Student's 95 % interval over seeds.

    A seed counts once, by its mean over the pairs of cells, and only if every cell of the pairs has it; None
    without any.
    """
    chosen = pairs(network, change, density)
    values = _by_seed(network, chosen, network.quality)
    if not values:
        return None
    with_it = [statistics.fmean(a for a, _ in of_seed) for of_seed in values]
    without = [statistics.fmean(b for _, b in of_seed) for of_seed in values]
    return Effect(paired_difference(with_it, without), len(chosen))


def ratio(network: Network, change: Change, measure: Measure) -> float | None:
    """How many times a measure is what it was without the change: geometric mean over pairs and seeds.

    None where there is no pair, or a value that is not positive and finite.
    """
    values = _by_seed(network, pairs(network, change), measure)
    both = [pair for of_seed in values for pair in of_seed]
    if not both or not all(math.isfinite(x) and x > 0 for pair in both for x in pair):
        return None
    return math.exp(statistics.fmean(math.log(a / b) for a, b in both))


def _by_seed(
    network: Network, chosen: Sequence[tuple[Cell, Cell]], measure: Measure
) -> list[list[tuple[float, float]]]:
    """Per seed that all cells have, the values of every pair."""
    if not chosen:
        return []
    cells = {cell for pair in chosen for cell in pair}
    seeds = sorted(set.intersection(*(set(network.cells[cell]) for cell in cells)))

    def value(cell: Cell, seed: int) -> float | None:
        return measure.value(network.cells[cell][seed])

    found = [[(value(cell, seed), value(other, seed)) for cell, other in chosen] for seed in seeds]
    return [of_seed for of_seed in found if None not in {x for pair in of_seed for x in pair}]
