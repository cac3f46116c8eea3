"""Robust standard streams: a closed reader or a full disk does not end a training."""

import io
import os
import sys
from contextlib import suppress
from typing import Any


def keep_streams() -> None:
    """Make failed writes to standard output and error harmless.

    After the first failure a stream discards its text; for standard output, one line on standard error says
    so. A stream that is closed at the start is opened on the null device, because a file that is opened
    later would get its descriptor number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
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
    """A stream that discards its text after the first write that fails."""

    def write(self, data: Any) -> int:  # a buffer, for which Python 3.11 has no type
        try:
            return super().write(data)
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            if self.fileno() == 1:
                print(f"standard output failed, the command continues: {error.strerror}", file=sys.stderr)
            return memoryview(data).nbytes
