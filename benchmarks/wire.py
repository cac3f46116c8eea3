"""Link bytes charged by the communicator, compared with the counters of the hosts' network interfaces.

    sudo .venv/bin/python benchmarks/wire.py [--hosts 2 4] [--scopes layer global] [--methods NAME ...]
        [--to FILE.md]

Every host is a network namespace on this machine with one process and one worker, which reduces gradients of
ResNet-18's size with every method: by both values of trainer.reduction, by gathers of equal and of different
lengths, and in encoded messages. It needs Linux, root and iproute2, and removes its namespaces. It prints,
and with --to writes, ``Communicator.take_link_bytes`` and the counters of each host's interface per step,
sent and received. The exit status is 1 if they differ by more than 2 % after headers are subtracted. Headers
are measured too: those of Ethernet, IP and TCP by the interface's count of packets, and gloo's by almost
empty collectives.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.compress import Case, cases
from benchmarks.fleet import QUIET_SECONDS, Fleet, fleet
from benchmarks.netns import require_namespaces
from benchmarks.pages import Refused, columns, head, row, write
from benchmarks.wire_host import COLLECTIVES, DENSE, TINY_CALLS
from compressors.build import PLAIN
from compressors.encoding.settings import Encoding
from trainers.settings import ALL_REDUCE, WORKER_ORDER
from trainers.step.layout import SCOPES

HEADER_BYTES = 66  # header bytes of a packet: Ethernet 14, IP 20, TCP 20 and its timestamps 12
TOLERANCE = 2.0  # per cent
CODED = (Encoding(indices="auto", values="bf16"), Encoding(indices="auto", values="int8"))
COLUMNS = ("link", "interface", "%", "less headers, %")
HEAD = ["method", "wire", "scope", "reduction", "handed over"]
HEAD += [f"{way}: {column}" for way in ("sent", "received") for column in COLUMNS]
TEXT = (
    "Bytes per worker and step, mean over hosts; ResNet-18, {elements:,} fp32 elements, density {density:g}, "
    "{steps} steps per line, gloo, one worker per host. Link: what the communicator charges. Interface: what "
    "the host's eth0 counted. Less headers: without {header} bytes for each packet that eth0 counted and "
    "without what gloo adds to a call; of the host that is furthest off. With `worker_order` hosts average "
    "slices that are not all as wide, and every worker is charged the mean: those lines compare the mean "
    "over hosts. Methods without a reduction are gathered."
)


class Job(NamedTuple):
    """A line of the table. ``reduction`` is empty for a gathered method."""

    case: Case
    scope: str
    reduction: str
    wire: Encoding

    def message(self, density: float, steps: int) -> dict[str, Any]:
        return {
            "work": "reduce",
            "method": self.case.name,
            "settings": self.case.settings,
            "scope": self.scope,
            "reduction": self.reduction or ALL_REDUCE,
            "wire": asdict(self.wire),
            "density": density,
            "steps": steps,
        }

    def __str__(self) -> str:
        words = [str(self.case), self.scope, self.reduction]
        words += [] if self.wire == PLAIN else [_wire_text(self.wire)]
        return ", ".join(word for word in words if word)


class Window(NamedTuple):
    """Traffic of H hosts; the last axis is (sent, received)."""

    handed_over: float  # bytes, mean over hosts
    link: np.ndarray  # [H, 2] bytes that the communicator charged
    carried: np.ndarray  # [H, 2] bytes that the interface counted
    packets: np.ndarray  # [H, 2]
    calls: dict[str, float]  # calls of collectives, mean over hosts

    @property
    def payload(self) -> np.ndarray:
        """Bytes of TCP payload, [H, 2]."""
        return self.carried - HEADER_BYTES * self.packets


def jobs(scopes: list[str], methods: list[str] | None) -> Iterator[Job]:
    """All jobs to measure."""
    for scope in scopes:
        for case in cases(methods):
            coded = [wire for wire in CODED if _fits(case, wire)]
            averaged = case.reducer(0.1, 1000).traits.linear
            for reduction in [WORKER_ORDER, ALL_REDUCE] if averaged else [""]:
                yield Job(case, scope, reduction, PLAIN)
            for wire in coded:
                yield Job(case, scope, "", wire)


def measure(hosts: Fleet, message: dict[str, Any]) -> Window:
    """Run a job on all hosts; returns its traffic."""
    before = _counters(hosts)
    hosts.send(**message)
    answers = hosts.receive()
    time.sleep(QUIET_SECONDS)
    sent, sent_packets, received, received_packets = (_counters(hosts) - before).T
    return Window(
        float(np.mean([answer["handed_over"] for answer in answers])),
        np.array([[answer["sent"], answer["received"]] for answer in answers]),
        np.stack([sent, received], 1),
        np.stack([sent_packets, received_packets], 1),
        {name: np.mean([answer["calls"].get(name, 0) for answer in answers]) for name in COLLECTIVES},
    )


def preambles(windows: dict[str, Window]) -> dict[str, float]:
    """Bytes that gloo adds to a call of each collective, mean of those sent and received by a host."""
    return {
        name: float(np.mean(window.payload - window.link)) / window.calls[name]
        for name, window in windows.items()
        if window.calls[name]  # two hosts do not all-reduce: they exchange rows
    }


def difference_percent(window: Window, per_call: dict[str, float], *, of_mean: bool) -> np.ndarray:
    """Difference in per cent, [2], of the interfaces' bytes without headers from the charged link bytes.

    It is that of the host with the largest difference, or with ``of_mean`` that of the mean over hosts."""
    headers = sum(count * per_call[name] for name, count in window.calls.items() if count)
    counted, charged = window.payload - headers, window.link
    if of_mean:
        counted, charged = counted.mean(0, keepdims=True), charged.mean(0, keepdims=True)
    percent = 100 * (counted / charged - 1)
    return percent[np.abs(percent).argmax(0), [0, 1]]


def cells_of(job: Job, window: Window, percent: np.ndarray, steps: int) -> list[str]:
    """A row of the table."""
    handed_over = f"{window.handed_over / steps:,.0f}"
    cells = [str(job.case), _wire_text(job.wire), job.scope, job.reduction, handed_over]
    for link, carried, left in zip(window.link.mean(0), window.carried.mean(0), percent, strict=True):
        cells += [f"{link / steps:,.0f}", f"{carried / steps:,.0f}"]
        cells += [_percent(100 * (carried / link - 1)), _percent(left)]
    return cells


def measure_hosts(count: int, options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The rows for ``count`` hosts, and the jobs whose difference exceeds the tolerance."""
    with fleet(count, "wire_host.py") as hosts:
        measure(hosts, {"work": COLLECTIVES[0]})  # opens connections
        empty = measure(hosts, {"work": "nothing"})
        per_call = preambles({name: measure(hosts, {"work": name}) for name in COLLECTIVES})
        said = ", ".join(f"{number:,.0f} to an {name}" for name, number in per_call.items())
        lines = [
            f"## {count} hosts",
            "",
            f"gloo adds {said}: bytes that a host sends in a call, of {TINY_CALLS} with next to nothing. "
            f"While hosts did nothing, an interface carried at most {empty.carried.max():,.0f} bytes.",
            "",
            columns(*HEAD, text=4),
        ]
        beyond = []
        for job in jobs(options.scopes, options.methods):
            window = measure(hosts, job.message(options.density, options.steps))
            percent = difference_percent(window, per_call, of_mean=job.reduction == WORKER_ORDER)
            lines.append(row(*cells_of(job, window, percent, options.steps)))
            if not np.abs(percent).max() <= TOLERANCE:
                beyond.append(f"{job} ({percent[0]:+.1f} % sent, {percent[1]:+.1f} % received)")
            print(f"{count} hosts: {job}, {percent.round(2).tolist()} %", file=sys.stderr, flush=True)
    verdict = "; ".join(beyond) or "none"
    return [*lines, "", f"Further than {TOLERANCE:g} % off, less headers: {verdict}.", ""], beyond


