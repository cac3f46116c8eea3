"""Savings of a lossless delta between two checkpoints, by group of tensors.

    python -m results deltas OLD NEW --dtype bfloat16

OLD and NEW are safetensors files, or folders with some. A group is the tensors whose names differ in numbers
alone. --dtype compares the checkpoints as seen in it: floating-point tensors with more bytes are rounded
first. Bytes are those of tensors and messages, without the header of a file. total_error.deltas writes deltas
(docs/guides/own_script.md).
"""

import argparse
from pathlib import Path

from results.command import answer_of, in_a_line, parser
from results.escaping import code, markdown_table

HEAD = ("group", "tensors", "entries", "changed", "whole, bytes", "delta, bytes", "whole over delta")


def main(arguments: list[str] | None = None) -> int:
    own = parser("deltas", __doc__)
    own.add_argument("old", metavar="OLD", type=Path)
    own.add_argument("new", metavar="NEW", type=Path)
    own.add_argument(
        "--dtype", choices=["bfloat16", "float16", "float32"], help="default: that of each tensor"
    )
    options = own.parse_args(arguments)
    return in_a_line(lambda: write(options))


def write(options: argparse.Namespace) -> None:
    """Print a table with a row per group, and the sum. Raises ``ValueError`` and ``OSError``."""
    for path in (options.old, options.new):
        if not path.exists():
            raise FileNotFoundError(f"no file or folder {path}")
    old, new = (str(path.resolve()) for path in (options.old, options.new))
    found = answer_of("trainers.deltas", {"old": old, "new": new, "dtype": options.dtype})
    groups = found["groups"]
    total = {key: sum(own[key] for own in groups.values()) for key in next(iter(groups.values()), ())}
    rows = [[code(name), *_cells(own)] for name, own in groups.items()]
    rows += [["all", *_cells(total)]] if groups else []
    print(markdown_table(HEAD, rows, ["---", *["---:"] * (len(HEAD) - 1)]), end="")
    if found["removed"]:
        print(f"\nremoved: {', '.join(map(code, found['removed']))}")


def _cells(own: dict[str, int]) -> list[str]:
    whole, delta = own["whole_bytes"], own["delta_bytes"]
    density = f"{own['changed'] / own['words']:.2%}" if own["words"] else "-"
    ratio = f"{whole / delta:,.1f}" if delta else "-"
    return [f"{own['tensors']:,}", f"{own['words']:,}", density, f"{whole:,}", f"{delta:,}", ratio]
