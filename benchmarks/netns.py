"""Hosts on one machine: network namespaces on a bridge, with links of a chosen rate. Linux, as root.

Every host's ``eth0`` is one end of a pair of virtual interfaces; the other end is a port of a bridge in a
separate namespace. Both ends send through a token bucket (tc-tbf), like a switch. The machine's own namespace
is not changed.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.pages import Refused
from trainers.network_model import rates

PREFIX = "total-error"
INTERFACE = "eth0"
# Bytes that may leave at once, faster than the rate. At 1 Gbit/s this is little more than one packet of 64 kB
# of the kernel. At low rates it is ten frames; with fewer the bucket is full before the kernel wakes up.
BURST_SECONDS, LEAST_BURST = 6e-4, 15_000
QUEUE_SECONDS = 0.1  # packets that wait longer are dropped


def require_namespaces(program: str) -> None:
    """Raise ``Refused`` without root, or without iproute2."""
    if os.geteuid() != 0:
        raise Refused(f"{program} needs root: it makes network namespaces")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise Refused(f"{program} needs {tool}, of iproute2")


def bits_per_second(rate: str) -> float:
    """``100mbit`` as a number, ``unlimited`` as infinity. Raises ``Refused`` for an invalid rate."""
    try:
        return rates.bits_per_second(rate)
    except ValueError as error:
        raise Refused(str(error)) from error


def token_bucket(rate: float) -> list[str]:
    """The arguments of tc for ``rate`` bits per second."""
    burst = max(LEAST_BURST, round(rate * BURST_SECONDS / 8))
    return ["tbf", "rate", f"{rate:.0f}bit", "burst", str(burst), "latency", f"{1e3 * QUEUE_SECONDS:.0f}ms"]


class Counters(NamedTuple):
    """The kernel's counters of an interface; bytes include the headers of the link layer."""

    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int


class Hosts:
    """``count`` hosts; host i has the address ``10.77.0.(i + 1)``."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.names = [f"{PREFIX}-{os.getpid()}-{host}" for host in range(count)]
        self.switch = f"{PREFIX}-{os.getpid()}-switch"

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def command(self, host: int, command: list[str]) -> list[str]:
        """The command that runs ``command`` on a host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def build(self) -> None:
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self.switch, "link", "set", "bridge", "up")
        for host, name in enumerate(self.names):
            port = f"port{host}"
            _ip("netns", "add", name)
            peer = ["peer", "name", port, "netns", self.switch]
            _ip("-n", self.switch, "link", "add", INTERFACE, "netns", name, "type", "veth", *peer)
            _ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _ip("-n", name, "link", "set", interface, "up")

    def counters(self, host: int) -> Counters:
        """The counters of a host's interface since its creation."""
        (said,) = json.loads(_ip("-n", self.names[host], "-j", "-s", "link", "show", "dev", INTERFACE))
        sent, received = said["stats64"]["tx"], said["stats64"]["rx"]
        return Counters(sent["bytes"], sent["packets"], received["bytes"], received["packets"])

    def throttle(self, rate: float) -> None:
        """Limit every link to ``rate`` bits per second in each direction; infinity for no limit."""
        ends = [(name, INTERFACE) for name in self.names]
        ends += [(self.switch, f"port{host}") for host in range(self.count)]
        for namespace, interface in ends:
            if rate == float("inf"):
                _run(["tc", "-n", namespace, "qdisc", "del", "dev", interface, "root"], may_fail=True)
            else:
                root = ["qdisc", "replace", "dev", interface, "root"]
                _run(["tc", "-n", namespace, *root, *token_bucket(rate)])

    def remove(self) -> None:
        for name in (*self.names, self.switch):  # their interfaces are removed with them
            _run(["ip", "netns", "delete", name], may_fail=True)


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """``count`` hosts, removed at the end in all cases; hosts of killed programs are removed too."""
    remove_abandoned()
    made = Hosts(count)
    with sigterm_as_exit():
        try:
            made.build()
            yield made
        finally:
            made.remove()


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise an exception like Ctrl-C, so that the program can clean up."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def remove_abandoned() -> None:
    """Remove the hosts of programs that were killed."""
    for line in _run(["ip", "netns", "list"]).splitlines():
        name = line.split()[0] if line.split() else ""
        process = name.removeprefix(f"{PREFIX}-").split("-")[0]
        if name.startswith(f"{PREFIX}-") and process.isdigit() and not Path("/proc", process).exists():
            _run(["ip", "netns", "delete", name], may_fail=True)


def _ip(*arguments: str) -> str:
    return _run(["ip", *arguments])


def _run(command: list[str], *, may_fail: bool = False) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise Refused(f"{' '.join(command)}: {' '.join(done.stderr.split())}")
    return done.stdout
