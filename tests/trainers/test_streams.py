"""Standard streams whose reader ends, that are closed at the start, or that write to a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT

FULL = Path("/dev/full")
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


def run(**streams: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, text=True, check=False, **streams)


def pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_what_can_be_printed_is() -> None:
    result = run(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n1\n2\n3\n", "end\n")


def test_a_reader_that_leaves_is_told_of_once() -> None:
    result = run(stdout=pipe_without_reader(), stderr=subprocess.PIPE)
    assert result.returncode == 0
    assert result.stderr == "standard output failed, the command continues: Broken pipe\nend\n"


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
def test_a_full_disk_is_told_of_once() -> None:
    with FULL.open("w") as full:
        result = run(stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 0
    assert result.stderr == "standard output failed, the command continues: No space left on device\nend\n"


def test_no_reader_at_all() -> None:
    assert run(stdout=pipe_without_reader(), stderr=pipe_without_reader()).returncode == 0


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_from_the_start(closed: str) -> None:
    words = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, SCRIPT]
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == 0
