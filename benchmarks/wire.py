"""Whether the bytes that the ledger counts are the bytes that the network carries.

    python benchmarks/wire.py [--processes 2 4] [--scope layer|global] [--steps 5]
        [--indices plain|auto|bitmap|rice] [--values fp32|bf16|fp16|int8]

Prints per scope and method, one worker per process, bytes per worker and step: the ledger's, by kind;
what the collectives must make of them (a gather sends every payload to P - 1 others, a ring all-reduce
moves 2 (P - 1) / P of it); and what the operating system counted on the interface, with the difference
in percent, once as it is and once less the messages' headers. Headers are calibrated before, in the
same run: per call, by collectives that carry next to nothing, and per byte, by a dense all-reduce.

The processes run in a network namespace of their own, so that its loopback interface carries nothing
else. That needs Linux and the right to make one (root, or user namespaces). Each step has new normal
gradients and residuals of zero. The barriers around a window of steps are measured by empty windows and
subtracted. With --indices or --values messages are coded, of the methods that have some.
"""

import argparse
import fcntl
import math
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from collectives import DENSE, TINY, TINY_CALLS, count_calls, tiny_calls, traffic
from compress import Case, Reduction, cases, gradients, resnet18_layout

from compressors.wire import INDICES, VALUES, Wire
from trainers.communicator import KINDS, Communicator
from trainers.layout import SCOPES
from trainers.process_group import process_group

