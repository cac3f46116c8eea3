"""Output of figures to files."""

import argparse
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from results.figures.panels import NothingToDraw
from results.figures.style import save

_GLYPH = re.compile(r"Glyph (\d+) .*missing from")  # matplotlib's warning
Figures = Iterable[tuple[str, Callable[[], Any]]]  # file name without its ending, function that draws it


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option for ``save_all``'s PDFs."""
    parser.add_argument("--pdf", action="store_true", help="write each figure as PNG and as PDF")


def save_all(figures: Figures, folder: Path, *, pdf: bool = False) -> int:
    """Draw and save the figures that have data, and print their paths; return their number."""
    made = 0
    for stem, draw in figures:
        try:
            with _one_line_for_missing_glyphs(stem):
                figure = draw()
                folder.mkdir(parents=True, exist_ok=True)
                paths = save(figure, folder / stem, pdf=pdf)
        except NothingToDraw as reason:
            print(f"skipped {stem}: {reason}", file=sys.stderr)
            continue
        for path in paths:
            print(path)
        made += 1
    return made


@contextmanager
def _one_line_for_missing_glyphs(stem: str) -> Iterator[None]:
    """Replace matplotlib's warnings, one for each character without a glyph, by one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    missing = set()
    for warning in caught:
        glyph = _GLYPH.match(str(warning.message))
        if glyph is None:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        else:
            missing.add(chr(int(glyph[1])))
    if missing:
        letters = " ".join(sorted(missing))
        print(
            f"warning: {stem}: the font has no glyph for {letters}; boxes are drawn instead", file=sys.stderr
        )
