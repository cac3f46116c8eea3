"""Agreement of processes: on errors, which all raise together, and on who begins."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from trainers.comm.communicator import Communicator

Found = TypeVar("Found")
Errors = type[Exception] | tuple[type[Exception], ...]


def first_text(communicator: Communicator, text: str) -> str:
    """The text of the first process that has one, or an empty one; not charged."""
    if communicator.world_size == 1:
        return text
    encoded = list(text.encode())
    longest = communicator.all_reduce_max(len(encoded))
    if longest == 0:
        return ""
    padded = torch.tensor([encoded + [0] * (longest - len(encoded))], dtype=torch.uint8)
    rows = communicator.collect(padded).tolist()
    texts = (bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows)
    return next(text for text in texts if text)


def run_together(
    communicator: Communicator, work: Callable[[], Found], errors: Errors, raised: type[Exception]
) -> Found:
    """The result of ``work``; if it raises one of ``errors`` in one process, all raise ``raised``."""
    problem = ""
    try:
        found = work()
    except errors as error:
        problem = str(error) or type(error).__name__
    problem = first_text(communicator, problem)
    if problem:
        raise raised(problem)
    return found


@contextmanager
def first_process_first(communicator: Communicator) -> Iterator[None]:
    """Context manager: the first process runs the block alone, then the others; for downloads."""
    if communicator.rank > 0:
        communicator.all_reduce_max(0)
    try:
        yield
    finally:  # also if it fails: the others then raise the same error
        if communicator.rank == 0:
            communicator.all_reduce_max(0)
