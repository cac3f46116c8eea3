"""Output of figures to files."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from results.figures.panels import NothingToDraw
from results.figures.style import save

Figures = Iterable[tuple[str, Callable[[], Any]]]  # file name without its ending, function that draws it


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option for ``save_all``'s PDFs."""
    parser.add_argument("--pdf", action="store_true", help="write each figure as PNG and as PDF")


def save_all(figures: Figures, folder: Path, *, pdf: bool = False) -> int:
    """Draw and save the figures that have data, and print their paths; return their number."""
    made = 0
    for stem, draw in figures:
        try:
            figure = draw()
        except NothingToDraw as reason:
            print(f"skipped {stem}: {reason}", file=sys.stderr)
            continue
        for path in save(figure, folder / stem, pdf=pdf):
            print(path)
        made += 1
    return made
