"""Choice of the methods' learning rates from the runs of a grid of rates."""

import math
from collections.abc import Sequence
from pathlib import Path

import yaml

from results.command import write_over
from results.read.run import Run
from results.studies.kit import ROOT
from results.studies.methods.tasks import TASKS, method_of, rate_of, task_of

RATES = Path("sweeps/methods/chosen/rates.yaml")  # below ROOT

Rates = dict[str, dict[str, float]]  # by task and method


def chosen(tried: Sequence[Run]) -> Rates:
    """For each task and method the rate of the run with the best quality; the lowest if several are equal.

    A method without a run with a finite quality has no rate. Raises ``ValueError`` for several seeds.
    """
    seeds = {run.seed for run in tried}
    if len(seeds) > 1:
        raise ValueError(
            f"rates must be chosen by runs of one seed, got {', '.join(map(str, sorted(seeds)))}"
        )
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for run in tried:
        task = task_of(run)
        value = run.summary.get(TASKS[task].tuned_by)
        if value is None or not math.isfinite(value):
            continue
        mark = (-value if TASKS[task].higher_is_better else value, rate_of(run))
        own = best.setdefault(task, {})
        own[method_of(run)] = min(own.get(method_of(run), mark), mark)
    return {
        task: {name: rate for name, (_, rate) in sorted(own.items())} for task, own in sorted(best.items())
    }


def tune(tried: Sequence[Run]) -> bool:
    """Write the best rates of ``tried``, and keep those of other methods; return whether any changed.

    The file is committed, so that the runs that read it are of committed code.
    """
    path = ROOT / RATES
    before = path.read_text(encoding="utf-8")
    head = "".join(line for line in before.splitlines(keepends=True) if line.startswith("#"))
    rates = yaml.safe_load(before)["budget"]["rates"]
    for task, own in chosen(tried).items():
        rates[task] = dict(sorted((rates.get(task, {}) | own).items()))
    after = head + yaml.safe_dump({"budget": {"rates": rates}})
    write_over(path, after)
    return after != before


def ends_of(tried: Sequence[Run]) -> dict[tuple[str, str], tuple[float, float]]:
    """The lowest and the highest rate tried, by task and method."""
    rates: dict[tuple[str, str], list[float]] = {}
    for run in tried:
        rates.setdefault((task_of(run), method_of(run)), []).append(rate_of(run))
    return {key: (min(own), max(own)) for key, own in rates.items()}
