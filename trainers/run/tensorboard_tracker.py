"""Tracker of TensorBoard: event files in the run folder, with hyperparameters."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.files.plain import Config, Record
from trainers.run.attempts import Attempts
from trainers.run.described import layers_of, numbers_of, settings_of

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"  # in a run folder
_FLUSH_SECONDS = 10


class TensorBoard:
    """Event files of one run, with the names of metrics.jsonl. They are created at the first record.

    With ``continues`` (the run continues from a checkpoint), records of an earlier part for steps after the
    checkpoint are hidden; without event files of such a part, the ``earlier`` lines of metrics.jsonl are
    written first. A failure is printed once, and the training continues.
    """

    def __init__(
        self,
        folder: Path,
        config: Config,
        facts: Mapping[str, object],
        *,
        continues: bool = False,
        earlier: bytes = b"",
    ) -> None:
        self.folder = folder / FOLDER
        self.earlier = b"" if self.folder.is_dir() else earlier
        self.config, self.facts, self.continues = config, facts, continues
        self.writer: SummaryWriter | None = None
        self.attempt = Attempts("TensorBoard")
        self._step = 0  # of the last record
        self._seen: set[str] = set()  # names of recorded metrics

    @property
    def sync_command(self) -> None:
        """None: nothing is uploaded."""
        return None

    def log(self, record: Record) -> None:
        def log() -> None:
            self._step = int(record["step"])
            self._add(self._open(), record)

        self.attempt(log)

    def _add(self, writer: "SummaryWriter", record: Record) -> None:
        for name in record.keys() - {"step"}:
            writer.add_scalar(name, record[name], int(record["step"]))
        self._seen |= record.keys()

    def fail(self, reason: str) -> None:
        self.attempt(lambda: self._open().add_text("failure", reason, self._step))

    def finish(self, summary: Mapping[str, object] | None) -> None:
        def finish() -> None:
            writer = self.writer
            if writer is None:
                return
            columns, rows = layers_of(summary or {})
            if rows:
                writer.add_text("layers", _table(columns, rows), self._step)
            if summary is not None:
                self._add_hyperparameters(writer, numbers_of(summary))
            writer.close()

        self.attempt(finish)

    def _open(self) -> "SummaryWriter":
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # 0 hides all earlier files in the folder; None, if no record came before a failure, hides nothing
            purge_step = (self._step or None) if self.continues else 0
            self.writer = SummaryWriter(self.folder, purge_step=purge_step, flush_secs=_FLUSH_SECONDS)
            threading.excepthook = _print_unless_writer
            command = self.facts.get("command")
            if command:
                self.writer.add_text("command", f"`{command}`")
            for record in map(json.loads, self.earlier.splitlines()):
                self._add(self.writer, record)
            self.earlier = b""
        return self.writer

    def _add_hyperparameters(self, writer: "SummaryWriter", metrics: Mapping[str, float]) -> None:
        """Add the hyperparameters to the run's own file; ``add_hparams`` would create another run."""
        from torch.utils.tensorboard.summary import hparams

        events = hparams(settings_of(self.config, self.facts), dict(metrics))
        for event in events:
            writer._get_file_writer().add_summary(event)
        for name in metrics.keys() - self._seen:
            writer.add_scalar(name, metrics[name], self._step)


def _print_unless_writer(failure: threading.ExceptHookArgs) -> None:
    """Print the traceback of a thread's failure, unless the thread is TensorBoard's.

    The next call of the writer raises the same error, such as a full disk, and ``Attempts`` prints it.
    """
    if not type(failure.thread).__module__.startswith("tensorboard."):
        threading.__excepthook__(failure)


def _table(columns: list[Any], rows: list[Any]) -> str:
    """A table in Markdown, which TensorBoard renders."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
