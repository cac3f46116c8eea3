"""Comparison of collectives between two hosts over throttled links: the reason for gathers by pairs.

    sudo python benchmarks/exchanges.py [--rates 500mbit 1gbit] [--entries 3350000] [--rounds 5]

Every host is a network namespace on this machine with one process and one thread; links are throttled by
tc-tbf. Prints median times over gloo of torch's all-gathers, its all-to-all, the communicator's exchange, and
an all-reduce with as many bytes leaving a host, all compared with the time that the link needs.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import netns
import torch
import torch.distributed as dist
from fleet import environment

from trainers.comm.communicator import Communicator
from trainers.launch.process_group import process_group

HOSTS = 2


def ways(entries: int) -> dict[str, Callable[[], object]]:
    """The timed collectives by name, each with ``entries`` fp32 numbers."""
    own = torch.ones(1, entries)
    communicator = Communicator(HOSTS, rank=dist.get_rank(), world_size=HOSTS)
    everyones = torch.empty(HOSTS, entries)
    copies = own.repeat(HOSTS, 1)
    return {
        "all_gather": lambda: dist.all_gather(list(everyones.unbind()), own[0]),
        "all_to_all_single": lambda: dist.all_to_all_single(everyones, copies),
        "all_reduce": lambda: dist.all_reduce(own),
        "the communicator's": lambda: communicator.collect(own),
    }


def host(rate: str, entries: int, rounds: int) -> None:
    """The process of one host; the first one prints a line per collective."""
    torch.set_num_threads(1)
    with process_group(torch.device("cpu"), timeout_seconds=600):
        taken: dict[str, list[float]] = {name: [] for name in ways(entries)}
        for _ in range(rounds + 1):  # the first one opens connections
            for name, work in ways(entries).items():
                dist.barrier()
                started = time.perf_counter()
                work()
                taken[name].append(time.perf_counter() - started)
        if dist.get_rank() == 0:
            link = 1e3 * 32 * entries / netns.bits_per_second(rate)
            for name, seconds in taken.items():
                median = 1e3 * statistics.median(seconds[1:])
                print(f"| {rate} | {name} | {median:.1f} | {link:.1f} | {median / link:.2f} |", flush=True)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", nargs="+", default=["500mbit", "1gbit"])
    parser.add_argument("--entries", type=int, default=3_350_000, help="fp32 numbers of a host")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--host", metavar="RATE", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.host is not None:
        host(options.host, options.entries, options.rounds)
        return 0
    try:
        netns.require_namespaces("benchmarks/exchanges.py")
        rates = {text: netns.bits_per_second(text) for text in options.rates}
        if min(options.entries, options.rounds) < 1:
            raise netns.Refused("--entries and --rounds must be at least 1")
        print(f"torch {torch.__version__}, gloo, {HOSTS} hosts, {4 * options.entries:,} bytes each\n")
        print("| rate | way | ms | link, ms | / link |\n|---|---|---:|---:|---:|", flush=True)
        with netns.hosts(HOSTS) as hosts:
            for text, rate in rates.items():
                hosts.throttle(rate)
                ended = run_hosts(hosts, text, options)
                if any(ended):
                    return 1
    except netns.Refused as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 1
    return 0


def run_hosts(hosts: netns.Hosts, rate: str, options: argparse.Namespace) -> list[int]:
    """Run a process on each host to its end; returns their exit statuses."""
    processes = []
    for number in range(HOSTS):
        sizes = ["--entries", str(options.entries), "--rounds", str(options.rounds)]
        command = [sys.executable, __file__, "--host", rate, *sizes]
        processes.append(subprocess.Popen(hosts.command(number, command), env=environment(hosts, number)))
    return [process.wait() for process in processes]


if __name__ == "__main__":
    sys.exit(main())
