"""Options of the league's command that start its trainings."""

import argparse
import os
import sys

from results.studies.kit import ROOT
from results.studies.league.methods import entries_of, method_names
from results.studies.league.search import train_methods
from results.studies.league.tasks import TASKS
from results.studies.league.trials import Trainings
from trainers.files.working_tree import is_modified
from trainers.launch.commands import Commands


def add_options(own: argparse.ArgumentParser) -> None:
    own.add_argument("--run", action="store_true", help="first run the missing trainings of all methods")
    own.add_argument(
        "--add",
        action="append",
        metavar="compressor=NAME",
        help="first run the missing trainings of this method",
    )
    own.add_argument(
        "--task", action="append", choices=TASKS, help="train on this task only (may be repeated)"
    )
    own.add_argument(
        "--knob",
        metavar="KEY",
        help="the setting that meets the budgets in --add, instead of the declared one",
    )
    own.add_argument("--jobs", type=int, default=2, help="number of simultaneous trainings (default 2)")
    own.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override for all trainings"
    )


def run(options: argparse.Namespace) -> None:
    """Train the methods of --run or --add; without these options, nothing.

    Raises ``ValueError`` for an unknown method, for options that have no effect, and for uncommitted code
    without --allow-modified.
    """
    if not options.run and not options.add:
        if options.task or options.set or options.knob:
            raise ValueError("--task, --set and --knob need --run or --add")
        return
    if options.output:
        raise ValueError(
            f"--run and --add take no folder, and overrides after --set, got {options.output[0]}"
        )
    if options.knob and (options.run or len(options.add) > 1):
        raise ValueError("--knob needs a single --add")
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    chosen = [*(method_names() if options.run else ()), *map(_method_of, options.add or ())]
    if options.add:
        entries_of(chosen, options.knob)  # an unknown method is refused before all else
    if not options.allow_modified and is_modified(ROOT):
        raise ValueError(
            "the page has runs of committed code only: commit your changes first, or give --allow-modified"
        )
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the trainings
    with Commands() as commands:
        train = Trainings(ROOT / options.root, options.set, _print_progress, commands)
        try:
            train_methods(options.task or list(TASKS), chosen, train, options.jobs, options.knob)
        except KeyboardInterrupt:
            _print_progress("interrupted; the same command continues")
            raise SystemExit(commands.status) from None


def _method_of(word: str) -> str:
    """NAME of compressor=NAME, the value of --add."""
    key, equals, name = word.partition("=")
    if (key, equals) != ("compressor", "=") or not name:
        raise ValueError(f"--add takes compressor=NAME, got {word}")
    return name


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
