"""Standard streams whose reader ends, that are closed at the start, or that write to a full disk."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT

SCRIPT = """
from trainers.launch.streams import keep_streams
keep_streams()
import sys
with open("/dev/null") as opened:
    assert opened.fileno() > 2
for number in range(3):
    print(number, flush=True)
print(3)
print("end", file=sys.stderr)
"""


def pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
FAILED = "standard output failed, the command continues: {}\nend\n"


@pytest.mark.parametrize(
    ("out", "error", "said"),
    [
        (None, None, "end\n"),
        (pipe_without_reader, None, FAILED.format("Broken pipe")),
        pytest.param(full_disk, None, FAILED.format("No space left on device"), marks=NEEDS_FULL),
        (pipe_without_reader, pipe_without_reader, None),
    ],
)
def test_a_stream_that_fails_is_told_of_once(out: Any, error: Any, said: str | None) -> None:
    streams = [subprocess.PIPE if make is None else make() for make in (out, error)]
    words = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(words, cwd=ROOT, text=True, check=False, stdout=streams[0], stderr=streams[1])
    assert (result.returncode, result.stderr) == (0, said)
    assert result.stdout == ("0\n1\n2\n3\n" if out is None else None)


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_from_the_start(closed: str) -> None:
    words = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, SCRIPT]
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == 0
