"""Steps of data-parallel training over throttled links: torch's DDP hooks and this project's methods.

    sudo python benchmarks/network.py [--hosts 2 4] [--rates 100mbit 1gbit 10gbit] [--rounds 1] [--to FILE.md]

Every host is a network namespace on this machine with one process, one worker and one thread; links are
throttled by tc-tbf. It needs Linux, root and iproute2, and removes its namespaces. The model is ResNet-18 on
8x8 digits. Methods run alternately, in reverse order in every second round; one training goes through all
rates. Times are medians of the steps of all rounds. It prints, and with --to writes with a figure: the parts
of a step, the time to a test accuracy, the bytes compared with the interface's counters, the difference
between predicted and measured break-even bandwidth, and the steps that `results breakeven` predicts. With
--runs FOLDER ... it measures steps with the settings of finished runs instead, beside those predicted from
the runs.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import netns
import network_advice
import network_measured as measuring
import network_runs
import network_tables as tables
from fleet import QUIET_SECONDS, Fleet, fleet
from network_measured import UNLIMITED, Measured, Method, Rate, Window

from results.read.run import Run

TURN_STEPS = 4  # steps of a method in its turn
WARM_UP = 3  # steps over links without a limit
PROJECT_METHODS = ("none", "top_k", "hard_threshold", "random_block")
DDP_METHODS = ("ddp", "ddp_fp16", "ddp_powersgd")
# Methods with slow compression, whose break-even rate is within the range of tc-tbf.
CROSSING = (
    Method("hard_threshold", settings=("kernels=reference",)),
    Method("top_k", settings=("kernels=reference",)),
    Method("top_k", settings=("budget.density=0.3",)),
    Method("hard_threshold"),
    Method("top_k"),
)
CROSSING_RATES = ("500mbit", "1gbit", "2gbit", "4gbit", "8gbit", "unlimited")
PARTS = ("steps", "turns", "accuracy", "crossing", "advice")
EVALUATE_EVERY = 10  # steps between evaluations up to the target


def work(hosts: Fleet, job: dict[str, Any], rates: list[Rate]) -> tuple[list[dict[str, Any]], list[Window]]:
    """Run a job; returns the answer of each host and the traffic in each rate's window."""
    hosts.send(**job)
    readings, calls = [], []
    for rate in [*rates, UNLIMITED]:  # no limit after the last window
        answers = hosts.receive()
        time.sleep(QUIET_SECONDS)
        readings.append([hosts.hosts.counters(host).sent_bytes for host in range(hosts.hosts.count)])
        calls.append(answers[0]["calls"])
        hosts.hosts.throttle(rate.bits_per_second)
        hosts.send()
    done = [answer["done"] for answer in hosts.receive()]
    sent = [sum(now) - sum(before) for before, now in itertools.pairwise(readings)]
    windows = [Window(s / hosts.hosts.count, c) for s, c in zip(sent, calls[1:], strict=True)]
    return done, windows


def train(hosts: Fleet, job: dict[str, Any]) -> dict[str, Any]:
    """Run a training without windows; returns the first host's answer."""
    hosts.send(**job, windows=[])
    return hosts.receive()[0]["done"]


def methods(names: list[str] | None) -> list[Method]:
    found = [Method(name) for name in DDP_METHODS]
    found += [Method(name, overlap=overlap) for name in PROJECT_METHODS for overlap in (False, True)]
    return [method for method in found if not names or method.name in names]


def job_of(method: Method, options: argparse.Namespace) -> dict[str, Any]:
    compressor = "none" if method.name.startswith("ddp") else method.name
    overrides = [
        "model=resnet18",
        "data=digits",
        "schedule=constant",
        f"optimizer.lr={options.lr}",
        f"compressor={compressor}",
        f"trainer.batch_size={options.batch_size}",
        f"trainer.overlap={str(method.overlap).lower()}",
        *([f"budget.density={options.density}"] if compressor in ("top_k", "random_block") else []),
        *([f"budget.threshold={options.threshold}"] if compressor == "hard_threshold" else []),
        *options.set,
        *method.settings,
    ]
    return {"method": method.name, "overrides": overrides}


def measure_steps(hosts: Fleet, options: argparse.Namespace, rates: list[Rate]) -> Measured:
    """The main table: all methods at all rates, alternately; and the traffic besides payloads."""
    measured = Measured(hosts.hosts.count, options.batch_size)
    order = methods(options.methods)
    for turn in range(options.rounds):
        for method in order if turn % 2 == 0 else order[::-1]:
            windows = [WARM_UP, *(measuring.steps_at(method, rate, options.steps) for rate in rates)]
            answers, found = work(hosts, {**job_of(method, options), "windows": windows}, rates)
            measured.add(method, rates, answers[0], found)
            print(f"{hosts.hosts.count} hosts, round {turn + 1}: {method}", file=sys.stderr, flush=True)
    still = [UNLIMITED] * len(measuring.CALIBRATIONS)
    job = {"method": "calibrate", "windows": [0] * len(rates)}
    _, found = work(hosts, job, [*still, *rates])
    measured.calibrate(rates, found)
    return measured


def measure_turns(hosts: Fleet, options: argparse.Namespace, rates: list[Rate]) -> measuring.Turns:
    """Steps of all methods in turn."""
    order = methods(options.methods)
    order += [Method("none", settings=("trainer.reduction=all_reduce",))] if Method("none") in order else []
    return in_turn(hosts, options, rates, order, [job_of(method, options) for method in order])


