"""Reading from disk during the training, where one process may fail while the others go on."""

from collections.abc import Callable
from typing import Any

from trainers.communicator import Communicator


class UnreadableDataError(OSError):
    """A file that a batch needs cannot be read."""


def read_together(communicator: Communicator, data: Any, read: Callable[[], Any]) -> Any:
    """What ``read`` returns; if it fails in one process, every process raises the same error.

    ``data``, a loader or dataset, says by ``reads_files = True`` that it can fail at all; only then do the
    processes agree, which takes a collective. Raises ``UnreadableDataError`` for an ``OSError``.
    """
    if not getattr(data, "reads_files", False):
        return read()
    found, problem = None, ""
    try:
        found = read()
    except OSError as error:
        problem = str(error) or type(error).__name__
    problem = communicator.first_text(problem)
    if problem:
        raise UnreadableDataError(problem)
    return found
