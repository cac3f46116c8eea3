"""One process on each host of a benchmark, controlled by lines of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from benchmarks import netns
from benchmarks.pages import Refused

HERE = Path(__file__).parent
PORT = 29400
QUIET_SECONDS = 0.2  # longer than TCP delays an acknowledgement
ENDED = "a host's process ended; its error is printed above"


def core_of(host: int) -> int:
    """The core of a host's process; hosts share cores if there are fewer."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[host % len(cores)]


def environment(hosts: netns.Hosts, host: int) -> dict[str, str]:
    """Environment variables by which a process on a host finds the processes on the other hosts."""
    return os.environ | {
        "RANK": str(host),
        "WORLD_SIZE": str(hosts.count),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": hosts.address(0),
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": netns.INTERFACE,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(HERE.parent),
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # these addresses have no host names
    }


class Fleet:
    """The processes on the hosts, for the controlling process; ``program`` is a file of this folder."""

    def __init__(self, hosts: netns.Hosts, program: str) -> None:
        self.hosts = hosts
        self.command = [sys.executable, str(HERE / program)]
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
        for host in range(self.hosts.count):
            command = self.hosts.command(host, self.command)
            self.processes.append(subprocess.Popen(command, env=environment(self.hosts, host), **pipes))
        self.receive()

    def send(self, **message: Any) -> None:
        """Send a message to every host. Raises ``Refused`` if a host's process has ended."""
        try:
            for process in self.processes:
                print(json.dumps(message), file=process.stdin, flush=True)
        except BrokenPipeError as error:
            raise Refused(ENDED) from error

    def receive(self) -> list[dict[str, Any]]:
        """The next message of each host. Raises ``Refused`` if a host's process has ended."""
        lines = [process.stdout.readline() for process in self.processes]
        if not all(lines):
            raise Refused(ENDED)
        return [json.loads(line) for line in lines]

    def stop(self) -> None:
        for process in self.processes:
            with suppress(BrokenPipeError):  # a dead process has not read its last line
                process.stdin.close()  # the processes end when their input is closed
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def fleet(count: int, program: str) -> Iterator[Fleet]:
    """Processes on ``count`` hosts; both are removed at the end."""
    with netns.hosts(count) as hosts:
        made = Fleet(hosts, program)
        try:
            made.start()
            yield made
        finally:
            made.stop()


class Channel:
    """A host's messages to and from the controlling process."""

    def __init__(self, answers: TextIO) -> None:
        self.answers = answers

    def send(self, **message: Any) -> None:
        print(json.dumps(message), file=self.answers, flush=True)

    def receive(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            sys.exit(1)  # the controlling process has ended
        return json.loads(line)


def open_channel() -> Channel:
    """Open this process's channel, once; all other output then goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return Channel(answers)
