"""Self-contained HTML page of a sweep: question, settings, tables, interactive figures, and every run.

The page needs no network, because it includes plotly's JavaScript. Equal runs give equal bytes.

With --entity and --project the command creates a workspace and a report at Weights & Biases instead, with the
figures that this package draws from run folders. Runs of one method and setting form one group, shown as the
mean over their seeds. With OUTPUT it uploads the page and all figures of these folders, too. --dry-run writes
the specification as JSON, without a network or an account.
"""

import argparse
import contextlib
import gc
import io
import sys
from pathlib import Path

from results.command import hand_out, in_a_line, parser, write_over
from results.read.folders import read_runs
from results.report import dashboard
from results.report.html_page import Report, render
from results.report.upload import upload

OF_PAGES, OF_DASHBOARDS = ("title", "question"), ("entity", "project", "quality", "dry_run")


def main(arguments: list[str] | None = None) -> int:
    own = parser("report", __doc__)
    own.add_argument("output", nargs="*", type=Path, help="folders with runs, of one sweep or of several")
    own.add_argument(
        "--to",
        type=Path,
        help="the page (default: OUTPUT/report.html), or the specification (default: print it)",
    )
    own.add_argument("--title", help="default: the folders' names")
    own.add_argument("--question", help="what the sweep asks (default: made from what varies)")
    own.add_argument("--entity", help="W&B user or team")
    own.add_argument("--project", help="W&B project that the runs were logged to")
    own.add_argument("--quality", nargs="+", choices=dashboard.QUALITIES, metavar="METRIC")
    own.add_argument("--dry-run", action="store_true", help="write the specification without a network")
    options = own.parse_args(arguments)
    is_dashboard = any(getattr(options, name) for name in OF_DASHBOARDS)
    others = [name for name in (OF_PAGES if is_dashboard else ()) if getattr(options, name)]
    if others:
        own.error(f"--{others[0]} has no effect with --entity and --project")
    if is_dashboard and not (options.entity and options.project):
        own.error("a report at Weights & Biases needs --entity and --project")
    if is_dashboard and options.to is not None and not options.dry_run:
        own.error("--to has no effect without --dry-run")
    if options.output and options.dry_run:
        own.error("OUTPUT has no effect with --dry-run")
    if not is_dashboard and not options.output:
        own.error("folders with runs are missing")
    if is_dashboard:
        return write_dashboard(options)
    said = io.StringIO()
    gc.disable()  # a tenth of the time; the runs are needed until the page is written
    try:
        return in_a_line(lambda: write_page(options, said))
    finally:
        gc.enable()
        sys.stderr.write(said.getvalue())


def write_page(options: argparse.Namespace, said: io.StringIO) -> None:
    """Write the page; ``said`` collects the messages of reading. Raises ``OSError`` and ``ValueError``."""
    with contextlib.redirect_stderr(said):
        runs = read_runs(options.output)
    if not runs:
        raise FileNotFoundError(f"no finished run in {', '.join(map(str, options.output))}")
    left_out = tuple(line for line in said.getvalue().splitlines() if line.startswith("left out "))
    report = Report.of(
        runs, options.output, title=options.title, question=options.question, left_out=left_out
    )
    page = options.to or options.output[0] / "report.html"
    write_over(page, render(report).encode(errors="replace").decode())
    print(page)


def write_dashboard(options: argparse.Namespace) -> int:
    """Create a workspace and a report at Weights & Biases, or write their specification; return 0 or 1.

    Each part is saved by itself, and its address is printed at once. After an error the printed parts exist.
    """
    chosen = options.entity, options.project, options.quality or ["test/accuracy"]
    if options.dry_run:
        return in_a_line(lambda: hand_out(dashboard.specification_text(*chosen), options.to))
    try:
        for made in dashboard.save(*chosen):
            print(made)
        if options.output:
            print(upload(options.entity, options.project, options.output))
    except Exception as error:  # W&B raises many types; what has a printed address is saved already
        print(f"error: Weights & Biases: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0
