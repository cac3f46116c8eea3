"""Equal budgets: the threshold that sends as many bytes as Top-k at a density, or the reverse.

    python -m results budget OVERRIDE ... --density 0.01 [--to conf/budget/NAME.yaml]
    python -m results budget OVERRIDE ... --threshold 1e-3 [--to conf/budget/NAME.yaml]

OVERRIDEs define the training, as after `python run.py`: `experiment=small/lstm seed=1`. Compared are the
bytes that leave a worker over the whole training, if each worker has its own machine; with --match handed,
the bytes that a worker hands to collectives. A pilot, which tries one setting, is therefore a whole training;
the override `trainer.steps=N` makes it shorter and the match less exact. Each pilot has a normal run folder,
so a finished pilot is not run again. The command prints the budget, the bytes of both methods and their
difference. With --to it writes the budget as a choice of the group `budget`. Then `python run.py -m
budget=NAME compressor=top_k,hard_threshold seed=0,1,2` compares at equal bytes.
"""

import math
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trainers.records.files as run_files
from results.command import parser, write_over
from results.compare.measures import HANDED_BYTES, LINK_BYTES
from results.escaping import one_line

ROOT = Path(__file__).parents[2]
BYTES = {"link": LINK_BYTES, "handed": HANDED_BYTES}
SETTING = {"top_k": "budget.density", "hard_threshold": "budget.threshold"}
REPLACED = ("compressor", *SETTING.values())  # overrides that a pilot sets itself


@dataclass(frozen=True)
class Pilot:
    """One finished training with one setting of the compressor."""

    value: float  # density or threshold
    sent: float  # bytes per worker, of a kind in ``BYTES``
    density: float  # average over the training
    folder: str


@dataclass(frozen=True)
class Match:
    """Two trainings that sent about equally many bytes."""

    given: Pilot
    found: Pilot
    pilots: int
    by: str = "link"  # a key of ``BYTES``

    @property
    def mismatch(self) -> float:
        """Relative difference of the found training's bytes from the given one's."""
        return self.found.sent / self.given.sent - 1


class PilotError(Exception):
    """A pilot failed, or no setting meets the budget."""


def search(
    pilot: Callable[[float], Pilot], wanted: float, start: float, *, slope: float, tolerance: float, runs: int
) -> tuple[Pilot, int]:
    """The trial that sends ``wanted`` bytes within ``tolerance``, or comes closest, and the number of trials.

    The bytes are modelled as a power law of the setting, first with exponent ``slope``, then through the
    last two trials. When the wanted bytes lie between two trials, all further trials are in that interval.
    There are at most ``runs`` trials.
    """
    trials: list[Pilot] = []
    value = start
    while len(trials) < runs:
        trials.append(pilot(value))
        best = min(trials, key=lambda trial: abs(math.log(trial.sent / wanted)))
        if abs(best.sent / wanted - 1) <= tolerance:
            break
        value = float(f"{_next_value(trials, wanted, slope):.4g}")  # run_pilot rounds alike
        if any(trial.value == value for trial in trials):
            break
    return best, len(trials)


def _next_value(trials: Sequence[Pilot], wanted: float, slope: float) -> float:
    last = trials[-1]
    if len(trials) > 1:
        before = trials[-2]
        measured = math.log(last.sent / before.sent) / math.log(last.value / before.value)
        if measured * slope > 0:  # bytes are random: a training may send more at a higher threshold
            slope = measured
    step = math.log(wanted / last.sent) / slope
    value = last.value * math.exp(max(-3.0, min(3.0, step)))
    more = [trial for trial in reversed(trials) if trial.sent > wanted]  # of equal trials, the latest
    less = [trial for trial in reversed(trials) if trial.sent < wanted]
    if more and less:
        nearest = min(more, key=lambda trial: trial.sent), max(less, key=lambda trial: trial.sent)
        low, high = sorted(trial.value for trial in nearest)
        if not low < value < high:
            value = math.sqrt(low * high)
    return value


