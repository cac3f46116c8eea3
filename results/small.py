"""The small presets' table: quality, total error, density and bytes of every method, over seeds.

    python -m results.small OUTPUT [OUTPUT ...] [--table FILE]

A section for every model and data set found, a row for every method: mean ± standard deviation.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from results.runs import Run, by_method, by_setting, read_runs

PERCENT = 100
QUALITY = (  # metric, what it is called, factor, digits
    ("validation/accuracy", "validation accuracy, %", PERCENT, 2),
    ("validation/perplexity", "validation perplexity", 1, 1),
    ("test/accuracy", "test accuracy, %", PERCENT, 2),
    ("test/perplexity", "test perplexity", 1, 1),
    ("test/hit_rate_at_10", "test hit rate at 10, %", PERCENT, 2),
    ("test/ndcg_at_10", "test NDCG at 10, %", PERCENT, 2),
)
INTRODUCTION = """# The small presets

Written by `python -m results.small` from runs of `make small`. Mean ± standard deviation over the seeds
named; quality is that of the last weights. Bytes are those a worker sent over the whole training, indices
and counts included. These presets are small enough for two cores: they compare methods with each other and
reproduce no published number.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m results.small", description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="+", type=Path, help="folders with runs of experiment=small/...")
    parser.add_argument("--table", type=Path, help="write the table here instead of printing it")
    options = parser.parse_args(arguments)
    try:
        runs = [run for run in read_runs(options.output) if any(q in run.summary for q, *_ in QUALITY)]
        if not runs:
            raise FileNotFoundError(
                f"no finished run with a quality in {', '.join(map(str, options.output))}"
            )
        table = small_table(runs)
        if options.table is None:
            print(table)
        else:
            options.table.write_text(table, encoding="utf-8")
            print(options.table)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def small_table(runs: list[Run]) -> str:
    """Markdown: a section per setting, in the order of their names."""
    sections = sorted(_section(group) for group in by_setting(runs))
    return "\n".join([INTRODUCTION, *sections])


def _section(group: list[Run]) -> str:
    first = group[0]
    qualities = [quality for quality in QUALITY if quality[0] in first.summary]
    columns = ["method", "seeds", *(label for _, label, *_ in qualities)]
    columns += ["average density, %", "total error", "MB sent"]
    lines = [f"## {first.subject}", "", *_facts(first), "", _row(columns)]
    lines.append("|---|---|" + "---:|" * (len(columns) - 2))
    for method, seeds in by_method(group).items():
        cells = [f"`{method}`", ", ".join(str(run.seed) for run in seeds)]
        cells += [
            _spread(seeds, lambda run, m=metric, f=factor: f * run.summary[m], f".{digits}f")
            for metric, _, factor, digits in qualities
        ]
        cells.append(_spread(seeds, lambda run: PERCENT * run.summary["compression/density_mean"], ".2f"))
        cells.append(_spread(seeds, lambda run: run.summary["compression/total_error"], ".3g"))
        cells.append(_spread(seeds, lambda run: run.summary["comm/bytes_sent_total"] / 1e6, ".2f"))
        lines.append(_row(cells))
    return "\n".join([*lines, ""])


def _facts(run: Run) -> list[str]:
    """The size of the run, what its data say of themselves, and where quality began."""
    parameters = sum(layer["elements"] for layer in run.summary["layers"].values())
    facts = [
        f"{run.config['workers']} workers",
        f"{parameters:,} parameters",
        f"{run.summary['step']:,} steps",
    ]
    facts += [f"{name} {_plain(value)}" for name, value in run.summary.get("data", {}).items()]
    lines = [f"{', '.join(facts)}."]
    if "validation/perplexity" in run.records:
        first = run.curve("validation/perplexity")
        lines.append(
            f"The first validation perplexity of `{run.method}`, seed {run.seed}, is {first.iloc[0]:.1f}, "
            f"after {first.index[0]} steps."
        )
    return lines


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _spread(runs: list[Run], value: Callable[[Run], float], form: str) -> str:
    """Mean ± standard deviation; of one run, its value alone."""
    values = [value(run) for run in runs]
    mean = f"{statistics.mean(values):{form}}"
    return f"{mean} ± {statistics.stdev(values):{form}}" if len(values) > 1 else mean


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
