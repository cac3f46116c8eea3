"""Reading of metrics.jsonl into a table."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import trainers.files.files as run_files

_NO_STRUCTURE = bytes(set(range(256)) - {*b"{}[]\n"})


def read_records(folder: Path, summary: dict[str, Any]) -> pd.DataFrame:
    """One row per record: metrics as float columns, NaN for a missing metric, and ``step`` as integers.

    Raises ``OSError`` if the file cannot be read, and ``ValueError`` if a line is no record or a metric is no
    finite number.
    """
    content = run_files.read_records(folder, summary)
    try:
        return _parsed(content)
    except ValueError as error:
        raise ValueError(f"{run_files.RECORDS}: {error}") from error


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
    columns = []
    for name, kind in zip(table.schema.names, table.schema.types, strict=True):
        if not any(is_kind(kind) for is_kind in kinds):
            raise ValueError(f"{name} is not a number")
        values = table[name].cast(pa.float64(), safe=False).to_numpy()
        if np.count_nonzero(np.isfinite(values)) < len(values) - table[name].null_count:
            raise ValueError(f"{name} is not finite in every record")
        columns.append(values)
    records = pd.DataFrame(np.array(columns).T, columns=pd.Index(table.column_names, dtype=object))
    records["step"] = steps.cast(pa.int64()).to_numpy()
    return records


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