def run_pilot(compressor: str, value: float, overrides: Sequence[str], match: str = "link") -> Pilot:
    """One training by run.py in its own process. Raises ``PilotError`` if it is refused or fails."""
    value = float(f"{value:.4g}")
    command = [
        sys.executable,
        "run.py",
        *overrides,
        f"compressor={compressor}",
        f"{SETTING[compressor]}={value}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.findall(r"^(?:run folder: (.+)|(.+?) is finished already.*; its numbers:)$", done.stdout, re.M)
    if done.returncode or not found:
        printed = (done.stderr or done.stdout).strip().splitlines()
        reason = printed[-1] if printed else f"no output, exit status {done.returncode}"
        raise PilotError(f"{' '.join(command[1:])}: {reason}")
    folder = ROOT / next(name for name in found[-1] if name)
    summary = _summary(folder, BYTES[match])
    return Pilot(value, summary[BYTES[match]], summary["compression/density_mean"], str(folder))


def _summary(folder: Path, sent: str = HANDED_BYTES) -> dict[str, Any]:
    """A pilot's summary. Raises ``PilotError`` if it cannot be read, lacks a number or has 0."""
    try:
        summary = run_files.read_summary(folder)
    except ValueError as error:
        raise PilotError(one_line(error)) from error
    for name in (sent, "compression/density_mean", "layers"):
        if name not in summary:
            raise PilotError(f"{folder / run_files.SUMMARY} has no {name}")
        if not summary[name]:
            hint = ": nothing leaves a single worker, use --match handed" if name == LINK_BYTES else ""
            raise PilotError(f"{folder / run_files.SUMMARY}: {name} is {summary[name]}{hint}")
    return summary


def match(
    overrides: Sequence[str],
    given: str,
    value: float,
    *,
    tolerance: float,
    runs: int,
    by: str = "link",
    start: float | None = None,
) -> Match:
    """The setting of the other method that sends as many bytes as ``given`` at ``value``.

    ``start`` is the first setting tried. By default it is the average density of ``given``, or the threshold
    of the paper's rule for it. Raises ``PilotError`` if a pilot is refused or fails.
    """
    other = "hard_threshold" if given == "top_k" else "top_k"
    first = run_pilot(given, value, overrides, by)
    if other == "top_k":
        usual, slope = first.density, 1.0
    else:  # by the paper's rule, a threshold's bytes are proportional to value^-2
        usual, slope = _rule(first, overrides), -2.0

    def pilot(trial: float) -> Pilot:
        found = run_pilot(other, trial, overrides, by)
        kind = "density" if other == "top_k" else "threshold"
        print(
            f"{kind} {found.value:g}: {found.sent:,.0f} bytes, {found.sent / first.sent - 1:+.1%}", flush=True
        )
        return found

    begin = usual if start is None else start
    found, count = search(pilot, first.sent, begin, slope=slope, tolerance=tolerance, runs=runs)
    return Match(first, found, count, by)


def _rule(pilot: Pilot, overrides: Sequence[str]) -> float:
    """The threshold 1 / (2 sqrt(k)), where k is the number of elements that ``pilot`` sent per step."""
    layers = _summary(Path(pilot.folder))["layers"]
    return 1 / (2 * math.sqrt(pilot.density * sum(layer["elements"] for layer in layers.values())))


def as_yaml(top_k: Pilot, threshold: Pilot, found: Match, command: str) -> str:
    """A choice of the group ``budget``."""
    return (
        f"# {command}\n"
        f"# Bytes per worker, {found.by}: top_k {top_k.sent:,.0f}; hard_threshold {threshold.sent:,.0f},\n"
        f"# density {threshold.density:.4%} on average; {found.mismatch:+.2%} after {found.pilots} pilots.\n"
        f"density: {top_k.value:g}\n"
        f"threshold: {threshold.value:g}\n"
        "schedule: constant\n"
    )


def main(arguments: list[str] | None = None) -> int:
    own = parser("budget", __doc__)
    own.add_argument("overrides", nargs="*", help="what is trained: overrides of run.py")
    given = own.add_mutually_exclusive_group(required=True)
    given.add_argument("--density", type=float, help="match Top-k at this density by a threshold")
    given.add_argument("--threshold", type=float, help="match this threshold by a Top-k")
    own.add_argument("--tolerance", type=float, default=0.02, help="share of the bytes (default 0.02)")
    own.add_argument(
        "--match", choices=BYTES, default="link", help="bytes that leave a worker (default), or handed over"
    )
    own.add_argument("--runs", type=int, default=8, help="most pilots beside the one matched")
    own.add_argument("--start", type=float, help="first setting tried; a good guess saves pilots")
    own.add_argument("--to", type=Path, help="write the budget here")
    options = own.parse_args(arguments)
    is_density = options.density is not None
    method, value = ("top_k", options.density) if is_density else ("hard_threshold", options.threshold)
    try:
        if not (math.isfinite(value) and value > 0):
            raise PilotError(f"--{'density' if is_density else 'threshold'} must be > 0, got {value}")
        if options.runs < 1:
            raise PilotError(f"--runs must be at least 1, got {options.runs}")
        if not (math.isfinite(options.tolerance) and options.tolerance > 0):
            raise PilotError(f"--tolerance must be > 0, got {options.tolerance}")
        if options.start is not None and not (math.isfinite(options.start) and options.start > 0):
            raise PilotError(f"--start must be > 0, got {options.start}")
        if options.to is not None and not (options.to.suffix == ".yaml" and options.to.parent.is_dir()):
            raise PilotError(f"--to must be a .yaml in a folder that is there, got {options.to}")
        methods = " and ".join(SETTING)
        for word in options.overrides:
            if word.lstrip("+").partition("=")[0] in REPLACED:
                raise PilotError(f"{word} has no effect: pilots train {methods} with their own settings")
        overrides = [*options.overrides, "tracker=none"]
        found = match(
            overrides,
            method,
            value,
            tolerance=options.tolerance,
            runs=options.runs,
            by=options.match,
            start=options.start,
        )
    except PilotError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    pair = (found.given, found.found)
    top_k, threshold = pair if method == "top_k" else pair[::-1]
    for name, pilot in (("top_k", top_k), ("hard_threshold", threshold)):
        how = "that leave a worker" if found.by == "link" else "that a worker hands over"
        sent = f"{pilot.sent:,.0f} bytes {how}"
        print(f"{name} {pilot.value:g}: {sent}, average density {pilot.density:.4%}")
    print(f"the one found sends {found.mismatch:+.2%} bytes, after {found.pilots} pilots")
    if options.to is not None:
        words = " ".join(
            [
                "python -m results budget",
                *options.overrides,
                *(["--match handed"] if found.by == "handed" else []),
                f"--{'density' if method == 'top_k' else 'threshold'} {value:g}",
            ]
        )
        try:
            write_over(options.to, as_yaml(top_k, threshold, found, words))
        except OSError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(options.to)
    if abs(found.mismatch) > options.tolerance:
        print(f"error: no setting came within {options.tolerance:.1%}", file=sys.stderr)
        return 1
    return 0
