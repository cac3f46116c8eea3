"""One finished run: its config, totals, records and environment."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from trainers.identity.identity import (
    Identity,
    Origin,
    Settings,
    identify,
    subject_of,
)


@dataclass(frozen=True)
class Run:
    """One finished run."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    records: pd.DataFrame  # one row per record, metrics as columns
    environment: dict[str, Any] = field(default_factory=dict)  # empty if it was not recorded
    across: tuple[str, ...] = ()  # settings, such as scope or data.alpha, that count as part of the method

    @cached_property
    def identity(self) -> Identity:
        """Method, setting and seed by the current rules, which an archived run's folder may be older than."""
        origin = None
        if "origin" in self.summary:
            origin = Origin(self.summary["origin"], self.summary["origin_group"])
        return identify(self.config, origin).across(self.across)

    @property
    def id(self) -> str:
        """The hash of all settings that can change the result."""
        return self.identity.id

    @property
    def commit(self) -> str | None:
        """The commit of the code that ran, or None if it is not known."""
        return self.environment.get("commit")

    @property
    def modified(self) -> bool:
        """Whether the code differed from its commit."""
        return bool(self.environment.get("commit_is_modified"))

    @property
    def code(self) -> str:
        """The version of the code: ten digits of its commit, and a star if it was modified."""
        return (self.commit or "unknown")[:10] + "*" * self.modified

    @property
    def hardware(self) -> str:
        """Processor, cores and GPUs in use; empty if they were not recorded."""
        found = self.environment
        cores = f"{found['cores']} cores" if found.get("cores") else ""
        return ", ".join(filter(None, [found.get("processor"), cores, *found.get("gpus", [])]))

    @property
    def seed(self) -> int:
        return self.config["seed"]

    @property
    def workers(self) -> int:
        return self.config.get("workers", 1)

    @property
    def senders(self) -> int:
        """Number of those who compress and send: the nodes, or without nodes the workers."""
        return self.config.get("nodes") or self.workers

    @property
    def compressor(self) -> str:
        """The method's name, as on the command line."""
        return self.identity.method.compressor

    @property
    def subject(self) -> str:
        """Model and data, or the name that the user gave the run."""
        return subject_of(self.config)

    @property
    def method(self) -> str:
        """The method with its settings, for a row of a table."""
        return self.identity.method.label

    @property
    def setting(self) -> Settings:
        """All settings except method and seed; comparable runs have the same."""
        return self.identity.setting

    def curve(self, metric: str) -> pd.Series:
        """A metric by step, at the recorded steps; may be empty.

        If a step has two records, as after a resume from a checkpoint, the last one is used.
        """
        if metric not in self.records:
            return pd.Series(dtype=float, name=metric, index=pd.Index([], dtype="int64", name="step"))
        values = self.records[metric].to_numpy()
        kept = pd.notna(values)
        steps = pd.Index(self.records["step"].to_numpy()[kept], name="step")
        curve = pd.Series(values[kept], index=steps, name=metric)
        return curve if steps.is_unique else curve[~curve.index.duplicated(keep="last")]
