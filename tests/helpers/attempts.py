"""A call in a forked process with limits on its memory, time and disk, and its outcome."""

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MEMORY_BYTES = 3 * 2**30  # in addition to the memory of the process
DISK_BYTES = 2**30  # largest size of a file that the call writes
PATIENCE_SECONDS = 180  # wall time, which includes other processes' work


class Attempt(NamedTuple):
    """``kind``: loaded, refused (an exception in ``refusals``), failed (any other exception) or killed."""

    kind: str
    said: str
    seconds: float  # CPU seconds
    megabytes: float  # peak of the additional memory


def attempt(call: Callable[[], object], refusals: tuple[type[Exception], ...]) -> Attempt:
    """The outcome of ``call`` in a forked process with the same stdout and stderr."""
    reader, writer = os.pipe()
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _perform(call, refusals, writer)
    os.close(writer)
    answer = b""
    try:
        while True:
            left = PATIENCE_SECONDS - (time.monotonic() - start)
            ready, _, _ = select.select([reader], [], [], max(0, left))
            block = os.read(reader, 2**16) if ready else b""
            answer += block
            if not block:
                break
    finally:
        os.close(reader)
        if not answer:
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    seconds = used.ru_utime + used.ru_stime
    if not answer:
        waited = time.monotonic() - start
        return Attempt("killed", f"wait status {status} after {waited:.0f} s", seconds, float("nan"))
    kind, said, megabytes = json.loads(answer)
    return Attempt(kind, said, seconds, megabytes)


def _perform(call: Callable[[], object], refusals: tuple[type[Exception], ...], writer: int) -> None:
    try:
        before = _status("VmRSS")
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MEMORY_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _reset_peak()
        try:
            call()
            kind, said = "loaded", ""
        except refusals as error:
            kind, said = "refused", str(error)
        except BaseException as error:
            kind, said = "failed", "".join(traceback.format_exception(error, limit=-4))
        answer = json.dumps([kind, said[-5000:], (_status("VmHWM") - before) / 2**20])
        os.write(writer, answer.encode())
    finally:
        sys.stdout.flush()
        os._exit(0)


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
