"""The small presets' table: quality, total error, density and bytes of every method, over seeds.

    python -m results.small OUTPUT [OUTPUT ...] [--table FILE]

What results.tables makes of them, under words of its own.
"""

import argparse
import sys
from pathlib import Path

from results.command import hand_out
from results.comparison import compare
from results.formats import markdown
from results.measures import qualities
from results.runs import Run, finished_runs

INTRODUCTION = """# The small presets

Written by `python -m results.small` from runs of `make small`. Mean ± standard deviation over the seeds
named; quality is that of the last weights. Bytes are those a worker sent over the whole training, indices
and counts included. Differences are paired over seeds, in brackets Student's 95 % interval. These presets
are small enough for two cores: they compare methods with each other and reproduce no published number.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m results.small", description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="+", type=Path, help="folders with runs of experiment=small/...")
    parser.add_argument("--table", type=Path, help="write the table here instead of printing it")
    options = parser.parse_args(arguments)
    try:
        hand_out(
            small_table([run for run in finished_runs(options.output) if qualities([run])]), options.table
        )
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def small_table(runs: list[Run]) -> str:
    """Markdown: a section per setting, in the order of their names."""
    return f"{INTRODUCTION}\n{markdown(compare(runs))}"


if __name__ == "__main__":
    sys.exit(main())
