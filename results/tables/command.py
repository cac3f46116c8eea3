"""Methods side by side for every subject and setting found, beside the paper where it has a number.

    python -m results.tables OUTPUT [OUTPUT ...] [--format md|csv|latex|all] [--to STEM] [--baseline METHOD]

A row per method: mean ± standard deviation over its seeds of quality, density, bytes and total error,
the paired difference of the quality from a baseline with its 95 % interval, and a verdict beside the paper.
"""

import argparse
import shlex
import sys
from pathlib import Path

from results import header
from results.compare.comparison import compare
from results.read.folders import compared_across, finished_runs
from results.tables.formats import comma_separated, latex, markdown

FORMATS = {"md": (markdown, ".md"), "csv": (comma_separated, ".csv"), "latex": (latex, ".tex")}
INTRODUCTION = """# Methods side by side

Written by `python -m results.tables` from run folders. Mean ± standard deviation over the seeds named;
quality is that of the last weights. Bytes are those of the whole training, indices and counts included: that
left a worker, were each a machine of its own, and that it handed to collectives. Differences are paired over
seeds: method minus baseline, and in brackets Student's 95 % interval.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m results.tables", description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="+", type=Path, help="folders with runs")
    parser.add_argument("--format", choices=[*FORMATS, "all"], default="md")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="STEM",
        help="write STEM.md, .csv, .tex; default: print, all to OUTPUT/tables",
    )
    parser.add_argument(
        "--baseline", help="none, top_k, or with settings as a table shows it: 'top_k, density 0.01'"
    )
    parser.add_argument(
        "--across",
        default="",
        help="settings to compare beside the method, such as scope,workers or data.alpha",
    )
    header.add_option(parser)
    options = parser.parse_args(arguments)
    try:
        runs = compared_across(finished_runs(options.output), options.across)
        sections = compare(runs, options.baseline)
        stem = options.to or (options.output[0] / "tables" if options.format == "all" else None)
        for name in FORMATS if options.format == "all" else [options.format]:
            write, ending = FORMATS[name]
            text = write(sections)
            if name == "md":
                made = header.of_runs(runs, command(options), allow_modified=options.allow_modified)
                text = header.under_title(f"{INTRODUCTION}\n{text}", made)
            if stem is None:
                print(text, end="")
            else:
                path = stem.with_name(f"{stem.name}{ending}")
                path.write_text(text, encoding="utf-8")
                print(path)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def command(options: argparse.Namespace) -> str:
    """What makes the same tables, wherever they go."""
    words = ["python", "-m", "results.tables", *(path.as_posix() for path in options.output)]
    for name in ("baseline", "across"):
        if value := getattr(options, name):
            words += [f"--{name}", value]
    return shlex.join(words).replace("`", "'")


if __name__ == "__main__":
    sys.exit(main())
