"""Tidy tables of run folders, for notebooks and spreadsheets.

The wide table has one row per run: every setting (``config.trainer.epochs``), every number of the summary
under its name, and best values (``best.test/accuracy``). The long table has one row per recorded number, with
the run's id, step, epoch and metric. Files end in .csv or .parquet; equal runs give equal bytes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from results.command import writing_over
from results.read.run import Run
from results.read.settings import flatten

KINDS = (".csv", ".parquet")
RUNS_AT_ONCE = 50  # runs in memory while the long table is written, and in a row group of its parquet file
_ELSEWHERE = ("status", "id", "seed")  # fields of a summary that are not numbers, or have separate columns


def wide_table(runs: Sequence[Run]) -> pd.DataFrame:
    """One row per run; a setting or number that a run lacks is a missing value."""
    rows = []
    for run in runs:
        numbers = flatten({key: value for key, value in run.summary.items() if key not in _ELSEWHERE})
        rows.append(
            {
                "path": run.path.as_posix(),
                "id": run.id,
                "seed": run.seed,
                "method": run.method,
                "subject": run.subject,
                "commit": run.commit,
                "modified": run.modified,
            }
            | {f"config.{key}": value for key, value in sorted(flatten(run.config).items())}
            | {key: value for key, value in numbers.items() if isinstance(value, (int, float))}
        )
    columns = list(dict.fromkeys(key for row in rows for key in row))
    settings = sorted(key for key in columns if key.startswith("config."))
    others = [key for key in columns if key not in settings]  # the first seven are those of all runs
    order = (*others[:7], *settings, *others[7:])
    return pd.DataFrame({key: _column([row.get(key) for row in rows]) for key in order})


def write_table(table: pd.DataFrame, path: Path) -> None:
    with writing_over(path) as place:
        if path.suffix == ".csv":
            table.to_csv(place, index=False, lineterminator="\n")
        else:
            table.to_parquet(place, index=False, engine="pyarrow")


def write_long(runs: Sequence[Run], path: Path) -> None:
    """Write ``id``, ``step``, ``epoch``, ``metric``, ``value``: a row for every number in the runs' records.

    Rows are in the order of runs, metrics and steps. NaN has no row, because records do not distinguish it
    from a metric that was not measured. It writes a few runs at a time, because a thousand runs would need
    gigabytes of memory.
    """
    import pyarrow as pa

    is_text = path.suffix == ".csv"
    with writing_over(path) as place, _writer(place, is_text) as writer:
        for start in range(0, len(runs), RUNS_AT_ONCE):
            parts = pa.concat_tables(map(_of_run, runs[start : start + RUNS_AT_ONCE]))
            writer.write_table(parts.cast(_schema(is_text=True)) if is_text else parts.unify_dictionaries())


def _writer(place: Path, is_text: bool) -> Any:
    from pyarrow import csv, parquet

    if is_text:
        options = csv.WriteOptions(quoting_style="needed")
        return csv.CSVWriter(place, _schema(is_text=True), write_options=options)
    return parquet.ParquetWriter(place, _schema())


def _of_run(run: Run) -> Any:
    import pyarrow as pa

    steps = run.records["step"].to_numpy()
    empty = np.full(len(steps), np.nan)
    epochs = run.records["epoch"].to_numpy(float) if "epoch" in run.records else empty
    metrics = [str(name) for name in run.records if name not in ("step", "epoch")]
    values = [run.records[name].to_numpy(float) for name in metrics] or [empty]
    there = [~np.isnan(of_metric) for of_metric in values]
    counts = [int(mask.sum()) for mask in there]

    def words(names: list[str], which: np.ndarray) -> Any:
        return pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), pa.array(names, pa.string()))

    columns = [
        words([run.id], np.zeros(sum(counts))),
        np.concatenate([steps[mask] for mask in there]),
        np.concatenate([epochs[mask] for mask in there]),
        words(metrics, np.repeat(np.arange(len(counts)), counts)),
        np.concatenate([of_metric[mask] for of_metric, mask in zip(values, there, strict=True)]),
    ]
    return pa.table([pa.array(c) if isinstance(c, np.ndarray) else c for c in columns], schema=_schema())


def _schema(is_text: bool = False) -> Any:
    import pyarrow as pa

    word = pa.string() if is_text else pa.dictionary(pa.int32(), pa.string())
    kinds = {"id": word, "step": pa.int64(), "epoch": pa.float64(), "metric": word, "value": pa.float64()}
    return pa.schema(kinds.items())


def _column(values: list[Any]) -> ExtensionArray:
    """Values as booleans, integers or floats if all have one of these types, else as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pd.array(values, dtype="boolean")
    if kinds == {int}:
        return pd.array(values, dtype="Int64")
    if kinds and kinds <= {int, float}:
        return pd.array([np.nan if value is None else float(value) for value in values], dtype="float64")
    return pd.array([None if value is None else str(value) for value in values], dtype="string")
