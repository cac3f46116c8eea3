"""Sweeps: comments of their files, failed jobs, continuation after a kill, one process per run folder."""

import json
import math
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from command_line import Background, command, jobs_table
from configs import resolved
from interrupting import session
from sweep_files import SWEEPS, is_every_method, jobs_of, name_of, params_of

import run
from trainers.config.checks import check, refuse_settings_without_effect
from trainers.files.plain import Config

JOBS = ["-m", "model=mlp", "model.hidden=[16]", "workers=2", "trainer.batch_size=8", "tracker=none"]


@pytest.mark.parametrize("path", SWEEPS, ids=map(name_of, SWEEPS))
def test_a_sweep_says_its_command_and_its_number_of_runs(path: Path) -> None:
    first, *comment = [line for line in path.read_text().splitlines() if line.startswith("# ")]
    assert first == "# @package _global_"
    pattern = (
        rf"# ([A-Z_0-9]+=\S+ )*python run.py -m \+sweeps={name_of(path)}( data.(download=true|root=DIR))?"
    )
    assert re.fullmatch(pattern, comment[0])
    values = params_of(path).values()
    runs = math.prod(len(str(each).split(",")) for each in values if not is_every_method(each))
    words = "runs a method" if any(map(is_every_method, values)) else "run" if runs == 1 else "runs"
    assert comment[1].startswith(f"# {runs} {words}, ")


# A launcher and no study; variables of the environment; tuned rates; matched thresholds and an override
FEW = ("workers", "main/top_k_and_random_block_avx2", "language/top_k", "cifar10/workers")
ALONE = [path for path in SWEEPS if path.parent.name == "sweeps"]  # of no study


@pytest.mark.parametrize("path", ALONE, ids=map(name_of, ALONE))
def test_all_settings_of_a_sweep_fit_each_other(path: Path) -> None:
    for job in jobs_of(path):
        config = resolved(f"+sweeps={name_of(path)}", *(f"{key}={value}" for key, value in job.items()))
        check(config)
        refuse_settings_without_effect(config, {*job})


class FirstJob(BaseException):
    """Raised in place of the first training of a sweep."""


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=name_of(path), marks=[] if name_of(path) in FEW else pytest.mark.slow)
        for path in SWEEPS
    ],
)
def test_a_sweep_starts_its_first_job(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command in its second line, with one seed and, instead of all methods, with two."""

    def start(config: Config, in_sweep: bool) -> None:
        raise FirstJob

    monkeypatch.setattr("trainers.run.session.run", start)
    monkeypatch.setattr("trainers.config.sweep_jobs.require_composable", lambda jobs, compose: None)
    monkeypatch.setattr("trainers.launch.jobs.raise_when_stopped", lambda: None)
    monkeypatch.setattr("trainers.launch.parallel.raise_when_stopped", lambda: None)
    words = shlex.split(path.read_text().splitlines()[1].partition(" run.py ")[2])
    fewer = [f"{key}=top_k,none" for key, values in params_of(path).items() if is_every_method(values)]
    monkeypatch.setattr(sys, "argv", ["run.py", *words, "seed=0", *fewer, f"output={tmp_path}"])
    with patch.dict(os.environ), pytest.raises(FirstJob):
        run.command_line()


@pytest.mark.slow
def test_one_failed_job_does_not_stop_the_others(tmp_path: Path) -> None:
    jobs = [*JOBS, "trainer.steps=2", f"output={tmp_path}", "compressor=top_k"]
    result = command(*jobs, "budget.density=2.0,0.1", "optimizer.lr=0.1,1e38", "trainer.steps=3")
    found = jobs_table(result.stdout)
    assert result.returncode == 1
    assert [status for status, _ in found.values()] == ["failed", "failed", "finished", "failed"]
    assert "TopK.density must be in (0, 1], got 2.0" in found[1][1]
    assert "is not finite" in found[4][1]
    assert result.stdout.splitlines()[-2] == "1 finished, 3 failed"
    assert all(line.startswith("error: ") for line in result.stderr.splitlines())
    assert result.stderr.count("error: TopK.density must be in (0, 1], got 2.0\n") == 1
    assert "error: as job 1\n" in result.stderr
    again = command(*jobs, "budget.density=0.1", "optimizer.lr=0.1,1e38", "trainer.steps=3")
    assert [status for status, _ in jobs_table(again.stdout).values()] == ["skipped", "failed"]


@pytest.mark.slow  # test_isolation kills a job, and a sweep
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    sweep = [*JOBS, "trainer.steps=150", "trainer.log_every=1", "seed=0,1,2", f"output={tmp_path}"]
    process = Background(*sweep)
    try:
        process.until(lambda: summaries(tmp_path) and under_way(tmp_path))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = summaries(tmp_path)
    assert 1 <= len(before) < 3
    written = {path: path.stat().st_mtime_ns for path in before}
    result = command(*sweep)
    assert result.returncode == 0, result.stderr
    statuses = [status for status, _ in jobs_table(result.stdout).values()]
    assert statuses == ["skipped"] * len(before) + ["finished"] * (3 - len(before))
    assert {path: path.stat().st_mtime_ns for path in before} == written
    assert len(summaries(tmp_path)) == 3


def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    run = [*JOBS[1:], f"output={tmp_path}", "trainer.steps=100000", "trainer.log_every=100"]
    run += ["optimizer.lr=1e-4"]  # with this rate training does not diverge
    process = Background(*run)
    try:
        process.until(lambda: any(tmp_path.glob("*/*/metrics.jsonl")))
        second = command(*run)
    finally:
        process.kill()
        process.wait()
    assert second.returncode == 1
    assert re.fullmatch(r"error: another process is running \S+\n", second.stderr)


def test_a_killed_process_of_a_run_is_named_in_the_last_line(tmp_path: Path) -> None:
    endless = ["trainer.steps=100000", "trainer.log_every=100", "processes=2", f"output={tmp_path}"]
    process = Background(*JOBS[1:], *endless)
    process.until(lambda: any(tmp_path.glob("*/*/metrics.jsonl")))
    workers = [pid for pid in session(process.pid, "spawn_main") if pid != process.pid]
    os.kill(workers[0], signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 1
    assert re.fullmatch(r"error: process \d of 2 was killed by SIGKILL", said.splitlines()[-1]), said


def summaries(output: Path) -> list[Path]:
    paths = sorted(output.glob("*/*/summary.json"))
    return [path for path in paths if json.loads(path.read_text())["status"] == "finished"]


def under_way(output: Path) -> bool:
    """Whether a run has records and no summary."""
    return any(
        path.stat().st_size and not (path.parent / "summary.json").exists()
        for path in output.glob("*/*/metrics.jsonl")
    )
