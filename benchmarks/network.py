"""Steps of data-parallel training over throttled links, beside the predicted steps and break-even.

    sudo .venv/bin/python benchmarks/network.py [--hosts 2 4] [--rates 100mbit 1gbit 10gbit] [--rounds 6]
        [--methods METHOD[,KEY=VALUE ...] ...] [--set KEY=VALUE ...] [--runs FOLDER ...] [--to FILE.md]

Every host is a network namespace on this machine with one process, one worker and one thread on one core,
which hosts share if they are more than the cores; links are throttled by tc-tbf. It needs Linux, root and
iproute2, and removes its namespaces. Methods are torch's DistributedDataParallel (DDP) with its hooks, and
this project's; they train ResNet-18 on 8x8 digits. With --runs the trainings are those of finished runs, with
their own settings. All take a few steps in turn, in reverse order in every second round, so that other work
on the machine affects them equally. The page has medians over rounds of the steps and their parts, the ratio
to the first method within a round, the step that `results breakeven` predicts, and for methods beside
``none`` the rate below which they are faster than it: predicted from their own steps as in a run's summary,
and interpolated between the measured ratios.
"""

import argparse
import itertools
import math
import os
import re
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.fleet import Fleet, core_of, fleet
from benchmarks.netns import bits_per_second, require_namespaces
from benchmarks.pages import Refused, columns, head, row, write
from results.command import answer_of
from results.predicted_steps import cost_of, cost_of_run, dense_cost, element_bytes, may_overlap
from results.read.folders import read_runs
from results.read.run import Run
from trainers.config.composition import compose
from trainers.hooks.advice.gloo import Speed, gloo_speed
from trainers.network_model.break_even import ANY_BANDWIDTH
from trainers.network_model.step_times import Cost, Line, Network, predict

SLOW_BELOW = 5e8  # bits per second below which a turn has one step
LATENCY_SECONDS = 5e-5  # the default of `results breakeven`
DDP = ("ddp", "ddp_fp16", "ddp_powersgd")  # torch's methods
PREDICTED = {  # method: the cost that predicts its step
    "ddp": "dense",
    "ddp_fp16": "fp16",
    "powersgd": "powersgd",
    "top_k": "top_k",
    "hard_threshold": "hard_threshold",
}
METHODS = [*DDP, "none", "top_k", "hard_threshold", "powersgd", "random_block"]
OWN = ("workers", "processes", "output", "tracker", "diagnostics", "seed", "resume")  # set by the benchmark
PARTS = ("gradient", "compression", "communication", "update")


class Job(NamedTuple):
    """A training on the hosts, and the costs that predict its step, if they are known."""

    name: str
    method: str  # of ``DDP``, or a compressor
    overrides: list[str]
    cost: Cost | None = None
    compute_seconds: float = 0.0
    backend: Speed = Speed(math.inf, 0.0)  # of the collectives over a link without limit

    def predicted_seconds(self, hosts: int, rate: float) -> float | None:
        if self.cost is None:
            return None
        network = Network(rate, LATENCY_SECONDS, *self.backend)
        return predict(self.cost, self.compute_seconds, hosts, network).step


class Measured(NamedTuple):
    """Times of all jobs with one number of hosts."""

    hosts: int
    turns: list[list[list[dict[str, float]]]]  # [rate][job][round], seconds of a step and its parts
    break_even: list[float | None]  # predicted by each job's own steps, in bits per second

    def median(self, rate: int, job: int, part: str = "step") -> float:
        return statistics.median(times[part] for times in self.turns[rate][job])

    def ratio(self, rate: int, job: int, other: int) -> float:
        """Median over rounds of the job's step divided by the other one's."""
        pairs = zip(self.turns[rate][job], self.turns[rate][other], strict=True)
        return statistics.median(own["step"] / theirs["step"] for own, theirs in pairs)


def jobs_of_methods(options: argparse.Namespace) -> list[Job]:
    """The methods of --methods on ResNet-18. Raises ``ConfigError`` for settings that do not exist."""
    found = []
    training = ["model=resnet18", "data=digits", "schedule=constant", "optimizer.lr=0.02"]
    training.append(f"trainer.batch_size={options.batch_size}")
    for name in options.methods:
        method, *settings = re.split(r",(?=[\w.+~@/]+=)", name)
        words = [f"compressor={'none' if method in DDP else method}"]
        if method in ("top_k", "random_block"):
            words.append(f"budget.density={options.density}")
        elif method == "hard_threshold":
            words.append(f"budget.threshold={options.threshold}")
        found.append(Job(name, method, [*training, *words, *options.set, *settings]))
        compose(found[-1].overrides)
    return found


