"""Reading of metrics.jsonl into a table: at once if all lines are valid, otherwise line by line."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import trainers.records.files as run_files
from results.escaping import one_line
from results.read.showable import LARGEST_NUMBER, LONGEST_TEXT

MOST_BROKEN = 3  # largest number of broken lines in a file that is still read
_NO_STRUCTURE = bytes(set(range(256)) - {*b"{}[]\n"})


def read_records(folder: Path, summary: Mapping[str, Any]) -> pd.DataFrame:
    """One row per record: metrics as float columns, NaN for a missing metric, and ``step`` as integers.

    If the summary has no checksum of the file, an incomplete last line and up to ``MOST_BROKEN`` invalid
    lines are named on standard error and left out. Raises ``OSError`` if the file cannot be read, and
    ``ValueError`` for more broken lines and for a metric that is not a number or that no figure could show.
    """
    path = folder / run_files.RECORDS
    content = run_files.read_records(folder, summary)
    try:
        return _parsed(content)
    except UnshowableError as error:
        raise ValueError(f"{path.name}: {error}") from error
    except ValueError:
        whole, broken = _line_by_line(content, path.name)
        if len(broken) > MOST_BROKEN:
            first, reason = broken[0]
            raise ValueError(
                f"{path.name}: {len(broken):,} lines are not records, line {first}: {reason}"
            ) from None
        for number, reason in broken:
            print(f"left out line {number} of {one_line(path)}: {reason}", file=sys.stderr)
        try:
            return _parsed(whole)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from error


class UnshowableError(ValueError):
    """A metric whose value or name a figure cannot show."""


def _parsed(content: bytes) -> pd.DataFrame:
    """Records, parsed by Arrow in a third of json's time; Arrow accepts NaN and Infinity like json."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    if not content or content.isspace():
        return pd.DataFrame({"step": pd.Series(dtype="int64")})
    if not _has_flat_lines(content):  # Arrow's parser would crash on null and on many levels
        raise ValueError("its lines are not flat objects")
    # one block, so that a column has one type in all rows
    options = arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
    table = arrow_json.read_json(pa.BufferReader(content), read_options=options)
    if "step" not in table.column_names:
        raise ValueError("a record has no step")
    steps = table["step"]
    if steps.null_count or not pa.types.is_integer(steps.type):
        raise ValueError("a record has no step")
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    for name, kind in zip(table.schema.names, table.schema.types, strict=True):
        if not any(is_kind(kind) for is_kind in kinds):
            raise ValueError(f"{name} is not a number")
    _require_showable(table)
    floats = ((name, pa.int64() if name == "step" else pa.float64()) for name in table.column_names)
    return table.cast(pa.schema(floats)).to_pandas()


def _has_flat_lines(content: bytes) -> bool:
    """Whether every line begins and ends with a brace and has no other brace and no bracket."""
    if not content.endswith(b"\n"):
        content += b"\n"
    lines = content.count(b"\n")
    return (
        content.translate(None, _NO_STRUCTURE) == b"{}\n" * lines
        and content.startswith(b"{")
        and content.count(b"\n{") == lines - 1
        and content.count(b"}\n") == lines
    )


def _require_showable(table: Any) -> None:
    """Raise ``UnshowableError`` for a metric that is NaN, infinite or huge, or whose name cannot be shown."""
    import pyarrow as pa
    from pyarrow import compute

    for name in table.column_names:
        if not name.isprintable() or len(name) > LONGEST_TEXT:
            raise UnshowableError(f"{one_line(ascii(name))[:60]} is no name of a metric")
        column = table[name].drop_null()
        if not len(column) or pa.types.is_boolean(column.type):
            continue
        floats = column.cast(pa.float64(), safe=False)
        if not compute.all(compute.less_equal(compute.abs(floats), LARGEST_NUMBER)).as_py():
            row = compute.index(compute.less_equal(compute.abs(floats), LARGEST_NUMBER), False).as_py()
            raise UnshowableError(
                f"{name} must be a number up to {LARGEST_NUMBER:g}, got {floats[row].as_py()}"
            )


def _line_by_line(content: bytes, file: str) -> tuple[bytes, list[tuple[int, str]]]:
    """The valid records as JSON lines, and number and fault of each invalid line."""
    kept, broken = [], []
    lines = content.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, parse_int=_number, object_pairs_hook=_without_repeats)
        except RepeatedKeyError:
            broken.append((number, "a key occurs twice"))
            continue
        except (ValueError, RecursionError):
            is_cut = number == len(lines) and not content.endswith(b"\n")
            broken.append((number, "it was cut off while it was written" if is_cut else "it is not JSON"))
            continue
        if isinstance(record, dict) and type(record.get("step")) is int:
            for name, value in record.items():
                if not isinstance(value, (int, float, type(None))):
                    raise ValueError(f"{file}: {name} is not a number")
            kept.append(json.dumps(record).encode())
        else:
            broken.append((number, "it has no step"))
    return b"\n".join(kept), broken


class RepeatedKeyError(ValueError):
    """A key that a record has twice."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RepeatedKeyError
    return found


def _number(digits: str) -> int | float:
    """An int if it fits into 64 bits, else a float."""
    return int(digits) if len(digits) < 19 else float(digits)
