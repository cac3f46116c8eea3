"""Command that compares methods for every subject and setting, and with the paper's numbers.

A table has one row per method: mean ± standard deviation over seeds of quality, density, bytes and total
error, the paired difference of quality from a baseline with its 95 % interval, and a verdict on the paper's
numbers.

--wide and --long write tidy files instead, with one row per run and one row per recorded number.
--conventions counts a run's traffic by the conventions of several publications.
"""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from results import header
from results.command import hand_out, in_a_line, parser
from results.compare.comparison import compare
from results.compare.measures import require_several_workers
from results.read.folders import compared_across, finished_runs, read_runs, with_numbers
from results.read.run import Run
from results.tables import conventions
from results.tables.formats import comma_separated, latex, markdown
from results.tables.tidy import KINDS, wide_table, write_long, write_table

FORMATS = {"md": (markdown, ".md"), "csv": (comma_separated, ".csv"), "latex": (latex, ".tex")}
OF_COMPARISONS = ("format", "to", "baseline", "across", "allow_modified")
INTRODUCTION = """# Methods side by side

Written by `python -m results table` from run folders. Numbers are mean ± standard deviation over the listed
seeds; quality is that of the last weights. Bytes are sums over the whole training, with indices and counts:
those that would leave a worker if each worker had its own machine, and those that it handed to collectives.
Differences are method minus baseline, paired over seeds, with Student's 95 % interval in brackets.
"""


def main(arguments: list[str] | None = None) -> int:
    own = parser("table", __doc__)
    own.add_argument("output", nargs="+", type=Path, help="folders with runs")
    own.add_argument("--format", choices=[*FORMATS, "all"], help="default: md")
    own.add_argument(
        "--to",
        type=Path,
        metavar="STEM",
        help="write STEM.md, .csv, .tex; default: print, all to OUTPUT/tables",
    )
    own.add_argument(
        "--baseline", help="none, top_k, or with settings as a table shows it: 'top_k, density 0.01'"
    )
    own.add_argument(
        "--across", help="settings to compare beside the method, such as scope,workers or data.alpha"
    )
    header.add_option(own)
    own.add_argument("--wide", type=Path, help="write one row per run here, .csv or .parquet")
    own.add_argument("--long", type=Path, help="write one row per recorded number here, .csv or .parquet")
    own.add_argument(
        "--conventions", action="store_true", help="count each run's traffic in every way of publications"
    )
    options = own.parse_args(arguments)
    return in_a_line(lambda: write(options))


def write(options: argparse.Namespace) -> None:
    """Write the requested tables. Raises ``OSError`` and ``ValueError``."""
    is_tidy = options.wide is not None or options.long is not None
    if is_tidy or options.conventions:
        asked = "--conventions" if options.conventions else "--wide and --long"
        others = [name for name in OF_COMPARISONS if getattr(options, name)]
        others += [name for name in ("wide", "long") if options.conventions and getattr(options, name)]
        if others:
            raise ValueError(f"--{others[0].replace('_', '-')} has no effect with {asked}")
    if options.conventions:
        runs = read_runs(options.output)
        require_several_workers(runs)
        runs = with_numbers(runs, conventions.NEEDED)
        if not runs:
            raise FileNotFoundError(f"no finished run in {', '.join(map(str, options.output))}")
        hand_out("\n".join(map(conventions.table_of, runs)), None)
    elif is_tidy:
        write_tidy(options.output, options.wide, options.long)
    else:
        write_comparison(options)


def write_tidy(outputs: Sequence[Path], wide: Path | None, long: Path | None) -> None:
    """Write the wide table (one row per run), the long table (one row per recorded number), or both."""
    for path in filter(None, (wide, long)):
        if path.suffix not in KINDS:
            raise ValueError(f"a table's file must end in {' or '.join(KINDS)}, got {path}")
    runs = finished_runs(outputs)
    if wide is not None:
        write_table(wide_table(runs), wide)
        print(wide)
    if long is not None:
        write_long(runs, long)
        print(long)


def write_comparison(options: argparse.Namespace) -> None:
    """Write the comparison of methods in each format.

    Runs of modified code are refused in a file; a table in the terminal has a warning from reading the runs.
    """
    runs = compared_across(finished_runs(options.output), options.across or "")
    stem = options.to or (options.output[0] / "tables" if options.format == "all" else None)
    allowed = options.allow_modified or stem is None
    header.of_runs(runs, "", allow_modified=allowed)  # before the first file
    for name in FORMATS if options.format == "all" else [options.format or "md"]:
        text_of, ending = FORMATS[name]
        if name == "md":
            text = page(runs, command(options), options.baseline, allow_modified=allowed)
        else:
            text = text_of(compare(runs, options.baseline))
        hand_out(text, None if stem is None else stem.with_name(f"{stem.name}{ending}"))


def page(
    runs: Sequence[Run], made_by: str, baseline: str | None = None, *, allow_modified: bool = False
) -> str:
    """The comparison as Markdown, with a header whose command is ``made_by``.

    Raises ``ValueError`` for runs of modified code unless ``allow_modified``.
    """
    made = header.of_runs(runs, made_by, allow_modified=allow_modified)
    return header.at_end(f"{INTRODUCTION}\n{markdown(compare(runs, baseline))}", made)


def command(options: argparse.Namespace) -> str:
    """The command that makes the same tables, without the output path."""
    words = ["python", "-m", "results", "table", *(path.as_posix() for path in options.output)]
    for name in ("baseline", "across"):
        if value := getattr(options, name):
            words += [f"--{name}", value]
    return shlex.join(words).replace("`", "'")