def with_costs(jobs: list[Job], options: argparse.Namespace, hosts: int) -> list[Job]:
    """The jobs with costs measured on this machine, of methods without settings of their own.

    The hosts share this machine's memory, and its cores if these are fewer. So as many processes measure at
    once, each on the core of a host, and as many measure gloo.

    Raises ``Refused`` if costs cannot be measured.
    """
    if not any(job.name in PREDICTED for job in jobs):
        return jobs
    backend = gloo_speed(hosts)
    overrides = ["model=resnet18", f"trainer.batch_size={options.batch_size}", "workers=1", "threads=1"]
    overrides += ["compressor=none", "tracker=none"]
    asked = {
        "overrides": overrides,
        # The hosts begin a second or so apart: so many steps that they measure beside each other.
        "settings": {"density": options.density, "steps": 40},
        "compute_seconds": None,
        "backend": backend,
    }

    def measured_on(host: int) -> dict[str, Any]:
        os.sched_setaffinity(0, {core_of(host)})  # of this thread and the processes that it starts
        return answer_of("trainers.hooks.advice", asked)

    try:
        with ThreadPoolExecutor(hosts) as pool:
            answers = list(pool.map(measured_on, range(hosts)))
    except ValueError as error:
        raise Refused(str(error)) from error
    costs = {}
    for found in zip(*(map(cost_of, answer["costs"]) for answer in answers), strict=True):
        seconds = map(statistics.mean, zip(*(cost.seconds for cost in found), strict=True))
        costs[found[0].name] = found[0]._replace(seconds=Line(*seconds))
    compute = statistics.mean(answer["compute_seconds"] for answer in answers)
    return [
        job._replace(cost=costs.get(PREDICTED.get(job.name)), compute_seconds=compute, backend=backend)
        for job in jobs
    ]


def jobs_of_runs(options: argparse.Namespace) -> list[Job]:
    """The trainings of finished runs, with their own settings.

    Raises ``Refused`` if there are none, for a single worker, and for a run that may overlap computation and
    reduction, because its times do not tell the two apart.
    """
    try:
        runs = read_runs(options.runs)
    except ValueError as error:
        raise Refused(str(error)) from error
    alone = [str(run.path) for run in runs if run.config["workers"] < 2]
    if alone or not runs:
        raise Refused(f"--runs needs runs of several workers, got {', '.join(alone) or 'none'}")
    overlapped = [str(run.path) for run in runs if may_overlap(run)]
    if overlapped:
        raise Refused(
            "--runs needs runs that compute and reduce one after the other (dense "
            f"training with fewer processes than workers), got {', '.join(overlapped)}"
        )
    return [job_of_run(run, options.set) for run in runs]


def job_of_run(run: Run, settings: Sequence[str]) -> Job:
    words = [word for word in run.environment["overrides"] if word.lstrip("+~").partition("=")[0] not in OWN]
    workers = run.config["workers"]
    (seconds, gathered, rounds), compute = cost_of_run(run, workers)
    cost = Cost(run.method, 0.0, gathered, Line(seconds), Line(rounds))
    if run.compressor == "none":
        size = sum(layer["elements"] for layer in run.summary["layers"].values())
        cost = dense_cost("dense", element_bytes([run], workers, size) * size)
    return Job(str(run.config["name"]), run.compressor, [*words, *settings], cost, compute)


def measure(hosts: Fleet, jobs: list[Job], options: argparse.Namespace) -> Measured:
    """A few steps of each job in turn, at each rate."""
    speeds = list(map(bits_per_second, options.rates))
    steps = [1, *(1 if speed < SLOW_BELOW else options.steps for speed in speeds)]  # the first turn warms up
    trainings = [{"method": job.method, "overrides": job.overrides} for job in jobs]
    hosts.send(trainings=trainings, rounds=options.rounds, steps=steps)
    for text, speed in [*zip(options.rates, speeds, strict=True), ("done", math.inf)]:
        hosts.receive()
        hosts.hosts.throttle(speed)
        hosts.send()
        print(f"{hosts.hosts.count} hosts: {text}", file=sys.stderr, flush=True)
    answer = hosts.receive()[0]
    return Measured(hosts.hosts.count, answer["turns"], answer["break_even"])


def steps_page(measured: Measured, jobs: list[Job], rates: list[str]) -> list[str]:
    """A table for each rate."""
    lines = []
    for rate, text in enumerate(rates):
        parts = [f"{part}, ms" for part in PARTS]
        beside = f"/ {jobs[0].name}", "predicted, ms", "off"
        lines += [
            f"\n## {measured.hosts} hosts, {text}\n",
            columns("method", "step, ms", *parts, *beside),
        ]
        for number, job in enumerate(jobs):
            step = measured.median(rate, number)
            known = measured.turns[rate][number][0]  # torch's reduction is a part of the backward pass
            cells = [_ms(measured.median(rate, number, part)) if part in known else "" for part in PARTS]
            expected = job.predicted_seconds(measured.hosts, bits_per_second(text))
            off = ("", "") if expected is None else (_ms(expected), f"{100 * (expected / step - 1):+.0f} %")
            cells += [f"{measured.ratio(rate, number, 0):.2f}", *off]
            lines.append(row(job.name, _ms(step), *cells))
    return lines


