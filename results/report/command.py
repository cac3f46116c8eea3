"""One self-contained page about a sweep: its question, settings, tables, interactive figures, and every run.

    python -m results.report OUTPUT [OUTPUT ...] [--to FILE.html] [--title T] [--question Q]

The page needs no network: plotly's own JavaScript is inside it. The same runs give the same bytes.
"""

import argparse
import contextlib
import io
import sys
from pathlib import Path

from results.read.folders import read_runs
from results.report.page import Report, render


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m results.report", description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="+", type=Path, help="folders with runs, of one sweep or of several")
    parser.add_argument("--to", type=Path, help="the page (default: OUTPUT/report.html)")
    parser.add_argument("--title", help="default: the folders' names")
    parser.add_argument("--question", help="what the sweep asks (default: made from what varies)")
    options = parser.parse_args(arguments)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            runs = read_runs(options.output)
        if not runs:
            raise FileNotFoundError(f"no finished run in {', '.join(map(str, options.output))}")
        left_out = tuple(line for line in said.getvalue().splitlines() if line.startswith("left out "))
        report = Report.of(
            runs, options.output, title=options.title, question=options.question, left_out=left_out
        )
        page = options.to or options.output[0] / "report.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render(report), encoding="utf-8", errors="replace")
        print(page)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        sys.stderr.write(said.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
