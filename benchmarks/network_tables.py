"""Tables and figure of the network benchmark."""

import math
import os
import platform
import statistics
from importlib import metadata
from pathlib import Path
from typing import Any

from network_measured import (
    DENSE_BYTES,
    SETTLING,
    SLOW_BELOW,
    SLOW_STEPS,
    Crossing,
    Measured,
    Method,
    Rate,
    Turns,
)

from results import header
from trainers.network_model.break_even import ANY_BANDWIDTH


def head(options: Any, command: str) -> list[str]:
    """Command, machine, date and versions."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "numpy", "numba"))
    facts = [line.split(":")[1].strip() for line in _processor() if line.startswith("model name")]
    machine = f"{facts[0] if facts else platform.processor()}, {os.cpu_count()} cores, {platform.system()}"
    return [
        "# Steps over throttled links\n",
        *header.of_this_tree(command, f"{machine}, Python {platform.python_version()}, {versions}").lines(),
        "",
        _of_runs(options) if options.runs else _of_resnet18(options),
    ]


def _of_runs(options: Any) -> str:
    return (
        "Settings of finished runs, one process, worker and thread per host; gloo. "
        f"Medians over {options.rounds} turn(s)."
    )


def _of_resnet18(options: Any) -> str:
    return (
        "ResNet-18, 11,172,810 fp32 parameters; digits, 8x8; one process, worker and thread per host; gloo. "
        f"{options.batch_size} images per host and step; density {options.density:g}, for hard_threshold by "
        f"lambda = {options.threshold:g}{''.join(f'; {word}' for word in options.set)}. Medians over "
        f"{options.rounds} round(s) of {options.steps} steps, {SETTLING} of each not counted; of dense "
        f"methods below {SLOW_BELOW / 1e6:.0f} Mbit/s {min(SLOW_STEPS, options.steps)} steps."
    )


def _processor() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def describe(measured: Measured, rates: list[Rate]) -> list[str]:
    """The steps of every method, and its bytes at the middle rate."""
    lines = []
    methods = list(dict.fromkeys(method for method, _ in measured.steps))
    for at in rates:
        lines += [
            f"\n## {measured.hosts} hosts, {at.text}\n",
            "| method | step, ms | compute | compression | waiting | update | samples/s | DDP over this |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for method in methods:
            parts = measured.parts(method, at)
            cells = [f"{1e3 * part:,.1f}" for part in parts]
            cells.append(f"{measured.hosts * measured.batch_size / parts.step:,.0f}")
            reference = Method("ddp")
            known = (reference, at) in measured.steps
            cells.append(f"{measured.parts(reference, at).step / parts.step:.2f}" if known else "")
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    at = rates[len(rates) // 2]
    per_call = ", ".join(f"{name} {number:,.0f}" for name, number in measured.per_call.items())
    lines += [
        f"\n### Bytes per host and step, {measured.hosts} hosts, {at.text}\n",
        f"Headers: {per_call} bytes per call, {measured.share[at]:.2%} of a dense all-reduce of "
        f"{DENSE_BYTES:,} bytes; control: {measured.control_bytes:,.0f} bytes per step of ours.\n",
        "| method | ledger | leaves a host | interface | difference, headers taken into account |",
        "|---|---:|---:|---:|---:|",
    ]
    for method in methods:
        *numbers, left = measured.bytes_of(method, at)
        cells = ["" if math.isnan(number) else f"{number:,.0f}" for number in numbers]
        cells.append("" if math.isnan(left) else f"{left:+.2f} %")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def describe_turns(turns: Turns) -> list[str]:
    """Steps of alternating methods: medians, and ratios within a round."""
    lines = [
        f"\n## In turns of a few steps, {turns.hosts} hosts\n",
        "Median of a step in ms; over DDP's in the same round; with overlap, over the same method without.\n",
        "| method | " + " | ".join(f"{at.text} | over DDP | over without" for at in turns.rates) + " |",
        "|---|" + "---:|" * 3 * len(turns.rates),
    ]
    for position, method in enumerate(turns.methods):
        cells = []
        for rate, of_rate in enumerate(turns.seconds):
            cells.append(f"{1e3 * statistics.median(of_rate[position]):,.1f}")
            plain = method._replace(overlap=False)
            for known, other in ((True, Method("ddp")), (method.overlap, plain)):
                found = known and other in turns.methods
                ratio = turns.against(rate, position, turns.methods.index(other)) if found else None
                cells.append("" if ratio is None else f"{ratio:.2f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def describe_accuracy(
    reached: dict[Method, list[tuple[int, float]]],
    target: float,
    measured: Measured | None,
    rates: list[Rate],
) -> list[str]:
    """Number of steps to the target, and its product with the step's time at each rate."""
    if not reached:
        return []
    lines = [
        f"\n## Time to {target:.0%} test accuracy, {measured.hosts if measured else 'first'} hosts\n",
        "| method | steps | accuracy | " + " | ".join(f"{at.text}, s" for at in rates) + " |",
        "|---|---:|---:|" + "---:|" * len(rates),
    ]
    for method, course in reached.items():
        steps, accuracy = course[-1]
        seconds = [""] * len(rates)
        if accuracy >= target and measured is not None:
            seconds = [f"{steps * measured.parts(method, at).step:,.1f}" for at in rates]
        count = f"{steps}" if accuracy >= target else f"not in {steps}"
        lines.append(f"| {method} | {count} | {accuracy:.1%} | " + " | ".join(seconds) + " |")
    return lines


def describe_crossings(crossings: list[Crossing]) -> list[str]:
    if not crossings:
        return []
    rates = [at.text for at, _, _ in crossings[0].points]
    lines = [
        "\n## Break-even: below which rate a method is faster than `none`\n",
        "| method | predicted, Gbit/s | measured, Gbit/s | off | dense over compressed step at "
        + " | ".join(rates)
        + " |",
        "|---|---:|---:|---:|" + "---:|" * len(rates),
    ]
    for found in crossings:
        ratios = [f"{dense / ours:.2f}" for _, dense, ours in found.points]
        predicted = "any" if found.predicted >= ANY_BANDWIDTH else f"{found.predicted / 1e9:.2f}"
        finite = 0 < found.measured < math.inf
        measured = f"{found.measured / 1e9:.2f}" if finite else "any" if found.measured else "none"
        off = (
            f"{100 * (found.predicted / found.measured - 1):+.0f} %" if finite and predicted != "any" else ""
        )
        lines.append(f"| {found.method} | {predicted} | {measured} | {off} | " + " | ".join(ratios) + " |")
    return lines


def draw(results: list[Measured], rates: list[Rate], path: Path) -> None:
    """Draw a step's seconds over the rate, with a panel per number of hosts."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(results), figsize=(5.5 * len(results), 4.5), squeeze=False, sharey=True
    )
    for axis, measured in zip(axes[0], results, strict=True):
        for number, method in enumerate(dict.fromkeys(method for method, _ in measured.steps)):
            seconds = [measured.parts(method, at).step for at in rates]
            line = "--" if method.overlap else "-"
            axis.plot(
                [at.bits_per_second for at in rates],
                seconds,
                line,
                marker="os^vD<>ph*X"[number % 11],
                label=str(method),
            )
        axis.set(
            xscale="log", yscale="log", xlabel="bits per second of a link", title=f"{measured.hosts} hosts"
        )
    axes[0][0].set_ylabel("seconds per step")
    axes[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
