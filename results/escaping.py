"""Escaping of text from run folders for Markdown and LaTeX.

A name or setting may have any character. Every page and table escapes them with these functions; text that is
already Markdown is ``Marked``.
"""

import re
from collections.abc import Iterable, Sequence

LATEX_LETTERS = 0x180  # up to Latin Extended-A
_MARKDOWN = {character: f"\\{character}" for character in "\\`*~$"}
_MARKDOWN |= {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "²": "$^2$", "~": r"\textasciitilde{}", "≥": r"$\geq$"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"} | {"^": r"\textasciicircum{}"}
_LATEX |= {"*": r"$^*$", "<": "$<$", ">": "$>$", "‖": r"$\|$", "|": "$|$", '"': r"\symbol{34}"}
_LATEX |= {"[": "{[}", "]": "{]}", "`": r"\symbol{96}"}  # [ after \\ would begin a length


class Marked(str):
    """Text that is already Markdown."""

    __slots__ = ()


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def in_markdown(text: object) -> str:
    """Text for a paragraph, heading or list item of Markdown; ``Marked`` text is not changed."""
    if isinstance(text, Marked):
        return text
    shown = _inline(text).replace("|", "\\|")
    shown = re.sub(r"^([#+=-]+)(?=\s|$)", lambda found: re.sub(".", r"\\\g<0>", found[1]), shown)
    shown = re.sub(r"(?<=\s)(?=#+$)", r"\\", shown)  # a trailing # would close a heading
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", shown)


def _inline(text: object) -> str:
    """Escape Markdown inside a line, but no pipes and no characters that matter only at a block's start."""
    shown = "".join(_MARKDOWN.get(character, character) for character in one_line(text))
    shown = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", shown)  # inside a word _ has no meaning
    shown = re.sub(r"\](?=[(\[:])", r"\\]", shown)  # otherwise a link or a link definition
    return re.sub(r"(?<=:)/(?=/)|(?<=www)\.", r"\\\g<0>", shown, flags=re.IGNORECASE)


def code(text: object) -> Marked:
    """Text as a code span of Markdown."""
    words = one_line(text)
    if not words:
        return Marked("")
    longest = max((len(run) for run in re.findall("`+", words)), default=0)
    edge = " " if words[0] == "`" or words[-1] == "`" else ""
    return Marked(f"{'`' * (longest + 1)}{edge}{words}{edge}{'`' * (longest + 1)}")


def markdown_table(head: Sequence[object], rows: Iterable[Sequence[object]], rule: Sequence[str]) -> str:
    """A table; ``rule`` has the line below each column's head: ``---`` for text, ``---:`` for numbers."""
    lines = [_row(head), f"|{'|'.join(rule)}|", *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[object]) -> str:
    """Join the cells; escape pipes, which would end a cell even inside code."""
    shown = (cell if isinstance(cell, Marked) else _inline(cell) for cell in cells)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in shown)} |"


def in_latex(text: object) -> str:
    """Text for LaTeX with its default fonts, which only have Latin letters."""
    return "".join(_in_latex(character) for character in one_line(text))


def _in_latex(character: str) -> str:
    if character in _LATEX:
        return _LATEX[character]
    return character if ord(character) < LATEX_LETTERS else f"U+{ord(character):04X}"
