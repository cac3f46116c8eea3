"""Tracker of Trackio: a project in Trackio's own folder, which `trackio show` serves."""

from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

from trainers.files.plain import Config, Record
from trainers.run.attempts import Attempts
from trainers.run.described import layers_of, numbers_of, settings_of

if TYPE_CHECKING:
    import trackio

PROJECT = "total-error"


class Trackio:
    """One run of Trackio, with the names of metrics.jsonl. It is created at the first record.

    With ``continues`` (the run continues from a checkpoint), it continues an earlier run of Trackio. A
    failure is printed once, and the training continues.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        facts: Mapping[str, object],
        *,
        project: str | None = None,
        continues: bool = False,
    ) -> None:
        self.name, self.config, self.facts, self.continues = name, config, facts, continues
        self.project = project or PROJECT
        self.run: trackio.Run | None = None
        self.attempt = Attempts("Trackio")
        self._step = 0  # of the last record
        self._seen: set[str] = set()  # names of recorded metrics

    @property
    def sync_command(self) -> None:
        """None: nothing is uploaded."""
        return None

    def log(self, record: Record) -> None:
        def log() -> None:
            self._step = int(record["step"])
            self._seen |= record.keys()
            self._open().log({key: v for key, v in record.items() if key != "step"}, step=self._step)

        self.attempt(log)

    def fail(self, reason: str) -> None:
        def fail() -> None:
            import trackio

            self._open().alert("Training failed", reason, level=trackio.AlertLevel.ERROR)

        self.attempt(fail)

    def finish(self, summary: Mapping[str, object] | None) -> None:
        def finish() -> None:
            run = self.run
            if run is None:
                return
            import trackio

            totals = numbers_of(summary or {})
            last: dict[str, Any] = {key: totals[key] for key in totals.keys() - self._seen}
            columns, rows = layers_of(summary or {})
            if rows:
                last["layers"] = trackio.Table(columns=columns, data=rows)
            with redirect_stdout(StringIO()):  # Trackio prints messages
                if last:
                    run.log(last, step=self._step)
                run.finish()

        self.attempt(finish)

    def _open(self) -> "trackio.Run":
        if self.run is None:
            import trackio

            with redirect_stdout(StringIO()):
                self.run = trackio.init(
                    project=self.project,
                    name=self.name,
                    group=str(self.facts["group"]),
                    config=settings_of(self.config, self.facts),
                    resume="allow" if self.continues else "never",
                    embed=False,
                )
        return self.run
