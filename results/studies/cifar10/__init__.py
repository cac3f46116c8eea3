"""The CIFAR-10 study beyond the engine: sections, cells and figures of its page."""

from collections.abc import Sequence
from typing import Any

from results.read.run import Run
from results.studies.cifar10.cells import ACCURACY, COSTS, LOSS, NOT_RUN, accuracy, cost, minus
from results.studies.cifar10.comparison import NEAR, in_words, table_of
from results.studies.cifar10.failures import failures
from results.studies.cifar10.figures import FIGURES, figures
from results.studies.cifar10.places import (
    ACCORDION,
    NONE,
    PARTITIONS,
    SECTIONS,
    THREE,
    WORKERS,
    by_section,
    labels_of,
    missing,
)

__all__ = ["figures", "names"]


def names(runs: Sequence[Run], tried: Sequence[Run]) -> dict[str, Any]:
    """The names of the template; ``tried`` are runs with the learning rates tried."""
    found = by_section(runs)
    constants: dict[str, Any] = {
        "NONE": NONE,
        "ACCORDION": ACCORDION,
        "THREE": THREE,
        "SHARDS": {"main": "iid", **PARTITIONS},
    }
    constants |= {"ACCURACY": ACCURACY, "LOSS": LOSS, "COSTS": COSTS, "NEAR": NEAR, "NOT_RUN": NOT_RUN}
    return constants | {
        "FIGURES": FIGURES,
        "WORKERS": WORKERS,
        "found": found,
        "tried": sorted(tried, key=lambda run: run.config["optimizer"]["lr"]),
        "num_missing": sum(len(missing(section, methods)) for section, methods in found.items()),
        "num_rows": sum(map(len, SECTIONS.values())),
        "has_workers": any(found[f"workers {number}"] for number in WORKERS),
        "failed": failures({run.path.parents[1] for run in runs}),
        **{each.__name__: each for each in (accuracy, cost, in_words, labels_of, minus, table_of)},
    }
