"""Runs from a script or a notebook: compose a config, train, read the records.

    config = compose("experiment=quick", "compressor=top_k", "seed=1")
    run = train(config)
    run.summary["test/accuracy"], run.records[-1]["compression/total_error"]

``python run.py`` of the same settings finds the same run folder.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trainers.config import composition
from trainers.config.errors import ConfigError
from trainers.launch.stopping import StoppedError
from trainers.records.files import read_records, read_summary
from trainers.records.plain import Config, Fields
from trainers.run.session import run

__all__ = ["ConfigError", "FinishedRun", "StoppedError", "compose", "train"]


@dataclass(frozen=True)
class FinishedRun:
    """A run that has finished, now or before. Its files are read when they are asked for."""

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
    """The config of ``python run.py OVERRIDES``: plain values, checked.

    Raises ``ConfigError``, one line, for what run.py refuses, and for a sweep: a config is of one run. From
    the first call on, the limits on config files hold for all of Hydra and OmegaConf in this process.
    """
    return composition.compose(overrides)


def train(config: Config) -> FinishedRun:
    """Train as ``config`` says, unless that run has finished before; continue it if it was interrupted.

    Prints what run.py prints, and sets the number of torch's threads (``threads``). Raises ``ConfigError``
    for a run that cannot start or go on. An interrupt (Ctrl-C, a notebook's stop button) ends it after its
    step by ``StoppedError``; the same call continues it.
    """
    _, folder = run(config)
    return FinishedRun(folder)
