"""The CIFAR-10 study beyond the engine: sections, cells and figures of its page."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from results.compare.measures import Measure
from results.compare.statistics import counted, mean_and_interval
from results.read.folders import run_folders
from results.read.naming import lambda_in_force
from results.read.run import Run
from results.studies.cifar10.density import in_epoch
from results.studies.cifar10.figures import figures
from results.studies.cifar10.sections import (
    NONE,
    SECTIONS,
    THREE,
    WORKERS,
    by_section,
    label_of,
    label_of_tried,
    labels_of,
    missing,
    section_of,
)
from results.studies.cifar10.top_k_beside import (
    NEAR,
    looks_of,
    ratio_of_bytes,
    top_k_beside,
    with_equal_scopes,
)
from results.studies.kit import Seeds, by_name
from trainers.files import files as run_files

__all__ = ["figures", "names"]
DENSITIES = (
    Measure("density", "density in the first epoch, %", lambda run: in_epoch(run, 1), 100),
    Measure("density", "in the last, %", lambda run: in_epoch(run, -1), 100),
)


def names(runs: Sequence[Run], tried: Sequence[Run]) -> dict[str, Any]:
    """The names of the template; ``tried`` are runs with the learning rates tried."""
    found = by_section(runs)
    functions = by_name(
        with_interval, label_of_tried, labels_of, looks_of, ratio_of_bytes, top_k_beside, with_equal_scopes
    )
    return functions | {
        **{"NONE": NONE, "THREE": THREE, "WORKERS": WORKERS, "NEAR": NEAR, "DENSITIES": DENSITIES},
        "found": found,
        "tried": sorted(tried, key=_by_method_and_rate),
        "has_workers": any(found[f"workers {number}"] for number in WORKERS),
        "num_missing": sum(len(missing(section, methods)) for section, methods in found.items()),
        "num_rows": sum(map(len, SECTIONS.values())),
        "failed": sorted(failures({run.path.parents[1] for run in runs})),
    }


def _by_method_and_rate(run: Run) -> tuple[bool, str, float, float]:
    """Order of the runs that tried rates: ``none`` first, then by method, rate and lambda."""
    return (
        run.compressor != NONE,
        label_of_tried(run),
        run.config["optimizer"]["lr"],
        lambda_in_force(run) or 0,
    )


def with_interval(measure: Measure, own: Seeds) -> str:
    """The mean with its interval, "84.20 [83.61, 84.79]", or with the number of seeds if they are too few."""
    values = [measure.factor * value for value in measure.values(list(own.values()))]
    if not values:
        return "-"
    mean, half = mean_and_interval(values)
    digits = measure.digits
    if half is None:
        return f"{mean:.{digits}f}{counted(len(values))}"
    return f"{mean:.{digits}f} [{mean - half:.{digits}f}, {mean + half:.{digits}f}]"


def failures(folders: Iterable[Path]) -> list[tuple[str, str, str, str]]:
    """Section, method, seed and reason of the runs that ended with an error."""
    rows = []
    for path in (path for folder in sorted(folders) for path in run_folders(folder)):
        try:
            summary, config = run_files.read_summary(path), run_files.read_config(path)
        except run_files.UnreadableFileError:  # running or interrupted
            continue
        if summary["status"] != "finished":
            run = Run(path, config, summary, pd.DataFrame())
            rows.append((section_of(run), label_of(run), str(run.seed), summary.get("error", "no reason")))
    return rows