NAMESPACES = (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"])
QUIET_SECONDS = 0.15  # longer than TCP delays an acknowledgement
EMPTY_WINDOWS, DENSE_CALLS = 5, 5
TOLERANCE = 5.0  # percent
HEAD = "| method | scope | " + " | ".join(KINDS) + " | ledger | expected | interface | % | % less headers |"


def enter_namespace() -> int:
    """Run this command again where no one else uses the network; its exit status."""
    for prefix in NAMESPACES:
        try:
            subprocess.run([*prefix, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        command = [*prefix, sys.executable, __file__, "--inside", *sys.argv[1:]]
        quiet = os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # 127.0.0.1 has no name in there
        return subprocess.run(command, env=quiet, check=False).returncode
    print(
        "error: unshare --net gives no network namespace: be root, or allow user namespaces", file=sys.stderr
    )
    return 1


def bring_up_loopback() -> None:
    """``ip link set lo up``, which gives it 127.0.0.1 as well."""
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, get_flags, struct.pack("16sh14x", b"lo", 0))
        _, flags = struct.unpack("16sh14x", answer)
        fcntl.ioctl(control, set_flags, struct.pack("16sh14x", b"lo", flags | up))


def bytes_on_interface() -> int:
    """Bytes that lo has transmitted, link-layer headers included.

    From /proc, which follows the process into its namespace; /sys/class/net shows the namespace that
    it was mounted in.
    """
    lines = Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines()
    columns = next(line.split(":")[1].split() for line in lines if line.strip().startswith("lo:"))
    return int(columns[8])


def window(work: Callable[[], object]) -> int:
    """Bytes on the interface while all processes run ``work``, two barriers included.

    The counter is read while every process sleeps. Zero on all processes but the first.
    """
    readings = []
    for step in (lambda: None, work):
        dist.barrier()
        step()
        dist.barrier()
        time.sleep(QUIET_SECONDS)
        readings.append(bytes_on_interface() if dist.get_rank() == 0 else 0)
        time.sleep(QUIET_SECONDS)
    return readings[1] - readings[0]


class Calibration:
    """What is no payload: the barriers of a window, and the headers around messages."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.empty = [window(lambda: None) for _ in range(EMPTY_WINDOWS)]
        dense = torch.zeros(DENSE)
        self.bytes_per_call = {
            name: self.bytes_per_process(repeat(call, TINY_CALLS)) / TINY_CALLS
            - traffic(name, TINY * dense.itemsize, processes)
            for name, call in tiny_calls(
                Communicator(processes, process=dist.get_rank(), processes=processes)
            ).items()
        }
        sent = self.bytes_per_process(repeat(lambda: dist.all_reduce(dense), DENSE_CALLS)) / DENSE_CALLS
        self.share = sent / traffic("all_reduce", dense.nbytes, processes) - 1

    def bytes_per_process(self, work: Callable[[], object]) -> float:
        """What a process sends during ``work``, less the barriers."""
        return (window(work) - statistics.median(self.empty)) / self.processes

    def with_headers(self, payload: float, calls: dict[str, float]) -> float:
        """What a process sends for ``payload`` bytes in so many calls."""
        return payload * (1 + self.share) + sum(n * self.bytes_per_call[name] for name, n in calls.items())

    def __str__(self) -> str:
        per_call = ", ".join(f"{name} {number:,.0f}" for name, number in self.bytes_per_call.items())
        return (
            f"an empty window carries {statistics.median(self.empty):,.0f} bytes in all "
            f"({min(self.empty):,} to {max(self.empty):,}), subtracted below; header bytes per process and "
            f"call: {per_call}; and {self.share:.3%} of the payload, from a dense all-reduce"
        )


def repeat(call: Callable[[], object], times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            call()

    return work


def measure(process: int, processes: int, arguments: argparse.Namespace) -> None:
    """One process; the first one prints."""
    os.environ |= {
        "RANK": str(process),
        "WORLD_SIZE": str(processes),
        "LOCAL_RANK": str(process),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(29500 + processes),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    torch.set_num_threads(1)
    with process_group(torch.device("cpu")):
        calibration = Calibration(processes)
        first = process == 0
        if first:
            print(f"\n{processes} processes with one worker each: {calibration}\n")
            print(HEAD)
            print("|---" * 2 + "|---:" * (HEAD.count("|") - 3) + "|")
        calls = count_calls()
        wire = Wire(indices=arguments.indices, values=arguments.values)
        failures = []
        for scope in [arguments.scope] if arguments.scope else reversed(SCOPES):
            for case in cases():
                if not fits(case, wire):
                    continue
                line, left = measure_case(case, scope, process, calibration, calls, arguments)
                if first:
                    print(line, flush=True)
                if not abs(left) <= TOLERANCE:
                    failures.append(f"{case} in scope {scope} ({left:+.1f} %)")
        if first:
            verdict = "; ".join(failures) or "none"
            print(f"\nfurther than {TOLERANCE:g} % from the ledger, headers taken into account: {verdict}")


def fits(case: Case, wire: Wire) -> bool:
    """Whether the method sends what this wire codes."""
    try:
        case.reducer(0.5, DENSE, wire)
    except ValueError:
        return False
    return True


def measure_case(
    case: Case,
    scope: str,
    process: int,
    calibration: Calibration,
    calls: Counter[str],
    arguments: argparse.Namespace,
) -> tuple[str, float]:
    """A line of the table, and the percent by which the interface differs, less headers.

    NaN for a method that mixes collectives with different traffic: the ledger does not split its
    bytes by collective.
    """
    processes, steps = calibration.processes, arguments.steps
    flat, segments = gradients(resnet18_layout(scope), 1, DENSE)
    communicator = Communicator(processes, process=process, processes=processes)
    wire = Wire(indices=arguments.indices, values=arguments.values)
    reduction = Reduction(case.reducer(arguments.density, DENSE, wire), segments, communicator)
    stream = torch.Generator().manual_seed(process)

    def step() -> None:
        flat.normal_(generator=stream)
        reduction.forget()
        reduction()

    calls.clear()
    interface = calibration.bytes_per_process(repeat(step, steps)) / steps
    per_step = {name: number / steps for name, number in calls.items()}
    charges = torch.from_numpy(communicator.take_charges())
    kinds = (communicator.collect(charges).double().mean(0) / steps).tolist()
    ledger = sum(kinds)
    leaving = {traffic(name, ledger, processes) for name in per_step}
    expected = leaving.pop() if len(leaving) == 1 else math.nan
    difference = 100 * (interface / expected - 1)
    left = 100 * (interface / calibration.with_headers(expected, per_step) - 1)
    columns = [str(case), scope, *(f"{number:,.0f}" for number in (*kinds, ledger, expected, interface))]
    return "| " + " | ".join([*columns, f"{difference:+.2f}", f"{left:+.2f}"]) + " |", left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--scope", choices=SCOPES, help="default: both")
    parser.add_argument("--steps", type=int, default=5, help="of reduce() per window")
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--indices", choices=INDICES, default="plain")
    parser.add_argument("--values", choices=VALUES, default="fp32")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        sys.exit(enter_namespace())
    bring_up_loopback()
    print(
        f"torch {torch.__version__}, gloo over loopback; ResNet-18, {DENSE:,} fp32 elements, "
        f"density {arguments.density:g}, {arguments.steps} steps per window, {arguments.indices} indices, "
        f"{arguments.values} values; bytes per worker and step"
    )
    for processes in arguments.processes:
        mp.spawn(measure, (processes, arguments), nprocs=processes)


if __name__ == "__main__":
    main()
