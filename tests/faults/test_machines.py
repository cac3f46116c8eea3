"""One run on several machines: equal results, also after the death of a machine.

The machines are network namespaces with throttled links, each with a torchrun.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from benches import namespaces, needs_root
from faults import METHODS, SMALL, uninterrupted
from interrupting import Running, last_step, left_behind
from resuming import assert_same

from benchmarks import netns

pytestmark = [pytest.mark.slow, needs_root]

RATE = 100e6  # bits per second of every link
STEPS = ["trainer.steps=300"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return uninterrupted(tmp_path_factory.mktemp("undisturbed"), *SMALL, METHODS["gathered"], *STEPS)


class Machines:
    """Hosts that each have a torchrun of the same run."""

    def __init__(self, hosts: Any, log: Path, options: Callable[[int], list[str]], stack: ExitStack) -> None:
        self.hosts, self.log, self.options, self.stack = hosts, log, options, stack
        self.running: dict[int, Running] = {}

    def start(self, host: int, again: str = "") -> None:
        """Start torchrun on a host, as a user or a scheduler does."""
        launcher = [sys.executable, "-m", "torch.distributed.run", *self.options(host), "run.py"]
        command = Running(
            *SMALL,
            *METHODS["gathered"].split(),
            *STEPS,
            f"output={self.log.parent / 'out'}",
            log=self.log.with_name(f"host{host}{again}"),
            launcher=self.hosts.command(host, launcher),
            GLOO_SOCKET_IFNAME="eth0",
            TORCH_CPP_LOG_LEVEL="ERROR",  # no warnings about addresses without host names
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",  # otherwise a restarted machine cannot join
        )
        self.running[host] = self.stack.enter_context(command)

    def kill(self, host: int) -> None:
        """Kill all processes of a host, like a power failure."""
        listed = ["ip", "netns", "pids", self.hosts.names[host]]
        for process in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split():
            os.kill(int(process), signal.SIGKILL)
        self.running[host].process.wait()

    def wait(self) -> None:
        for running in self.running.values():
            assert running.wait() == 0, running.said()


@contextmanager
def machines(count: int, folder: Path, options: Callable[[Any, int], list[str]]) -> Iterator[Machines]:
    before = namespaces()
    with netns.hosts(count) as hosts, ExitStack() as stack:
        hosts.throttle(RATE)
        yield Machines(hosts, folder / "log", lambda host: options(hosts, host), stack)
    assert namespaces() == before


def static(hosts: Any, host: int) -> list[str]:
    """Options of the guide's rendezvous, which unpickles nothing."""
    where = [f"--nnodes={hosts.count}", f"--node-rank={host}", f"--nproc-per-node={4 // hosts.count}"]
    return [*where, "--rdzv-backend=static", f"--rdzv-endpoint={hosts.address(0)}:29500"]


def dynamic(hosts: Any, host: int) -> list[str]:
    """Options of a rendezvous that a restarted machine can join."""
    where = [f"--nnodes={hosts.count}", f"--nproc-per-node={4 // hosts.count}", "--max-restarts=3"]
    first = "true" if host == 0 else "false"
    return [
        *where,
        "--rdzv-backend=c10d",
        "--rdzv-id=run",
        f"--rdzv-endpoint={hosts.address(0)}:29500",
        f"--rdzv-conf=is_host={first}",
        f"--local-addr={hosts.address(host)}",
    ]


@pytest.mark.parametrize("count", [2, 4])
def test_machines_train_as_one_process_does(count: int, undisturbed: dict[str, Any], tmp_path: Path) -> None:
    with machines(count, tmp_path, static) as all_of_them:
        for host in range(count):
            all_of_them.start(host)
        all_of_them.wait()
        sent = [all_of_them.hosts.counters(host).sent_bytes for host in range(count)]
    found = left_behind(tmp_path / "out")
    assert_same(found, undisturbed)
    # Each host sends what its own workers send; a worker's link bytes are those to three others
    payload = found["summary"]["comm/link_bytes_sent_total"] / 3 * (4 / count)
    assert min(sent) > payload


@pytest.mark.parametrize("count", [2, 4])
def test_a_run_goes_on_after_a_machine_was_killed_and_came_back(
    count: int, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    with machines(count, tmp_path, dynamic) as all_of_them:
        for host in range(count):
            all_of_them.start(host)
        all_of_them.running[0].until(lambda: last_step(tmp_path / "out") >= 105)
        all_of_them.kill(count - 1)
        all_of_them.start(count - 1, again="-again")
        all_of_them.wait()
    assert "continuing after step" in (tmp_path / "host0.out").read_text()
    assert_same(left_behind(tmp_path / "out"), undisturbed)
