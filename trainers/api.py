"""Runs from a script or a notebook: compose a config, train, read the records.

    config = compose("experiment=quick", "compressor=top_k", "seed=1")
    run = train(config)
    run.summary["test/accuracy"], run.records[-1]["compression/total_error"]

``python run.py`` with the same settings uses the same run folder.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trainers.config import composition
from trainers.config.errors import ConfigError
from trainers.files.files import read_records, read_summary
from trainers.files.plain import Config, Fields
from trainers.launch.stopping import StoppedError
from trainers.run.session import run

__all__ = ["ConfigError", "FinishedRun", "StoppedError", "compose", "train"]


@dataclass(frozen=True)
class FinishedRun:
    """A finished run. Its files are read at the first access to a property."""

    folder: Path

    @cached_property
    def summary(self) -> Fields:
        """Totals, last and best values: summary.json."""
        return read_summary(self.folder)

    @cached_property
    def records(self) -> list[Fields]:
        """A record per logged step or evaluation, metrics by name: metrics.jsonl."""
        return [json.loads(line) for line in read_records(self.folder, self.summary).splitlines()]


def compose(*overrides: str) -> Config:
    """The checked config of ``python run.py OVERRIDES``, as plain values.

    Raises ``ConfigError``, with a message of one line, for a config that run.py refuses, and for a sweep. The
    first call limits config files for all uses of Hydra and OmegaConf in this process.
    """
    return composition.compose(overrides)


def train(config: Config) -> FinishedRun:
    """Train with ``config`` unless the run is finished; an interrupted run is continued.

    Prints the output of run.py, and sets the number of torch's threads (``threads``). Raises ``ConfigError``
    for a run that cannot start or continue. An interrupt (Ctrl-C, a notebook's stop button) raises
    ``StoppedError`` after the current step; the same call continues the run.
    """
    _, folder = run(config)
    return FinishedRun(folder)
