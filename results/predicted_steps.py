"""Predicted step times of dense training, fp16, Top-k, hard threshold and PowerSGD over a network.

    python -m results breakeven [OVERRIDE ...] --model resnet50 --workers 16 --bandwidth 10gbit
    python -m results breakeven FOLDER ... --bandwidth 10gbit

With --model the command measures times on this machine, with one worker: forward pass, backward pass and
update of the training that the OVERRIDEs define (as after `python run.py`: `data=cifar10
trainer.batch_size=32`), and the compression of the model's parameters by every method. On a CPU it also
measures gloo without a network: its speed, and the time of a short collective. --compute-ms replaces the
measured time of forward pass, backward pass and update, for example by that of a GPU. With folders the
command measures nothing. It takes times and bytes of the finished runs in them, for the runs' own number of
workers, and adds dense training and fp16 with no time for compression. Runs of several workers in a process,
made before time/compression_seconds was recorded, have too little compression, and the output says so.

A step takes compute + compression + max(0, communication - overlap x compute), and communication short x
collectives + latency x rounds + 8 x bytes / bandwidth.
With H local steps between two synchronisations all but compute is divided by H, and a step of the tables is
a local step; local.delay adds to the overlap of runs. H is --local-steps or that of the runs; the row
``dense`` synchronises after every step.
With --nodes, or runs with nodes, a node takes the place of a worker, --bandwidth is that between nodes, and
8 x bytes inside / --inside is added to the communication of every method.
docs/guides/your_network.md states the measured error of these predictions.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.command import answer_of, in_a_line, parser
from results.compare.measures import num_parameters
from results.read.folders import finished_runs
from results.read.run import Run
from results.read.sessions import LastSession
from results.read.settings import differing
from trainers.files.goals import LINK_BYTES
from trainers.identity.identity import METHOD, text
from trainers.network_model.break_even import COMPRESSION, ROUNDS
from trainers.network_model.rates import bits_per_second
from trainers.network_model.step_times import Cost, Line, Network, judge, predict, table

NEEDED = (
    "time/gradient_seconds",
    "time/update_seconds",
    "time/reduce_seconds",
    "time/communication_seconds",
    LINK_BYTES,
    "layers",
)
RATIO = "comm/compression_ratio"
# Groups and settings that change the time of forward pass, backward pass and update, each with a dot
OF_COMPUTE = (
    "model.",
    "data.",
    "trainer.batch_size.",
    "trainer.micro_batch_size.",
    "trainer.precision.",
    "trainer.channels_last.",
)
OPTIONS = {  # of the command, by the settings whose overrides have no effect
    "model": "--model",
    "workers": "--workers",
    "nodes": "--nodes",
    "budget.density": "--density",
    "compressor.density": "--density",
    "compressor.rank": "--rank",
    "local.steps": "--local-steps",
}
OF_MACHINE = ("device", "threads")  # such settings that are no part of ``Run.setting``


def main(arguments: list[str] | None = None) -> int:
    own = parser("breakeven", __doc__)
    own.add_argument("words", nargs="*", metavar="FOLDER | OVERRIDE", help="finished runs, or settings")
    own.add_argument("--model", help="measure this model, as in model=")
    own.add_argument("--workers", type=int, help="each on its own machine; of runs: theirs")
    own.add_argument("--bandwidth", nargs="+", required=True, metavar="RATE", help="100mbit 10gbit unlimited")
    own.add_argument("--nodes", type=int, help="of equally many workers; compression is between nodes")
    own.add_argument(
        "--inside", metavar="RATE", help="of a worker's link inside its node (default unlimited)"
    )
    own.add_argument("--latency-us", type=float, default=50.0, help="of a message (default 50)")
    own.add_argument("--overlap", type=float, default=0.0, help="part of compute that hides messages, 0 to 1")
    own.add_argument(
        "--compute-ms", type=float, help="forward, backward and update, instead of measured times"
    )
    backend = "of collectives without a network (default: measured with --model on a CPU, else none)"
    own.add_argument("--backend", metavar="RATE", help=backend)
    own.add_argument("--density", type=float, help="of Top-k and hard threshold (default 0.001)")
    own.add_argument("--rank", type=int, help="of PowerSGD (default 2)")
    own.add_argument("--local-steps", type=int, metavar="H", help="from one exchange to the next (default 1)")
    own.add_argument("--steps", type=int, help="to measure (default 5)")
    options = own.parse_intermixed_args(arguments)  # overrides may also follow options
    # words after --bandwidth RATE
    after = [word for word in options.bandwidth if "=" in word or Path(word).is_dir()]
    options.words += after
    options.bandwidth = [word for word in options.bandwidth if word not in after]
    return in_a_line(lambda: write(options))


def write(options: argparse.Namespace) -> None:
    """Print a table and a verdict for every bandwidth. Raises ``ValueError`` and ``OSError``."""
    require_options(options)
    rates = [(word, bits_per_second(word)) for word in options.bandwidth]
    backend, inside = (math.inf, 0.0), bits_per_second(options.inside or "unlimited")
    if options.model is not None:
        print(f"measuring {options.model} on this machine: a minute, or several", file=sys.stderr, flush=True)
        workers, nodes, found = options.workers, options.nodes, measured(options)
        costs, compute = [cost_of(row) for row in found["costs"]], found["compute_seconds"]
        if (count := options.local_steps or 1) > 1:
            local = [cost._replace(name=f"{cost.name}, H = {count}", local_steps=count) for cost in costs]
            costs = [cost for cost in costs if cost.name == "dense"] + local
        backend = found["backend"] or backend
        print(
            f"{options.model}: {found['parameters']:,} parameters, {found['batch_size']} samples per worker"
        )
        origin = "given" if options.compute_ms is not None else f"measured on {found['device']}"
        print(f"compute {1e3 * found['compute_seconds']:,.1f} ms, {origin}; {found['methods']}")
    else:
        runs = finished_runs([Path(word) for word in options.words], NEEDED)
        workers, nodes, costs, compute = costs_of_runs(runs, options.compute_ms)
        for name, own in (("workers", workers), ("nodes", nodes)):
            given = getattr(options, name)
            if given not in (None, own):
                raise ValueError(f"--{name} must be that of the runs, {own or 'none'}, got {given}")
        if options.inside and nodes is None:
            raise ValueError("--inside has no effect on runs without nodes")
        if options.inside and any(local_of(run)[1] > 1 for run in runs):
            raise ValueError("--inside cannot be predicted for runs with local.fragments > 1")
        if any(ROUNDS not in run.summary for run in runs if run.compressor != "none"):
            print(f"the latency of runs without {ROUNDS} counts once per step, also if a method needs more")
        if any(run.compressor != "none" and shares_a_sum(run) for run in runs):
            print(f"the compression of runs without {COMPRESSION} has a share of the sum: it is too low")
    if options.backend is not None:
        backend = bits_per_second(options.backend), 0.0
    senders = nodes or workers
    gradient = next(cost.all_reduced_bytes for cost in costs if cost.name == "dense")
    title = f"{workers} workers" if nodes is None else f"{workers} workers in {nodes} nodes"
    for word, rate in rates:
        network = Network(rate, 1e-6 * options.latency_us, *backend, workers // senders, inside)
        predictions = [predict(cost, compute, senders, network, options.overlap, gradient) for cost in costs]
        print(f"\n## {title}, {word}\n\n{network}\n\n{table(predictions)}\n\n{judge(predictions)}")


def require_options(options: argparse.Namespace) -> None:
    """Raise ``ValueError`` for options that do not fit each other, and for numbers out of range."""
    overrides = [word for word in options.words if "=" in word]
    if options.model is None:
        overrides = [word for word in overrides if not Path(word).is_dir()]
        if len(overrides) == len(options.words):
            raise ValueError("breakeven needs --model, or folders with runs")
        if overrides:
            raise ValueError(f"{overrides[0]} has no effect on runs")
        for name in ("density", "rank", "steps", "local_steps"):
            if getattr(options, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} has no effect on runs")
    elif folders := [word for word in options.words if "=" not in word]:
        raise ValueError(f"--model takes overrides, as KEY=VALUE, got {folders[0]}")
    elif options.workers is None:
        raise ValueError("--model needs --workers")
    else:
        require_effect(options.words)
    if not options.bandwidth:
        raise ValueError("--bandwidth needs a rate, such as 10gbit")
    if options.workers is not None and options.workers < 2:
        raise ValueError(f"--workers must be at least 2, got {options.workers}")
    if options.local_steps is not None and options.local_steps < 1:
        raise ValueError(f"--local-steps must be at least 1, got {options.local_steps}")
    if options.nodes is not None and options.model is not None:
        if options.nodes < 2 or options.workers % options.nodes:
            raise ValueError(f"--nodes must be at least 2 and divide --workers, got {options.nodes}")
    elif options.inside is not None and options.model is not None:
        raise ValueError("--inside has no effect without --nodes")
    if not 0 <= options.overlap <= 1:
        raise ValueError(f"--overlap must be in [0, 1], got {options.overlap}")
    for name in ("latency_us", "compute_ms"):
        given = getattr(options, name)
        if given is not None and not 0 <= given < math.inf:
            raise ValueError(f"--{name.replace('_', '-')} must be a finite number >= 0, got {given}")


def require_effect(overrides: list[str]) -> None:
    """Raise ``ValueError`` for an override of what options give, or of a method."""
    for word in overrides:
        key = word.lstrip("+").partition("=")[0]
        if key in OPTIONS:
            raise ValueError(f"{word} has no effect with --model: give it as {OPTIONS[key]}")
        if key.partition(".")[0] in (*METHOD, "budget"):
            raise ValueError(f"{word} has no effect with --model, which measures methods with fixed settings")


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """The results of the measuring program, run in a separate process.

    Raises ``ValueError`` with the program's last message if it fails.
    """
    overrides = [f"model={options.model}", *options.words]
    overrides += ["workers=1", "compressor=none", "tracker=none"]
    settings = {name: getattr(options, name) for name in ("density", "rank", "steps")}
    asked = {
        "overrides": overrides,
        "settings": {name: value for name, value in settings.items() if value is not None},
        "compute_seconds": None if options.compute_ms is None else options.compute_ms / 1e3,
        "backend": None,
    }
    return answer_of("trainers.hooks.advice", asked)


def cost_of(row: list[Any]) -> Cost:
    name, all_reduced, gathered, seconds, rounds, *steps = row
    return Cost(name, all_reduced, gathered, Line(*seconds), Line(*rounds), *steps)


def costs_of_runs(runs: list[Run], compute_ms: float | None) -> tuple[int, int | None, list[Cost], float]:
    """Numbers of workers and nodes, costs of the runs' methods, and median seconds of compute.

    The cost of a method is the median over its seeds; a method with several settings, such as two scopes, has
    a row for each. A run's bytes hold for its own number of workers, and are all treated as gathered. Dense
    training and fp16 follow from the number of parameters; dense training with local steps is a method.

    Raises ``ValueError`` for runs of one worker or node, of several numbers of these, of several sizes or
    machines, and without ``compute_ms`` also for different computations and if all runs overlap them with
    the reduction.
    """
    counts, of_nodes = {run.workers for run in runs}, {run.config.get("nodes") for run in runs}
    sizes = {size for run in runs if (size := num_parameters(run)) is not None}
    if len(counts) > 1 or len(sizes) > 1:
        got = f"workers={sorted(counts)}" if len(counts) > 1 else f"{sorted(sizes)} parameters"
        raise ValueError(f"the runs must have one number of workers and one model, got {got}")
    if len(of_nodes) > 1:
        raise ValueError(f"the runs must have one number of nodes, got {', '.join(map(text, of_nodes))}")
    if len(machines := sorted({run.hardware for run in runs} - {""})) > 1:
        raise ValueError(f"the runs must be of one machine, got {' and '.join(machines)}")
    (workers,), (nodes,), (size,) = counts, of_nodes, sizes
    senders = nodes or workers
    if senders < 2:
        raise ValueError(f"runs with {'nodes' if nodes else 'workers'}=1 send nothing")
    costs = [cost_of_run(run, workers) for run in runs]
    in_a_step = [steps // fragments for steps, fragments in map(local_of, runs)]
    own = [seconds / count for (_, seconds), count in zip(costs, in_a_step, strict=True)]
    if compute_ms is None:
        require_one_computation(runs)
        compute = median_alone(runs, own)
    else:
        compute = compute_ms / 1e3
    found = [
        dense_cost("dense", element_bytes(runs, senders, size) * size),
        dense_cost("fp16", 2.0 * size),
    ]
    by_row: dict[str, list[tuple[float, ...]]] = {}
    compressed = [
        (run, (run.summary.get(COMPRESSION, seconds), *cost, count, delay_of(run)))
        for run, ((seconds, *cost), _), count in zip(runs, costs, in_a_step, strict=True)
        if run.compressor != "none" or local_of(run) != (1, 1)
    ]
    differ = differing([run.setting for run, _ in compressed])
    for (run, cost), settings in zip(compressed, differ, strict=True):
        by_row.setdefault(replace(run, across=tuple(settings)).method, []).append(cost)
    for name, row in by_row.items():
        seconds, gathered, rounds, *steps = (statistics.median(column) for column in zip(*row, strict=True))
        found.append(Cost(name, 0.0, gathered, Line(seconds), Line(rounds), *map(int, steps)))
    return workers, nodes, found, compute


def local_of(run: Run) -> tuple[int, int]:
    """The run's local steps H and fragments P, 1 and 1 without; a step of the run has H / P local steps."""
    local = run.config.get("local") or {}
    return local.get("steps", 1), local.get("fragments", 1)


