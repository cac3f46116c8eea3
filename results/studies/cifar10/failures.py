"""Table of the runs that ended with an error, with their section of the page."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from results.read.folders import run_folders
from results.read.run import Run
from results.studies.cifar10.places import label_of, section_of
from results.studies.kit import table
from trainers.files import files as run_files


def failures(folders: Iterable[Path]) -> str:
    """A table with section, method, seed and reason; empty without a failed run."""
    rows = []
    for path in (path for folder in sorted(folders) for path in run_folders(folder)):
        try:
            summary, config = run_files.read_summary(path), run_files.read_config(path)
        except run_files.UnreadableFileError:  # running or interrupted
            continue
        if summary["status"] != "finished":
            run = Run(path, config, summary, pd.DataFrame())
            rows.append([section_of(run), label_of(run), str(run.seed), summary.get("error", "no reason")])
    return table(["section", "method", "seed", "why"], sorted(rows), words=4) if rows else ""
