"""Equal budgets: the setting at which one method sends as many bytes as another one.

    python -m results budget OVERRIDE ... --density 0.01 [--to conf/budget/NAME.yaml]
    python -m results budget OVERRIDE ... --threshold 1e-3 [--to conf/budget/NAME.yaml]
    python -m results budget OVERRIDE ... --given powersgd=2 --method my_method [--knob compressor.factor]

OVERRIDEs define the training, as after `python run.py`: `experiment=small/lstm seed=1`. The given method has
its knob at a value: --density is short for --given top_k=D, --threshold for --given hard_threshold=L. The
other method is --method, by default hard_threshold beside Top-k and top_k beside any other. A method's class
declares its knob; --knob names another setting of the one that is searched for. Compared are the bytes that
leave a worker over the whole training, if each worker has its own machine; with --match handed, the bytes
that a worker hands to collectives. A pilot, which tries one setting, is therefore a whole training; the
override `trainer.steps=N` makes it shorter and the match less exact. Each pilot has a normal run folder, so a
finished pilot is not run again. The command prints the settings, the bytes of both methods and their
difference. With --to it writes a density and a threshold as a choice of the group `budget`. Then `python
run.py -m budget=NAME compressor=top_k,hard_threshold seed=0,1,2` compares at equal bytes. An experiment that
sets one of both itself overrides the choice; a warning then says what else to type.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trainers.files.files as run_files
from results.command import ROOT, in_a_line, parser, write_over
from results.compare.knobs import Knob, Pilot, declared_knobs, without_knob
from results.compare.measures import HANDED_BYTES, LINK_BYTES
from results.escaping import one_line
from trainers.launch.commands import Commands

BYTES = {"link": LINK_BYTES, "handed": HANDED_BYTES}
RATIO = "comm/compression_ratio"
BUDGETS = ("budget.density", "budget.threshold")  # the settings of a choice of the group ``budget``


@dataclass(frozen=True)
class Method:
    """A compressor of run.py, and its knob."""

    name: str
    knob: Knob

    def overrides(self, value: float | None) -> list[str]:
        """With ``value`` None the settings are those of its config."""
        return [f"compressor={self.name}", *([] if value is None else self.knob.overrides(value).split())]


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


class PilotError(ValueError):
    """A pilot failed, or no setting meets the budget."""


def run_pilot(method: Method, value: float | None, overrides: Sequence[str], by: str = "link") -> Pilot:
    """One training by run.py in its own process. Raises ``PilotError`` if it is refused or fails."""
    command = [sys.executable, "run.py", *overrides, *method.overrides(value)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Commands() as commands:  # Ctrl-C and SIGTERM stop the pilot too
        done = commands.run(command, dict(os.environ), cwd=ROOT, **pipes)
    found = re.findall(r"^(?:run folder: (.+)|(.+?) is finished already.*; its numbers:)$", done.stdout, re.M)
    if done.returncode or not found:
        printed = (done.stderr or done.stdout).strip().splitlines()
        reason = printed[-1] if printed else f"no output, exit status {done.returncode}"
        raise PilotError(f"{' '.join(command[1:])}: {reason}")
    folder = ROOT / next(name for name in found[-1] if name)
    summary = _summary(folder, BYTES[by])
    value = math.nan if value is None else value if method.knob.is_whole else float(f"{value:.4g}")
    return Pilot(value, summary[BYTES[by]], summary["compression/density_mean"], str(folder))


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
    given: Method,
    value: float | None,
    other: Method,
    *,
    tolerance: float,
    runs: int,
    by: str = "link",
    start: float | None = None,
) -> Match:
    """The setting of ``other`` that sends as many bytes as ``given`` at ``value``.

    ``start`` is the first setting tried. By default it is the one with the average density of ``given``, or
    if that is dense, the one for its bytes. Raises ``PilotError`` if a pilot is refused or fails, and
    ``ValueError`` for a knob that does not change the bytes.
    """
    first = run_pilot(given, value, overrides, by)

    def pilot(trial: float) -> Pilot:
        found = run_pilot(other, trial, overrides, by)
        setting = other.knob.overrides(trial)
        print(f"{setting}: {found.sent:,.0f} bytes, {found.sent / first.sent - 1:+.1%}", flush=True)
        return found

    knob = other.knob.directed(lambda trial: pilot(trial).sent)
    begin = _first_value(first, knob) if start is None else start
    found, count = knob.search(pilot, first.sent, begin, tolerance=tolerance, runs=runs)
    return Match(first, found, count, by)


def _first_value(given: Pilot, knob: Knob) -> float:
    """The value of ``knob`` at which about as many entries are sent, or if all are, as many bytes."""
    summary = _summary(Path(given.folder))
    size = sum(layer["elements"] for layer in summary["layers"].values())
    share = 1 / (2 * given.density) if given.density < 1 else summary.get(RATIO, 1.0)
    return min(knob.highest, knob.first_value(share, size))


def as_yaml(settings: Sequence[str], found: Match, methods: Sequence[str], command: str) -> str:
    """A choice of the group ``budget`` with the ``settings`` of both methods, as budget.density=VALUE.

    Its schedule is that of the pilots. Raises ``ValueError`` for a pilot's config that cannot be read.
    """
    schedule = run_files.read_config(Path(found.given.folder))["budget"].get("schedule", "constant")
    values = dict(word.removeprefix("budget.").split("=") for word in settings)
    pairs = zip(methods, (found.given, found.found), strict=True)
    sent = "; ".join(f"{name} {pilot.sent:,.0f}, density {pilot.density:.4%}" for name, pilot in pairs)
    return (
        f"# {command}\n"
        f"# Bytes per worker, {found.by}: {sent} on average; {found.mismatch:+.2%}\n"
        f"# after {found.pilots} pilots.\n"
        f"density: {values['density']}\n"
        f"threshold: {values['threshold']}\n"
        f"schedule: {schedule if isinstance(schedule, str) else json.dumps(schedule)}\n"
    )


def overridden(settings: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Those of ``settings``, as budget.density=VALUE, that an experiment in ``overrides`` sets otherwise.

    An experiment is merged after the choice of the group ``budget``, so without a choice its values are left.
    """
    words = [word for word in overrides if word.lstrip("+").partition("=")[0].partition(".")[0] != "budget"]
    command = [sys.executable, "run.py", *words, "~budget", "--cfg", "job", "--package", "budget"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Commands() as commands:
        done = commands.run(command, dict(os.environ), cwd=ROOT, **pipes)
    left = {f"budget.{key}": value for key, value in re.findall(r"^(\w+): (.*)$", done.stdout, re.M)}
    pairs = [(word, *word.split("=")) for word in settings]
    return [word for word, key, value in pairs if key in left and not _is_equal(left[key], value)]


def _is_equal(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:  # null, or a reference to another setting
        return False


def main(arguments: list[str] | None = None) -> int:
    own = parser("budget", __doc__)
    own.add_argument("overrides", nargs="*", help="what is trained: overrides of run.py")
    given = own.add_mutually_exclusive_group(required=True)
    given.add_argument("--density", type=float, help="match Top-k at this density")
    given.add_argument("--threshold", type=float, help="match this threshold")
    given.add_argument("--given", metavar="NAME[=VALUE]", help="match this method, its knob at VALUE")
    own.add_argument("--method", metavar="NAME", help="the method whose setting is searched for")
    own.add_argument("--knob", metavar="KEY", help="the setting that is searched for (default: as declared)")
    own.add_argument("--tolerance", type=float, default=0.02, help="share of the bytes (default 0.02)")
    own.add_argument(
        "--match", choices=BYTES, default="link", help="bytes that leave a worker (default), or handed over"
    )
    own.add_argument("--runs", type=int, default=8, help="most pilots beside the one matched")
    own.add_argument("--start", type=float, help="first setting tried; a good guess saves pilots")
    own.add_argument("--to", type=Path, help="write the budget here")
    options = own.parse_intermixed_args(arguments)  # overrides may also follow options
    return in_a_line(lambda: _work(options))


def _work(options: argparse.Namespace) -> None:
    name, value = _given(options)
    other = options.method or ("hard_threshold" if name == "top_k" else "top_k")
    if options.runs < 1:
        raise ValueError(f"--runs must be at least 1, got {options.runs}")
    for option in ("tolerance", "start"):
        number = getattr(options, option)
        if number is not None and not (math.isfinite(number) and number > 0):
            raise ValueError(f"--{option} must be > 0, got {number}")
    if options.to is not None and not (options.to.suffix == ".yaml" and options.to.parent.is_dir()):
        raise ValueError(f"--to must be a .yaml in a folder that is there, got {options.to}")
    knobs = declared_knobs([([f"compressor={name}"], None), ([f"compressor={other}"], options.knob)])
    fixed = [each for each, knob in zip((name, other), knobs, strict=True) if knob is None]
    if other in fixed or (fixed and value is not None):
        raise ValueError(without_knob(fixed))
    pair = [Method(each, knob or Knob(factors={})) for each, knob in zip((name, other), knobs, strict=True)]
    keys = [key for method in pair for key in method.knob.factors]
    if options.to is not None and sorted(keys) != sorted(BUDGETS):
        raise ValueError(
            f"--to takes methods whose knobs are {' and '.join(BUDGETS)}, got {' and '.join(keys)}"
        )
    if options.to is not None and value is None:
        raise ValueError(f"--to writes the value of {name}: give it as --given {name}=VALUE")
    for word in options.overrides:
        if word.lstrip("+").partition("=")[0] in ("compressor", *keys):
            raise ValueError(f"{word} has no effect: pilots train {name} and {other} with their own settings")
    found = match(
        [*options.overrides, "tracker=none"],
        pair[0],
        value,
        pair[1],
        tolerance=options.tolerance,
        runs=options.runs,
        by=options.match,
        start=options.start,
    )
    settings = pair[0].overrides(value)[1:] + pair[1].overrides(found.found.value)[1:]
    how = "that leave a worker" if found.by == "link" else "that a worker hands over"
    for method, at, pilot in zip(pair, (value, found.found.value), (found.given, found.found), strict=True):
        words = " ".join(method.overrides(at))
        print(f"{words}: {pilot.sent:,.0f} bytes {how}, average density {pilot.density:.4%}")
    print(f"the one found sends {found.mismatch:+.2%} bytes, after {found.pilots} pilots")
    if abs(found.mismatch) > options.tolerance:
        raise PilotError(f"no setting came within {options.tolerance:.1%}")
    if options.to is not None:
        command = [
            "python -m results budget",
            *options.overrides,
            f"--given {name}={value:g}",
            f"--method {other}",
        ]
        command += ["--match handed"] * (found.by == "handed")
        write_over(options.to, as_yaml(settings, found, (name, other), " ".join(command)))
        print(options.to)
        if lost := overridden(settings, options.overrides):
            print(
                f"warning: the experiment's own budget overrides budget={options.to.stem}: type also "
                f"{' '.join(lost)}",
                file=sys.stderr,
            )


def _given(options: argparse.Namespace) -> tuple[str, float | None]:
    """The given method and the value of its knob, or None for the settings of its config."""
    for option, name in (("density", "top_k"), ("threshold", "hard_threshold")):
        if (value := getattr(options, option)) is not None:
            return name, _positive(value, f"--{option}")
    name, equals, word = options.given.partition("=")
    try:
        return name, _positive(float(word), "--given's value") if equals else None
    except ValueError:
        raise ValueError(
            f"--given must be NAME or NAME=VALUE with a value > 0, got {options.given}"
        ) from None


def _positive(value: float, option: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{option} must be > 0, got {value}")
    return value
