"""The network benchmark: evaluation of measurements, refusals, and a small run as root."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path

import pytest
from benches import ENVIRONMENT, ROOT, namespaces, needs_root
from run_folders import distributed, write_run

from benchmarks import netns, network
from benchmarks.pages import Refused

COMMAND = [sys.executable, "benchmarks/network.py", "--hosts", "2", "--rounds", "1", "--rates", "1gbit"]


def test_a_crossing_lies_where_both_take_the_same_time() -> None:
    """Twice as fast at 1 Gbit/s and half as fast at 4 Gbit/s: equal at 2 Gbit/s on a logarithmic axis."""
    assert network.crossing([(4e9, 0.5), (1e9, 2.0), (1e8, 9.0)]) == pytest.approx(2e9)
    assert network.crossing([(1e9, 2.0), (4e9, 1.5)]) == math.inf
    assert network.crossing([(1e9, 0.5), (4e9, 0.3)]) == 0
    assert network.crossing([(8e9, 1.2), (math.inf, 0.5)]) == 8e9  # a lower bound: no limited rate above it


def test_steps_ratios_predictions_and_break_even_of_a_page() -> None:
    """Ratios are medians of those within a round: 4 and 2 here, not that of the medians, 2.5."""
    cost = network.Cost("top_k", 0.0, 1e5, network.Line(0.1), network.Line(0.0))
    jobs = [network.Job("none", "none", []), network.Job("top_k", "top_k", [], cost, 0.3)]
    parts = {"gradient": 0.3, "compression": 0.1, "communication": 0.05, "update": 0.05}

    def turns(*steps: float) -> list[dict[str, float]]:
        return [{"step": step, **parts} for step in steps]

    slow, fast = [turns(2.0, 1.0, 3.0), turns(0.5, 0.5, 0.75)], [turns(0.5, 0.25), turns(1.0, 0.5)]
    measured = network.Measured(2, [slow, fast], [None, 2.5e9])
    rates = ["1gbit", "4gbit"]
    lines = network.steps_page(measured, jobs, rates)
    # 300 ms of compute, 100 of compression, 0.8 for 100,000 bytes at 1 Gbit/s
    assert "| top_k | 500.0 | 300.0 | 100.0 | 50.0 | 50.0 | 0.25 | 400.8 | -20 % |" in lines
    assert "| none | 2,000.0 | 300.0 | 100.0 | 50.0 | 50.0 | 1.00 |  |  |" in lines
    assert (
        network.break_even_page(measured, jobs, rates)[-1] == "| top_k | 2.50 | 2.52 | -1 % | 4.00 | 0.50 |"
    )
    assert network.break_even_page(measured, jobs[1:], rates) == []


def test_a_run_is_trained_again_with_its_own_settings_and_costs(tmp_path: Path) -> None:
    """Per step: 410 ms of compute, 40 of compression for 4 workers, 1000 bytes to 3 others."""
    times = {"gradient": 1.6, "update": 0.01, "reduce": 0.17, "communication": 0.01}
    record = {f"time/{part}_seconds": seconds for part, seconds in times.items()}
    lines = [{"step": step, "comm/link_bytes_sent_total": 3000.0 * step, **record} for step in (1, 2, 3)]
    path = write_run(tmp_path, workers=4, records=lines) / "environment.json"
    words = ["compressor=top_k", "seed=3", "workers=4", "+trainer.batch_size=8"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"overrides": words}))
    (job,) = network.jobs_of_runs(Namespace(runs=[tmp_path], set=["threads=1"]))
    assert job.overrides == ["compressor=top_k", "+trainer.batch_size=8", "threads=1"]
    assert job.predicted_seconds(2, 8e4) == pytest.approx(0.41 + 0.04 + 0.1 + network.LATENCY_SECONDS)


def test_runs_that_may_overlap_computation_and_reduction_are_refused(tmp_path: Path) -> None:
    """The times of such a run contain the reduction of the gradient, which the prediction would add again."""
    write_run(tmp_path / "plain", workers=4)
    distributed(write_run(tmp_path / "overlapped", workers=4, compressor="none"), 4)
    with pytest.raises(Refused, match=r"one after the other .*, got \S+overlapped/\S+$"):
        network.jobs_of_runs(Namespace(runs=[tmp_path], set=[]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hosts 2 1", "--hosts must be at least 2, got 1"),
        ("--rounds 0", "--rounds must be at least 1, got 0"),
        ("--rates fast", "a rate must be a number and "),
        ("--runs .git", "--runs needs runs of several workers, got none"),
        ("--methods top_k none,trainer.overlpa=true", "Could not override 'trainer.overlpa'"),
        ("--rounds 1", "benchmarks/network.py needs root: it makes network namespaces"),
        ("--to nowhere/page.md", "--to must be in a folder that exists, got nowhere/page.md"),
    ],
)
def test_what_leaves_nothing_to_measure_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, words: str, said: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert network.main(words.split()) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {said}") and printed.count("\n") == 1


@needs_root
def test_hosts_count_and_are_gone_afterwards() -> None:
    """1,000 bytes by UDP are 1,042 with headers."""
    code = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(bytes(1000), (sys.argv[1], 9))"
    with suppress(KeyboardInterrupt), netns.hosts(2) as hosts:
        hosts.throttle(1e9)
        said = subprocess.check_output(["tc", "-n", hosts.names[1], "qdisc"], text=True)
        assert "tbf" in said and "rate 1Gbit" in said
        before = [hosts.counters(host) for host in range(2)]
        subprocess.run(hosts.command(0, [sys.executable, "-S", "-c", code, hosts.address(1)]), check=True)
        after = [hosts.counters(host) for host in range(2)]
        assert after[0].sent_bytes - before[0].sent_bytes >= 1042
        assert after[1].received_bytes - before[1].received_bytes >= 1042
        assert after[0].sent_packets > before[0].sent_packets
        assert after[1].received_packets > before[1].received_packets
        assert len([n for n in namespaces() if str(os.getpid()) in n]) == 3
        raise KeyboardInterrupt
    assert not [name for name in namespaces() if str(os.getpid()) in name]


@needs_root
@pytest.mark.slow
def test_a_small_bench(tmp_path: Path) -> None:
    """Throttled steps take at least the link's time, and no namespace remains."""
    before = namespaces()
    page = tmp_path / "network.md"
    some = ["--methods", "ddp", "none", "top_k", "--steps", "2", "--to", str(page)]
    options = {"cwd": ROOT, "env": ENVIRONMENT, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([*COMMAND, *some], **options)
    assert done.returncode == 0, done.stderr
    assert namespaces() == before
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines()]
    steps = {row[0]: float(row[1].replace(",", "")) for row in rows if len(row) == 9 and row[1][:1].isdigit()}
    assert steps["none"] > 357 and steps["ddp"] > 357  # 44.7 MB at 1 Gbit/s
    assert steps["top_k"] < steps["ddp"]


@needs_root
@pytest.mark.slow
def test_a_stopped_bench_leaves_nothing() -> None:
    before = namespaces()
    command = [*COMMAND, "--methods", "none"]  # whose costs are not measured before there are hosts
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while namespaces() == before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert namespaces() != before
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM and namespaces() == before