def measure_runs(
    hosts: Fleet, options: argparse.Namespace, rates: list[Rate], runs: Sequence[Run]
) -> measuring.Turns:
    """Steps of finished runs in turn, each with its own settings."""
    order = [network_runs.method_of(run) for run in runs]
    jobs = [{"method": method.name, "overrides": [*method.settings, *options.set]} for method in order]
    return in_turn(hosts, options, rates, order, jobs)


def in_turn(
    hosts: Fleet,
    options: argparse.Namespace,
    rates: list[Rate],
    order: list[Method],
    jobs: list[dict[str, Any]],
) -> measuring.Turns:
    """A few steps of each job in turn, so that other work on the machine affects them equally."""
    steps = [1, *(1 if at.bits_per_second < measuring.SLOW_BELOW else TURN_STEPS for at in rates)]
    job = {"method": "turns", "jobs": jobs, "rounds": options.rounds, "steps": steps}
    answers, _ = work(hosts, job, rates)
    print(f"{hosts.hosts.count} hosts: turns", file=sys.stderr, flush=True)
    return measuring.Turns(hosts.hosts.count, order, rates, answers[0]["turns"])


def measure_crossings(hosts: Fleet, options: argparse.Namespace) -> list[measuring.Crossing]:
    """Dense and compressed steps at rates around the one at which they take the same time."""
    rates = [measuring.rate(text) for text in CROSSING_RATES]
    measured = Measured(hosts.hosts.count, options.batch_size)
    predictions: dict[Method, list[float]] = {}
    order = [Method("none"), *CROSSING]
    for turn in range(options.rounds):
        for method in order if turn % 2 == 0 else order[::-1]:
            windows = [WARM_UP, *[options.steps] * len(rates)]
            answers, found = work(hosts, {**job_of(method, options), "windows": windows}, rates)
            measured.add(method, rates, answers[0], found)
            predictions.setdefault(method, []).append(answers[0]["break_even"])
            print(f"crossing, round {turn + 1}: {method}", file=sys.stderr, flush=True)
    return [measuring.crossing_of(measured, method, predictions[method]) for method in CROSSING]


def measure_accuracy(hosts: Fleet, options: argparse.Namespace) -> dict[Method, list[tuple[int, float]]]:
    """Test accuracies up to the target; they do not depend on the rate."""
    found = {}
    length = {"steps": options.most_steps, "evaluate_every": EVALUATE_EVERY, "target": options.target}
    for method in methods(options.methods):
        if not method.overlap:  # it gives the same results
            found[method] = train(hosts, {**job_of(method, options), **length})["reached"]
            print(f"to {options.target:.0%}: {method}, {found[method][-1]}", file=sys.stderr, flush=True)
    return found


def require_measurable(options: argparse.Namespace) -> None:
    """Raise ``netns.Refused`` for options with nothing to measure, or without a folder to write to."""
    least = {
        "hosts": (min(options.hosts), 2),
        "rounds": (options.rounds, 1),
        "steps": (options.steps, measuring.SETTLING + 1),
        "batch-size": (options.batch_size, 1),
        "most-steps": (options.most_steps, EVALUATE_EVERY),
    }
    for name, (given, needed) in least.items():
        if given < needed:
            raise netns.Refused(f"--{name} must be at least {needed}, got {given}")
    netns.require_folder(options.to)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rates", nargs="+", default=["100mbit", "1gbit", "10gbit"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30, help="of a window; fewer where a step is long")
    parser.add_argument("--batch-size", type=int, default=4, help="per host")
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--threshold", type=float, default=0.07, help="of hard_threshold")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--target", type=float, default=0.9, help="test accuracy")
    parser.add_argument("--most-steps", type=int, default=400, help="on the way to it")
    parser.add_argument("--methods", nargs="+", choices=(*DDP_METHODS, *PROJECT_METHODS))
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings for all methods")
    parser.add_argument("--parts", nargs="+", choices=PARTS)
    parser.add_argument(
        "--runs",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="finished runs, whose steps are measured beside those predicted from them; nothing else is",
    )
    parser.add_argument("--to", type=Path, help="a page to write, and a figure beside it")
    options = parser.parse_args(words)
    parts = options.parts or (() if options.runs else PARTS)
    try:
        require_measurable(options)
        netns.require_namespaces("benchmarks/network.py")
        rates = [measuring.rate(text) for text in options.rates]
        runs = network_runs.finished(options.runs) if options.runs else []
        page, results = [], []
        costs = network_advice.measure(options) if "advice" in parts and "steps" in parts else None
        for count in options.hosts:
            with fleet(count, "network_host.py") as hosts:
                first = count == options.hosts[0]
                measured = measure_steps(hosts, options, rates) if "steps" in parts else None
                taken = measure_turns(hosts, options, rates) if "turns" in parts else None
                reached = measure_accuracy(hosts, options) if "accuracy" in parts and first else {}
                crossings = measure_crossings(hosts, options) if "crossing" in parts and first else []
                of_runs = measure_runs(hosts, options, rates, runs) if runs else None
            if measured is not None:
                results.append(measured)
                page += tables.describe(measured, rates)
                page += network_advice.describe(costs, measured, rates) if costs is not None else []
            page += tables.describe_turns(taken) if taken is not None else []
            page += tables.describe_accuracy(reached, options.target, measured, rates)
            page += tables.describe_crossings(crossings)
            page += network_runs.describe(runs, of_runs) if of_runs is not None else []
    except netns.Refused as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    command = " ".join(["sudo python benchmarks/network.py", *(sys.argv[1:] if words is None else words)])
    text = "\n".join([*tables.head(options, command), *page]) + "\n"
    print(text)
    if options.to is not None:
        options.to.write_text(text, encoding="utf-8")
        if results:
            tables.draw(results, rates, options.to.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
