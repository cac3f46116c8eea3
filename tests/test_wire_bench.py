"""The wire benchmark: differences, refusals, and a small run as root."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from benches import ENVIRONMENT, ROOT, modules, namespaces, needs_root

PER_CALL = {"all_reduce": 1700.0, "exchange": 400.0}


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return modules(monkeypatch, "wire")["wire"]


def window(wire: ModuleType, link: Any, *, surplus: Any = 0, calls: float = 2) -> Any:
    """A window in which every interface carried the link's bytes, headers and a ``surplus`` [H, 2]."""
    link, surplus = np.broadcast_arrays(np.array(link, dtype=float), surplus)
    packets = np.full(link.shape, 30)
    carried = link + surplus + 66 * packets + calls * PER_CALL["exchange"]
    return wire.Window(50_000.0, link, carried, packets, {"all_reduce": 0.0, "exchange": calls})


LINK = [[100_000, 120_000], [120_000, 100_000]]


def test_nothing_is_off_where_the_interface_carries_the_link_and_headers(wire: ModuleType) -> None:
    assert wire.difference_percent(window(wire, LINK), PER_CALL, of_mean=False) == pytest.approx(
        [0, 0], abs=1e-9
    )


@pytest.mark.parametrize(("host", "way", "found"), [(0, 0, [-3, 0]), (1, 1, [0, -3]), (0, 1, [0, -2.5])])
def test_a_host_and_a_direction_are_judged_by_themselves(
    wire: ModuleType, host: int, way: int, found: list[float]
) -> None:
    """Differences of hosts, or of sent and received bytes, do not cancel."""
    surplus = np.zeros((2, 2))
    surplus[host, way], surplus[1 - host, way] = -3_000, 1_000
    assert wire.difference_percent(
        window(wire, LINK, surplus=surplus), PER_CALL, of_mean=False
    ) == pytest.approx(found)


def test_all_ways_of_sending_are_measured(wire: ModuleType) -> None:
    """Messages that are all-reduced with both reductions, gathered, of different lengths, and encoded."""
    found = {str(job) for job in wire.jobs(["layer"], None)}
    shared = "random_k, shared_coordinates=true, unbiased=false, layer"
    assert {"none, layer, worker_order", "none, layer, all_reduce"} <= found
    assert {f"{shared}, worker_order", f"{shared}, all_reduce"} <= found
    for method in ("top_k", "hard_threshold"):
        assert {f"{method}, layer{wire}" for wire in ("", ", auto, bf16", ", auto, int8")} <= found
    assert not any("int8" in job and "reduce" in job for job in found)
    assert {job.case.name for job in wire.jobs(["global"], ["none"])} == {"none"}


@contextmanager
def no_fleet(count: int, program: str) -> Iterator[None]:
    yield


@pytest.mark.parametrize("share", [0.019, -0.021])
def test_a_line_beyond_the_tolerance_is_the_status(
    wire: ModuleType,
    share: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    tmp_path: Path,
) -> None:
    """The page names the job of such a line, with the largest difference of a host."""

    def measure(hosts: None, message: dict[str, Any]) -> Any:
        if message["work"] in PER_CALL:
            found = window(wire, [[640, 640]], calls=20)
            return found._replace(calls=dict.fromkeys(PER_CALL, 20.0))
        surplus = [[0, 0], [0, share * 100_000 if message.get("method") == "top_k" else 0]]
        return window(wire, LINK, surplus=surplus)

    monkeypatch.setattr(wire, "fleet", no_fleet)
    monkeypatch.setattr(wire, "measure", measure)
    monkeypatch.setattr(wire.netns, "require_namespaces", lambda program: None)
    page = tmp_path / "page.md"
    words = ["--hosts", "2", "--scopes", "layer", "--methods", "top_k", "hard_threshold", "--to", str(page)]
    is_beyond = abs(share) > 0.02
    assert wire.main(words) == int(is_beyond)
    assert page.read_text() == capsys.readouterr().out[:-1]
    said = (
        f"top_k, layer (+0.0 % sent, {100 * share:+.1f} % received)" if is_beyond else "less headers: none."
    )
    assert said in page.read_text()
    assert "| top_k | plain, fp32 | layer |  | 25,000 | 55,000 | " in page.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hosts 4 1", "--hosts must be at least 2, got 1"),
        ("--steps 0", "--steps must be at least 1, got 0"),
        ("--density 0", "--density must be in (0, 1], got 0"),
        ("--to nowhere/page.md", "--to must be in a folder that exists, got nowhere/page.md"),
    ],
)
def test_what_leaves_nothing_to_measure_is_refused(
    wire: ModuleType, capsys: pytest.CaptureFixture, words: str, said: str
) -> None:
    assert wire.main(words.split()) == 1
    assert capsys.readouterr().err == f"error: {said}\n"


@needs_root
@pytest.mark.slow
def test_link_bytes_are_what_interfaces_carry(wire: ModuleType) -> None:
    """Between 3 hosts, for all-reduced, gathered, unequal and encoded messages; no namespace remains."""
    before = namespaces()
    methods = ["random_k", "top_k", "hard_threshold"]
    words = ["--hosts", "3", "--methods", *methods, "--scopes", "layer", "--steps", "1"]
    command = [sys.executable, "benchmarks/wire.py", *words]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and "| layer |" in line]
    assert len(rows) == len(list(wire.jobs(["layer"], methods))) and namespaces() == before
