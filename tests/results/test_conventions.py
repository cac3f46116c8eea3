"""Tests of every counting convention against numbers worked out by hand."""

from pathlib import Path

import pytest
from run_folders import NUM_PARAMETERS, write_run

from results.conventions import counts_of, main
from results.runs import Run, read_runs

STEPS = 30


def run_of(folder: Path, **keys: object) -> Run:
    write_run(folder, **keys)
    (run,) = read_runs([folder])
    return run


def test_every_count_by_hand(tmp_path: Path) -> None:
    """4 workers gather 10 of 1000 fp32 elements, 8 bytes each, in 30 steps."""
    assert NUM_PARAMETERS == 1000
    dense = 4 * 1000 * STEPS
    found = {count.convention: (count.amount, count.dense) for count in counts_of(run_of(tmp_path))}
    assert found == {
        "left a worker's link": (3 * 80 * STEPS, 1.5 * dense),
        "reached a worker's link": (3 * 80 * STEPS, 1.5 * dense),
        "handed to collectives": (80 * STEPS, dense),
        "bus bytes of a ring": (3 * 80 * STEPS, 1.5 * dense),
        "parameter server, up": (80 * STEPS, dense),
        "parameter server, down": (3 * 80 * STEPS, dense),
        "32 bits a value sent, indices free": (320 * STEPS, 8 * dense),
        "64 bits an element, of the worker that sends most": (None, 8 * dense),  # not recorded
        "96 bits an element": (960 * STEPS, 8 * dense),
        "elements sent": (10 * STEPS, 1000 * STEPS),
        "gathered from all workers, a dense all-reduce twice": (4 * 80 * STEPS, 2 * dense),
        "numbers uploaded, indices free": (10 * STEPS, 1000 * STEPS),
    }


def test_dense_training_is_1_by_every_count(tmp_path: Path) -> None:
    dense = 4.0 * 1000 * STEPS
    summary = {
        "comm/bytes_sent_total": dense,
        "comm/link_bytes_sent_total": 1.5 * dense,
        "comm/link_bytes_received_total": 1.5 * dense,
        "comm/compression_ratio": 1.0,
        "comm/paper_bits_total": 8 * dense,
        "comm/largest_sent_total": 1000.0 * STEPS,
        "compression/density_mean": 1.0,
    }
    counts = counts_of(run_of(tmp_path, compressor="none", summary=summary))
    assert {count.ratio for count in counts} == {1.0}


def test_a_count_without_a_meaning_is_a_dash(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_run(tmp_path, summary={"comm/paper_bits_total": None})
    assert main([str(tmp_path)]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 32 bits")]
    assert rows == [
        "| 32 bits a value sent, indices free | Sahu et al. 2021, convex part | - | 960,000 | bits | - |"
    ]


def test_a_run_without_link_bytes_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_run(tmp_path, summary={"comm/link_bytes_sent_total": None})
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert "its summary has no comm/link_bytes_sent_total" in said[0]
    assert said[1].startswith("error: no finished run in ")


def test_a_single_worker_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_run(tmp_path, workers=1)
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == "error: workers must be at least 2, got 1: nothing travels\n"
