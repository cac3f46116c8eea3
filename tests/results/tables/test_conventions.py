"""All conventions of counting bytes, compared with hand-computed numbers."""

from pathlib import Path

import pytest
from command_line import command
from results_commands import command_of_results
from run_folders import NUM_PARAMETERS, write_run

from results.read.folders import read_runs
from results.read.run import Run
from results.tables.conventions import counts_of

main = command_of_results("table", "--conventions")

STEPS = 30


def run_of(folder: Path, **keys: object) -> Run:
    write_run(folder, **keys)
    (run,) = read_runs([folder])
    return run


def sent_by(workers: int, handed: float) -> dict[str, float]:
    """Link bytes and compression ratio of a worker that hands ``handed`` bytes to an all-gather."""
    link = (workers - 1) * handed
    ratio = 2 * (workers - 1) / workers * 4 * NUM_PARAMETERS * STEPS / link
    names = ("comm/link_bytes_sent_total", "comm/link_bytes_received_total")
    return {**dict.fromkeys(names, link), "comm/bytes_sent_total": handed, "comm/compression_ratio": ratio}


@pytest.mark.parametrize("n", [2, 8])
def test_every_count_by_hand(tmp_path: Path, n: int) -> None:
    """n workers gather 10 of 1000 fp32 elements, 8 bytes each, in 30 steps."""
    assert NUM_PARAMETERS == 1000
    dense, ring = 4 * 1000 * STEPS, 2 * (n - 1) / n
    run = run_of(tmp_path, workers=n, summary=sent_by(n, 80 * STEPS))
    counts = counts_of(run)
    found = {count.convention: (count.amount, count.dense) for count in counts}
    expected = {
        "left a worker's link": ((n - 1) * 80 * STEPS, ring * dense),
        "reached a worker's link": ((n - 1) * 80 * STEPS, ring * dense),
        "handed to collectives": (80 * STEPS, dense),
        "bus bytes of a ring": ((n - 1) * 80 * STEPS, ring * dense),
        "parameter server, up": (80 * STEPS, dense),
        "parameter server, down": ((n - 1) * 80 * STEPS, dense),
        "32 bits a value sent, indices free": (320 * STEPS, 8 * dense),
        "64 bits an element, of the worker that sends most": (None, 8 * dense),  # not recorded
        "96 bits an element": (960 * STEPS, 8 * dense),
        "elements sent": (10 * STEPS, 1000 * STEPS),
        "gathered from all workers, a dense all-reduce twice": (n * 80 * STEPS, 2 * dense),
        "numbers uploaded, indices free": (10 * STEPS, 1000 * STEPS),
    }
    assert found.keys() == expected.keys()
    for convention, numbers in expected.items():
        assert found[convention] == (numbers[0], pytest.approx(numbers[1])), convention


@pytest.mark.parametrize("n", [2, 4])
def test_indices_count_whatever_the_collective_moves(tmp_path: Path, n: int) -> None:
    """With 2 workers an all-gather and an all-reduce move equally many bytes."""
    summary = {**sent_by(n, 80 * STEPS), "comm/largest_sent_total": 10.0 * STEPS}
    counts = {count.convention: count for count in counts_of(run_of(tmp_path, workers=n, summary=summary))}
    assert counts["64 bits an element, of the worker that sends most"].amount == 640 * STEPS


@pytest.mark.parametrize(
    ("method", "bits"),
    [
        (["compressor=top_k"], 64),
        (["compressor=random_block", "compressor.shared_coordinates=false"], 64),  # a block has one index
        (["compressor=clt_k"], 32),  # the leader broadcasts the indices
    ],
)
def test_indices_of_two_workers_count_only_if_payloads_are_gathered(
    tmp_path: Path, method: list[str], bits: int
) -> None:
    """In an all-reduce an element counts as 32 bits, as with more workers; runs of run.py show the counts."""
    small = ["model=mlp", "model.hidden=[8]", "workers=2", "trainer.steps=2", "trainer.batch_size=8"]
    done = command(*small, *method, "budget.density=0.1", "tracker=none", f"output={tmp_path}")
    assert done.returncode == 0, done.stderr
    (run,) = read_runs([tmp_path])
    counts = {count.convention: count.amount for count in counts_of(run)}
    elements = run.summary["comm/largest_sent_total"]
    assert counts["64 bits an element, of the worker that sends most"] == bits * elements


@pytest.mark.parametrize("is_exact", [True, False])
def test_sidco_counts_8_bytes_an_element_in_whatever_code(tmp_path: Path, is_exact: bool) -> None:
    """The count ignores that an encoding sends fewer bytes; rounded values have no count."""
    summary = sent_by(4, 30 * STEPS)
    summary |= {"comm/values_bytes_total": 10 * STEPS, "comm/indices_bytes_total": 20 * STEPS}
    summary |= {} if is_exact else {"comm/paper_bits_total": None}
    counts = {count.convention: count for count in counts_of(run_of(tmp_path, summary=summary))}
    count = counts["gathered from all workers, a dense all-reduce twice"]
    assert count.amount == (4 * 10 * (4 + 4) * STEPS if is_exact else None)
    assert count.dense == pytest.approx(2 * 4 * 1000 * STEPS)


def test_dense_training_is_1_by_every_count(tmp_path: Path) -> None:
    dense = 4.0 * 1000 * STEPS
    summary = {
        "comm/bytes_sent_total": dense,
        "comm/values_bytes_total": dense,
        "comm/indices_bytes_total": 0.0,
        "comm/link_bytes_sent_total": 1.5 * dense,
        "comm/link_bytes_received_total": 1.5 * dense,
        "comm/compression_ratio": 1.0,
        "comm/paper_bits_total": 8 * dense,
        "comm/largest_sent_total": 1000.0 * STEPS,
        "compression/density_mean": 1.0,
    }
    counts = counts_of(run_of(tmp_path, compressor="none", summary=summary))
    assert {count.ratio for count in counts} == {1.0}


def test_a_run_without_link_bytes_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_run(tmp_path, summary={"comm/link_bytes_sent_total": None})
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert "its summary has no comm/link_bytes_sent_total" in said[0]
    assert said[1].startswith("error: no finished run in ")


def test_a_single_worker_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A single worker sends nothing, so its summary has no ratio."""
    travelled = ("comm/link_bytes_sent_total", "comm/link_bytes_received_total")
    summary = {**dict.fromkeys(travelled, 0.0), "comm/compression_ratio": None}
    path = write_run(tmp_path, workers=1, summary=summary)
    assert main([str(tmp_path)]) == 1
    said = f"error: {path}: workers must be at least 2, got 1: nothing leaves a single worker\n"
    assert capsys.readouterr().err == said