def delay_of(run: Run) -> int:
    return (run.config.get("local") or {}).get("delay", 0)


def shares_a_sum(run: Run) -> bool:
    """Whether ``cost_of_run`` has too little compression, because several workers were in a process.

    It divides by their number also the sum of all messages, which each worker computes on its own machine.
    """
    return COMPRESSION not in run.summary and run.senders > run.environment.get("processes", 1)


def median_alone(runs: Sequence[Run], seconds: Sequence[float]) -> float:
    """Median ``seconds`` of compute of the runs that do not overlap it with the reduction.

    Raises ``ValueError`` if all do.
    """
    alone = [own for own, run in zip(seconds, runs, strict=True) if not may_overlap(run)]
    if not alone:
        raise ValueError(
            "compute is not known: all runs may overlap it with the reduction, as dense training does with "
            "one worker per process (breakeven takes it as --compute-ms)"
        )
    return statistics.median(alone)


def require_one_computation(runs: list[Run]) -> None:
    """Raise ``ValueError`` with a setting by which the times of the runs' computations differ."""
    settings = [
        tuple((key, value) for key, value in run.setting if f"{key}.".startswith(OF_COMPUTE))
        + tuple((key, run.config.get(key)) for key in OF_MACHINE)
        for run in runs
    ]
    differ = differing(settings)
    if differ[0]:
        key = next(iter(differ[0]))
        one, other, *_ = dict.fromkeys(text(own[key]) for own in differ)
        raise ValueError(
            f"the runs must have one {key}, got {one} and {other}; "
            "--compute-ms compares them at a given time of compute"
        )


