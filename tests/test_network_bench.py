"""The network benchmark: evaluation of measurements, refusals, and a small run as root."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from benches import ENVIRONMENT, ROOT, modules, namespaces, needs_root
from run_folders import write_run

COMMAND = [sys.executable, "benchmarks/network.py", "--hosts", "2", "--rounds", "1", "--rates", "1gbit"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    names = ("netns", "collectives", "network_measured", "network_tables", "network", "network_host")
    names += ("exchanges", "fleet", "network_advice", "network_runs")
    return modules(monkeypatch, *names)


def points(module: ModuleType, *rows: tuple[str, float, float]) -> list[tuple]:
    return [(module.rate(text), dense, ours) for text, dense, ours in rows]


def test_a_crossing_lies_where_both_take_the_same_time(bench: dict[str, ModuleType]) -> None:
    """Twice as fast at 1 Gbit/s and half as fast at 4 Gbit/s: equal at 2 Gbit/s on a logarithmic axis."""
    module = bench["network_measured"]
    rows = points(module, ("4gbit", 1.0, 2.0), ("1gbit", 2.0, 1.0), ("100mbit", 9.0, 1.0))
    assert module.crossing(rows) == pytest.approx(2e9)
    assert module.crossing(points(module, ("1gbit", 2.0, 1.0), ("4gbit", 1.5, 1.0))) == math.inf
    assert module.crossing(points(module, ("1gbit", 1.0, 2.0), ("4gbit", 1.0, 3.0))) == 0
    rows = points(module, ("8gbit", 1.2, 1.0), ("unlimited", 1.0, 2.0))
    assert module.crossing(rows) == 8e9  # a lower bound: no limited rate above it was measured


def step(seconds: float, **parts: float) -> dict[str, float]:
    names = ("gradient", "reduce", "communication", "update")
    sent = {"bytes": 100_000.0, "link_bytes": 300_000.0}
    return {"step": seconds} | sent | {name: parts.get(name, 0.0) for name in names}


def test_parts_and_bytes_of_a_step(bench: dict[str, ModuleType]) -> None:
    module = bench["network_measured"]
    measured = module.Measured(4, 16)
    method, rate = module.Method("top_k"), module.rate("1gbit")
    steps = [step(9.0), step(0.5, gradient=0.1, reduce=0.3, communication=0.2, update=0.05)]
    calls = {"exchange": 8}
    # Each of 2 steps: 3 * 100,000 bytes, 1 % of headers, 2 gathers of 500 bytes, 2,000 of control
    answer = {"steps": [[], steps]}
    measured.add(method, [rate], answer, [module.Window(2 * (303_000 + 1000 + 2000), calls)])
    tiny = [20 * (48 + 900), 20 * (96 + 500), 20 * 2000]
    dense = 2 * 1.5 * module.DENSE_BYTES * 1.01
    measured.calibrate([rate], [module.Window(sent, {}) for sent in (*tiny, dense)])
    assert measured.per_call == {"all_reduce": 900, "exchange": 500}
    assert measured.parts(method, rate) == pytest.approx((0.5, 0.1, 0.1, 0.2, 0.05))
    assert measured.bytes_of(method, rate) == pytest.approx((100_000, 300_000, 306_000, 0.0), abs=1e-6)
    lines = bench["network_tables"].describe(measured, [rate])
    assert "| top_k | 500.0 | 100.0 | 100.0 | 200.0 | 50.0 | 128 |  |" in lines
    assert "| top_k | 100,000 | 300,000 | 306,000 | +0.00 % |" in [
        line.replace("-0.00", "+0.00") for line in lines
    ]


def test_ddp_is_split_by_what_it_takes_alone(bench: dict[str, ModuleType]) -> None:
    module = bench["network_measured"]
    measured, method, rate = module.Measured(2, 16), module.Method("ddp_fp16"), module.rate("1gbit")
    steps = [step(9.0), step(0.5, gradient=0.4, update=0.1)]
    answer = {"steps": [[], steps], "compute": [0.1, 0.1], "alone": [0.15, 0.15]}
    measured.add(method, [rate], answer, [module.Window(1.0, {})])
    assert measured.parts(method, rate) == pytest.approx((0.5, 0.1, 0.05, 0.25, 0.1))


def test_runs_that_may_overlap_computation_and_reduction_are_refused(
    bench: dict[str, ModuleType], tmp_path: Path
) -> None:
    """The times of such a run contain the reduction of the gradient, which the prediction would add again."""
    write_run(tmp_path / "plain", workers=4)
    write_run(tmp_path / "overlapped", workers=4, trainer={"overlap": True})
    with pytest.raises(bench["netns"].Refused, match=r"one after the other .*, got \S+overlapped/\S+$"):
        bench["network_runs"].finished([tmp_path])


def test_no_root_is_said_in_a_line(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bench["network"].main([]) == 1
    said = capsys.readouterr().err
    assert said == "error: benchmarks/network.py needs root: it makes network namespaces\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hosts 2 1", "--hosts must be at least 2, got 1"),
        ("--rounds 0", "--rounds must be at least 1, got 0"),
        ("--steps 1", "--steps must be at least 2, got 1"),
        ("--batch-size 0", "--batch-size must be at least 1, got 0"),
        ("--most-steps 9", "--most-steps must be at least 10, got 9"),
        ("--runs .git", "--runs needs runs of several workers, got none"),
        ("--to nowhere/page.md", "--to must be in a folder that exists, got nowhere/page.md"),
    ],
)
def test_what_leaves_nothing_to_measure_is_refused(
    bench: dict[str, ModuleType], capsys: pytest.CaptureFixture, words: str, said: str
) -> None:
    assert bench["network"].main(words.split()) == 1
    assert capsys.readouterr().err == f"error: {said}\n"


def datagram_to(address: str) -> list[str]:
    """A program that sends 1,000 bytes by UDP: 1,042 with headers."""
    code = "import socket, sys; socket.socket(type=socket.SOCK_DGRAM).sendto(bytes(1000), (sys.argv[1], 9))"
    return [sys.executable, "-S", "-c", code, address]


@needs_root
def test_hosts_count_and_are_gone_afterwards(bench: dict[str, ModuleType]) -> None:
    netns = bench["netns"]
    try:
        with netns.hosts(2) as hosts:
            hosts.throttle(1e9)
            said = subprocess.run(
                ["tc", "-n", hosts.names[1], "qdisc"], capture_output=True, text=True, check=True
            )
            assert "tbf" in said.stdout and "rate 1Gbit" in said.stdout
            before = [hosts.counters(host) for host in range(2)]
            subprocess.run(hosts.command(0, datagram_to(hosts.address(1))), check=True)
            after = [hosts.counters(host) for host in range(2)]
            assert after[0].sent_bytes - before[0].sent_bytes >= 1042
            assert after[1].received_bytes - before[1].received_bytes >= 1042
            assert after[0].sent_packets > before[0].sent_packets
            assert after[1].received_packets > before[1].received_packets
            assert len([n for n in namespaces() if str(os.getpid()) in n]) == 3
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert not [name for name in namespaces() if str(os.getpid()) in name]


@needs_root
@pytest.mark.slow
def test_a_small_bench(tmp_path: Path) -> None:
    """Throttled steps take at least the link's time, the ledger agrees, and no namespace remains."""
    before = namespaces()
    page = tmp_path / "network.md"
    some = ["--methods", "ddp", "none", "top_k", "--steps", "3", "--parts", "steps", "--to", str(page)]
    options = {"cwd": ROOT, "env": ENVIRONMENT, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([*COMMAND, *some], **options)
    assert done.returncode == 0, done.stderr
    assert page.with_suffix(".png").exists() and namespaces() == before
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines()]
    milliseconds = {
        row[0]: float(row[1].replace(",", "")) for row in cells if len(row) == 8 and row[1][:1].isdigit()
    }
    assert milliseconds["none"] > 357 and milliseconds["DDP"] > 357  # 44.7 MB at 1 Gbit/s
    assert milliseconds["top_k"] < milliseconds["DDP"]
    left = {
        row[0]: float(row[4].removesuffix(" %")) for row in cells if len(row) == 5 and row[4].endswith(" %")
    }
    assert left.keys() == {"none", "none, overlap", "top_k", "top_k, overlap"}
    assert all(abs(percent) <= 2 for percent in left.values()), left


@needs_root
@pytest.mark.slow
def test_a_stopped_bench_leaves_nothing() -> None:
    before = namespaces()
    command = [*COMMAND, "--parts", "steps"]
    process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while namespaces() == before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert namespaces() != before
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM and namespaces() == before
