"""The wire benchmark: differences, refusals, and a small run as root."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benches import ENVIRONMENT, ROOT, namespaces, needs_root

from benchmarks import wire

PER_CALL = {"all_reduce": 1700.0, "exchange": 400.0}
LINK = [[100_000, 120_000], [120_000, 100_000]]


def window(link: Any, *, surplus: Any = 0, calls: float = 2) -> Any:
    """A window in which every interface carried the link's bytes, headers and a ``surplus`` [H, 2]."""
    link, surplus = np.broadcast_arrays(np.array(link, dtype=float), surplus)
    packets = np.full(link.shape, 30)
    carried = link + surplus + 66 * packets + calls * PER_CALL["exchange"]
    return wire.Window(50_000.0, link, carried, packets, {"all_reduce": 0.0, "exchange": calls})


@pytest.mark.parametrize(
    ("surplus", "found"),
    [
        (np.zeros((2, 2)), [0, 0]),
        ([[-3_000, 0], [1_000, 0]], [-3, 0]),
        ([[0, 1_000], [0, -3_000]], [0, -3]),
        ([[0, -3_000], [0, 1_000]], [0, -2.5]),
    ],
)
def test_a_host_and_a_direction_are_judged_by_themselves(surplus: Any, found: list[float]) -> None:
    """Headers do not count, and differences of hosts, or of sent and received bytes, do not cancel."""
    percent = wire.difference_percent(window(LINK, surplus=surplus), PER_CALL, of_mean=False)
    assert percent == pytest.approx(found, abs=1e-9)


def test_all_ways_of_sending_are_measured() -> None:
    """Messages that are all-reduced with both reductions, gathered, of different lengths, and encoded."""
    found = {str(job) for job in wire.jobs(["layer"], None)}
    for averaged in ("none", "random_k, shared_coordinates=true, unbiased=false"):
        assert {f"{averaged}, layer, worker_order", f"{averaged}, layer, all_reduce"} <= found
    for method in ("top_k", "hard_threshold"):
        assert {f"{method}, layer{coded}" for coded in ("", ", auto, bf16", ", auto, int8")} <= found
    assert not any("int8" in job and "reduce" in job for job in found)
    assert {job.case.name for job in wire.jobs(["global"], ["none"])} == {"none"}


@pytest.mark.parametrize("share", [0.019, -0.021])
def test_a_line_beyond_the_tolerance_is_the_status(
    share: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    """The page names the job of such a line, with the largest difference of a host."""

    def measure(hosts: None, message: dict[str, Any]) -> Any:
        if message["work"] in PER_CALL:
            found = window([[640, 640]], calls=20)
            return found._replace(calls={"all_reduce": 0.0, "exchange": 20.0})  # as of two hosts
        surplus = [[0, 0], [0, share * 100_000 if message.get("method") == "top_k" else 0]]
        return window(LINK, surplus=surplus)

    monkeypatch.setattr(wire, "fleet", lambda count, program: nullcontext())
    monkeypatch.setattr(wire, "measure", measure)
    monkeypatch.setattr(wire, "require_namespaces", lambda program: None)
    page = tmp_path / "page.md"
    words = ["--hosts", "2", "--scopes", "layer", "--methods", "top_k", "hard_threshold", "--to", str(page)]
    is_beyond = abs(share) > 0.02
    assert wire.main(words) == int(is_beyond)
    assert page.read_text() == capsys.readouterr().out[:-1]
    beyond = f"top_k, layer (+0.0 % sent, {100 * share:+.1f} % received)"
    assert (beyond if is_beyond else "less headers: none.") in page.read_text()
    assert "| top_k | plain, fp32 | layer |  | 25,000 | 55,000 | " in page.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--hosts 4 1", "--hosts must be at least 2, got 1"),
        ("--density 0", "--density must be in (0, 1], got 0"),
    ],
)
def test_what_leaves_nothing_to_measure_is_refused(
    capsys: pytest.CaptureFixture, words: str, said: str
) -> None:
    assert wire.main(words.split()) == 1
    assert capsys.readouterr().err == f"error: {said}\n"


@needs_root
@pytest.mark.slow
def test_link_bytes_are_what_interfaces_carry() -> None:
    """Between 3 hosts, for all-reduced, gathered, unequal and encoded messages; no namespace remains."""
    before = namespaces()
    methods = ["random_k", "top_k", "hard_threshold"]
    words = ["--hosts", "3", "--methods", *methods, "--scopes", "layer", "--steps", "1"]
    command = [sys.executable, "benchmarks/wire.py", *words]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and "| layer |" in line]
    assert len(rows) == len(list(wire.jobs(["layer"], methods))) and namespaces() == before