def may_overlap(run: Run) -> bool:
    """Whether ``time/gradient_seconds`` may contain a part of the reduction: see ``Training.overlaps``."""
    is_lossless = run.compressor == "none" or run.summary.get("compression/total_error") == 0
    one_each = run.environment.get("processes", 1) == run.workers and local_of(run) == (1, 1)
    return is_lossless and one_each


def dense_cost(name: str, all_reduced_bytes: float) -> Cost:
    """The cost of one all-reduce of the whole gradient."""
    return Cost(name, all_reduced_bytes, 0.0, Line(0.0), Line(0.0, 2.0))


def element_bytes(runs: list[Run], workers: int, size: int) -> int:
    """Bytes of an element of the gradient, from the ledger's count of dense bytes: 4 for fp32, 8 for fp64.

    Raises ``ValueError`` if no run has sent a byte, and for gradients of several dtypes.
    """
    of_one = dense_cost("", size).traffic_bytes(workers)
    sent = [  # a step has one of the fragments
        local_of(run)[1] * LastSession(run).per_step(LINK_BYTES, RATIO)
        for run in runs
        if RATIO in run.summary
    ]
    found = sorted({round(dense / of_one) for dense in sent})
    if not found:
        raise ValueError(f"no run has {RATIO}")
    if len(found) > 1:
        raise ValueError(f"the runs must have gradients of one dtype, got {found} bytes per element")
    return found[0]


def cost_of_run(run: Run, workers: int) -> tuple[tuple[float, float, float], float]:
    """(seconds of compression, bytes as if all were gathered, rounds), seconds of compute; of a worker.

    All are of a step, and of the run's last session, whose workers and processes are known. A run without a
    record of its rounds counts one, and dense training those of a ring. For the seconds of compression, see
    ``shares_a_sum``. Raises ``ValueError`` if it recorded too few steps.
    """
    session = LastSession(run)
    local, rest = divmod(workers, run.environment.get("processes", 1))
    if rest or not local:
        raise ValueError(
            f"{run.path}: {run.environment['processes']} processes do not divide {workers} workers"
        )

    def median(part: str) -> float:
        return session.median(f"time/{part}_seconds")

    compression = (median("reduce") - median("communication")) / max(1, local * run.senders // workers)
    gathered = session.per_step(LINK_BYTES) / (run.senders - 1)
    compute = median("gradient") / local + median("update")
    usual = 2.0 * (run.senders - 1) if run.compressor == "none" else 1.0
    return (max(0.0, compression), gathered, run.summary.get(ROUNDS, usual)), compute
