"""Robust standard streams: a closed reader or a full disk does not end a training."""

import io
import os
import sys
from contextlib import suppress
from typing import Any


def keep_streams() -> None:
    """Lose what is printed to a stream that cannot take it, and say so once, on standard error.

    A stream that was closed from the start leads nowhere: a file opened later must not take its place.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        encoding, errors = "utf-8", "backslashreplace"
        if stream is not None:
            with suppress(OSError):
                stream.flush()
            encoding, errors = stream.encoding, stream.errors
        buffered = io.BufferedWriter(_Lasting(number, "wb", closefd=False))
        by_line = number == 2 or os.isatty(number)
        setattr(sys, name, io.TextIOWrapper(buffered, encoding, errors, line_buffering=by_line))


class _Lasting(io.FileIO):
    """A stream that leads nowhere from the first write on that fails."""

    def write(self, data: Any) -> int:  # bytes of any kind: Python 3.11 has no name for a buffer
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self.fileno() == 1:
                print(f"standard output is lost, the command goes on: {error.strerror}", file=sys.stderr)
            return memoryview(data).nbytes