def break_even_page(measured: Measured, jobs: list[Job], rates: list[str]) -> list[str]:
    """Predicted and measured break-even of the methods that are compared with ``none``, if it is one."""
    dense = next((number for number, job in enumerate(jobs) if job.method == "none"), None)
    if dense is None:
        return []
    lines = [
        f"\n## Break-even, {measured.hosts} hosts: below which rate a method is faster than `none`\n",
        columns(
            "method", "predicted, Gbit/s", "measured", "off", *(f"none / method, {text}" for text in rates)
        ),
    ]
    for number, (job, predicted) in enumerate(zip(jobs, measured.break_even, strict=True)):
        if predicted is None:
            continue
        ratios = [measured.ratio(rate, dense, number) for rate in range(len(rates))]
        found = crossing(list(zip(map(bits_per_second, rates), ratios, strict=True)))
        known = 0 < found < math.inf and predicted < ANY_BANDWIDTH
        off = f"{100 * (predicted / found - 1):+.0f} %" if known else ""
        cells = _gbit(predicted), _gbit(found), off, *(f"{ratio:.2f}" for ratio in ratios)
        lines.append(row(job.name, *cells))
    return lines


def crossing(points: list[tuple[float, float]]) -> float:
    """Bits per second at which dense and compressed steps take the same time: 0 for never, infinity for any.

    ``points`` are rates with the ratio of a dense to a compressed step. Between two rates the logarithm of
    the ratio is interpolated linearly in the logarithm of the rate.
    """
    advantages = [(rate, math.log(ratio)) for rate, ratio in sorted(points)]
    if advantages[0][1] <= 0:
        return 0.0
    for (below, gain), (above, loss) in itertools.pairwise(advantages):
        if loss <= 0:
            if math.isinf(above):
                return below  # at least
            return below * (above / below) ** (gain / (gain - loss))
    return math.inf


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f}"


def _gbit(bits: float) -> str:
    return "none" if bits == 0 else "any" if bits >= ANY_BANDWIDTH else f"{bits / 1e9:.2f}"


def about(options: argparse.Namespace) -> str:
    """What is measured, in words."""
    of_resnet18 = (
        f"ResNet-18, digits of 8x8; {options.batch_size} images per host and step; density "
        f"{options.density:g}, for hard_threshold by lambda = {options.threshold:g}."
    )
    return (
        "One process, worker and thread per host, on one core; gloo. The gradient of ddp contains its "
        "communication. "
        f"Medians over {options.rounds} round(s) of {options.steps} step(s), one below 500 Mbit/s. "
        f"{'Settings of finished runs.' if options.runs else of_resnet18}"
    )


def require_measurable(options: argparse.Namespace) -> None:
    """Raise ``Refused`` for options with nothing to measure."""
    least = {"hosts": (min(options.hosts), 2), "rounds": (options.rounds, 1), "steps": (options.steps, 1)}
    for name, (given, needed) in {**least, "batch-size": (options.batch_size, 1)}.items():
        if given < needed:
            raise Refused(f"--{name} must be at least {needed}, got {given}")
    for text in options.rates:
        bits_per_second(text)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rates", nargs="+", default=["100mbit", "1gbit", "10gbit"])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=4, help="of a turn; one below 500 Mbit/s")
    parser.add_argument("--batch-size", type=int, default=4, help="per host")
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--threshold", type=float, default=0.07, help="of hard_threshold")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="such as top_k,kernels=reference")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings for all methods")
    parser.add_argument("--runs", nargs="+", type=Path, metavar="FOLDER", help="finished runs, for --methods")
    parser.add_argument("--to", type=Path, help="a page to write")
    options = parser.parse_args(words)

    def page() -> list[str]:
        require_measurable(options)
        jobs = jobs_of_runs(options) if options.runs else jobs_of_methods(options)
        require_namespaces("benchmarks/network.py")
        lines = [about(options)]
        for count in options.hosts:
            jobs = jobs if options.runs else with_costs(jobs, options, count)
            with fleet(count, "network_host.py") as hosts:
                measured = measure(hosts, jobs, options)
            lines += steps_page(measured, jobs, options.rates)
            lines += break_even_page(measured, jobs, options.rates)
        return lines

    return write(
        head("Steps over throttled links", "sudo .venv/bin/python benchmarks/network.py", words),
        page,
        options.to,
    )


if __name__ == "__main__":
    sys.exit(main())
