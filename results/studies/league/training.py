"""The options that train the league."""

import argparse
import sys

from results.studies.kit import ROOT, Training
from results.studies.league.cells import play
from results.studies.league.knobs import names
from results.studies.league.tasks import TASKS
from results.studies.league.trials import Trainings


def add_options(own: argparse.ArgumentParser) -> None:
    own.add_argument("--run", action="store_true", help="train what is missing for all methods first")
    own.add_argument(
        "--add",
        action="append",
        metavar="compressor=NAME",
        help="train what is missing for this method first",
    )
    own.add_argument("--task", action="append", choices=TASKS, help="train on this task alone")
    own.add_argument("--jobs", type=int, default=2, help="trainings at a time (default 2)")
    own.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override of all trainings"
    )


def run(options: argparse.Namespace) -> None:
    """Train what ``options`` ask for. Raises ``ValueError`` for a method or option that does not exist."""
    if not options.run and not options.add:
        if options.task or options.set:
            raise ValueError("--task and --set need --run or --add")
        return
    if options.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {options.jobs}")
    chosen = names() if options.run else [_named(word) for word in options.add]
    train = Trainings(ROOT / options.root, options.set, say=_say)
    play(options.task or list(TASKS), chosen, train, options.jobs)


def _named(word: str) -> str:
    key, equals, name = word.partition("=")
    if (key, equals) != ("compressor", "=") or not name:
        raise ValueError(f"--add takes compressor=NAME, got {word}")
    return name


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


TRAINING = Training(add_options=add_options, run=run)
