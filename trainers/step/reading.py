"""Reading of files during the training, with errors that all processes raise together."""

from collections.abc import Callable

from data.protocols import reads_files
from trainers.comm.agreement import Found, run_together
from trainers.comm.communicator import Communicator


class UnreadableDataError(OSError):
    """A file that a batch needs cannot be read."""


def read_together(communicator: Communicator, data: object, read: Callable[[], Found]) -> Found:
    """The result of ``read``; if it fails in one process, every process raises the same error.

    Only a loader or dataset ``data`` with ``reads_files = True`` can fail, so only then do the processes
    agree in a collective. Raises ``UnreadableDataError`` for an ``OSError``.
    """
    return agree(communicator, read) if reads_files(data) else read()


def agree(communicator: Communicator, read: Callable[[], Found]) -> Found:
    """``read_together`` for data whose reads can fail."""
    return run_together(communicator, read, OSError, UnreadableDataError)