def require_measurable(options: argparse.Namespace) -> None:
    """Raise ``Refused`` for options with nothing to measure."""
    for name, given, least in (("hosts", min(options.hosts), 2), ("steps", options.steps, 1)):
        if given < least:
            raise Refused(f"--{name} must be at least {least}, got {given}")
    if not 0 < options.density <= 1:
        raise Refused(f"--density must be in (0, 1], got {options.density:g}")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--scopes", nargs="+", choices=SCOPES, default=list(SCOPES))
    parser.add_argument("--methods", nargs="+", choices=sorted({case.name for case in cases()}))
    parser.add_argument("--steps", type=int, default=2, help="of a line")
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--to", type=Path, help="a page to write")
    options = parser.parse_args(words)
    beyond = []

    def page() -> list[str]:
        require_measurable(options)
        require_namespaces("benchmarks/wire.py")
        about = TEXT.format(elements=DENSE, density=options.density, steps=options.steps, header=HEADER_BYTES)
        lines = [about, ""]
        for count in options.hosts:
            of_count, further = measure_hosts(count, options)
            lines += of_count
            beyond.extend(further)
        return lines

    top = head("Whether link bytes are the network's", "sudo .venv/bin/python benchmarks/wire.py", words)
    return write(top, page, options.to) or int(bool(beyond))


def _fits(case: Case, wire: Encoding) -> bool:
    """Whether this encoding applies to the method's payload."""
    try:
        case.reducer(0.5, DENSE, wire)
    except ValueError:
        return False
    return True


def _percent(number: float) -> str:
    return f"{round(number, 2) + 0.0:+.2f}"  # avoids -0.00


def _wire_text(wire: Encoding) -> str:
    return f"{wire.indices}, {wire.values}"


def _counters(hosts: Fleet) -> np.ndarray:
    """Counters of every host's interface, [H, 4]."""
    return np.array([hosts.hosts.counters(host) for host in range(hosts.hosts.count)])


if __name__ == "__main__":
    sys.exit(main())
