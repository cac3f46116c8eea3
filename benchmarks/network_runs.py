"""Steps of finished runs over throttled links, beside the steps predicted from the runs' times and bytes.

The prediction is that of ``python -m results breakeven FOLDER`` and of the league's page, here for as many
workers as there are hosts.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

import netns
from network_advice import LATENCY_SECONDS
from network_measured import Method, Rate, Turns

from results.predicted_steps import cost_of_run, dense_cost, element_bytes, may_overlap
from results.read.folders import read_runs
from results.read.run import Run
from trainers.network_model.step_times import Cost, Line, Network, predict

OWN = ("workers", "processes", "output", "tracker", "diagnostics", "seed", "resume")  # set by the benchmark


def finished(folders: Sequence[Path]) -> list[Run]:
    """The runs below ``folders``.

    Raises ``netns.Refused`` if there are none, for a single worker, and for a run that may overlap
    computation and reduction, because its times do not tell the two apart.
    """
    try:
        runs = read_runs(folders)
    except ValueError as error:
        raise netns.Refused(str(error)) from error
    alone = [str(run.path) for run in runs if run.config["workers"] < 2]
    if alone or not runs:
        raise netns.Refused(f"--runs needs runs of several workers, got {', '.join(alone) or 'none'}")
    overlapped = [str(run.path) for run in runs if may_overlap(run)]
    if overlapped:
        raise netns.Refused(
            "--runs needs runs that compute and reduce one after the other (without trainer.overlap; dense "
            f"training with fewer processes than workers), got {', '.join(overlapped)}"
        )
    return runs


def method_of(run: Run) -> Method:
    """The run's own settings, to be trained again on the hosts."""
    words = [word for word in run.environment["overrides"] if _key(word) not in OWN]
    return Method(str(run.config["name"]), settings=tuple(words))


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def describe(runs: Sequence[Run], taken: Turns) -> list[str]:
    """A table of predicted and measured steps, and the range of the errors."""
    lines = [
        f"\n## Steps of finished runs, {taken.hosts} hosts\n",
        "| run | "
        + " | ".join(f"{at.text}: predicted, ms | measured, ms | off" for at in taken.rates)
        + " |",
        "|---|" + "---:|" * 3 * len(taken.rates),
    ]
    errors = []
    for number, run in enumerate(runs):
        cells = []
        for at, seconds in zip(taken.rates, taken.seconds, strict=True):
            step, expected = statistics.median(seconds[number]), predicted(run, taken.hosts, at)
            errors.append(expected / step - 1)
            cells += [f"{1e3 * expected:,.1f}", f"{1e3 * step:,.1f}", f"{100 * errors[-1]:+.0f} %"]
        lines.append(f"| {taken.methods[number].name} | " + " | ".join(cells) + " |")
    return [*lines, f"\nErrors: {100 * min(errors):+.0f} to {100 * max(errors):+.0f} %."]


def predicted(run: Run, hosts: int, at: Rate) -> float:
    """Seconds of a step with one worker on each host."""
    workers = run.config["workers"]
    (seconds, gathered, rounds), compute = cost_of_run(run, workers)
    if run.compressor == "none":
        size = sum(layer["elements"] for layer in run.summary["layers"].values())
        cost = dense_cost("dense", element_bytes([run], workers, size) * size)
    else:
        cost = Cost(run.method, 0.0, gathered, Line(seconds), Line(rounds))
    return predict(cost, compute, hosts, Network(at.bits_per_second, LATENCY_SECONDS)).step
