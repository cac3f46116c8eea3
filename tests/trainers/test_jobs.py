"""Output of a sweep and its jobs: progress lines, the table, the upload command."""

import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from trainers.config.errors import ConfigError
from trainers.files.offline import sync_command
from trainers.launch import sweep_plan
from trainers.launch.jobs import (
    FAILED,
    FINISHED,
    LOST,
    SKIPPED,
    Job,
    end_sweep,
    first_line,
    perform,
    print_jobs,
    read_jobs,
    report,
    start_sweep,
)

WORDS = ("compressor=top_k", "seed=1")


def ended(*statuses: str, seconds: float = 60.0) -> list[Job]:
    return [Job(i, (), status, "", "", seconds) for i, status in enumerate(statuses)]


def test_a_job_says_its_place_and_what_is_left() -> None:
    """The mean time of finished jobs, times the remaining ones; skipped and failed jobs do not count."""
    job = Job(2, WORDS)
    before = ended(SKIPPED, FINISHED)
    expected = "job 3 of 9: seed=1; 2 done, about 7 min left"
    assert first_line([*before, job], job, 9, ["compressor=top_k"]) == expected
    assert first_line([job], job, 9) == "job 3 of 9: compressor=top_k seed=1"
    assert first_line([*ended(FAILED), job], job, 9) == "job 3 of 9: compressor=top_k seed=1; 1 done"
    assert first_line([*before, job], job) == "job 3: compressor=top_k seed=1; 2 done"
    assert first_line([job], job, 9, WORDS) == "job 3 of 9"


def fail(jobs: Path, number: int, reason: str) -> None:
    def work() -> tuple[str, Path]:
        raise ConfigError(reason)

    perform(jobs, Job(number, (f"seed={number}",)), work)


def test_jobs_that_fail_alike_say_why_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, reason in enumerate(["no such data", "no such data", "no device", "no such data"]):
        fail(tmp_path, number, reason)
    said = capsys.readouterr().err.splitlines()
    assert said == ["error: no such data", "error: as job 1", "error: no device", "error: as job 1"]
    print_jobs(read_jobs(tmp_path), Console(width=100))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = [" ".join(words[4:]) for words in lines[1:-1]]
    assert found == ["no such data (3 jobs)", "as job 1", "no device", "as job 1"]


def test_the_table_of_a_stopped_sweep_lists_the_jobs_not_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOTAL_ERROR_JOBS", str(tmp_path))
    monkeypatch.setenv("TOTAL_ERROR_PLAN", "")
    report(tmp_path, Job(0, ("seed=0",)))
    sweep_plan.announce([[f"seed={seed}"] for seed in range(3)])
    try:
        assert end_sweep(interrupted=True) == 1
    finally:
        sweep_plan.forget()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [" ".join(row) for row in rows] == [
        "1 interrupted 0 seed=0",
        "2 not started 0 seed=1",
        "3 not started 0 seed=2",
        "1 interrupted, 2 not started",
    ]


def test_only_the_first_process_reports_a_job_and_prints_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOTAL_ERROR_JOBS", str(tmp_path))
    report(tmp_path, Job(0, (), FAILED, "no such data"))
    for rank, said in (("1", False), ("0", True)):
        monkeypatch.setenv("RANK", rank)
        assert end_sweep() == 1
        assert ("no such data" in capsys.readouterr().out) == said
    monkeypatch.setenv("RANK", "1")
    report(tmp_path, Job(0, (), FINISHED))
    assert [job.status for job in read_jobs(tmp_path)] == [FAILED]


def test_a_sweep_ends_with_the_command_that_reads_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOTAL_ERROR_JOBS", str(tmp_path))
    report(tmp_path, Job(0, (), FAILED, "no such data"))
    assert end_sweep() == 1 and "next:" not in capsys.readouterr().out
    for number, folder in enumerate(("outputs/a/1", "outputs/b/2", "my runs/a/3"), 1):
        report(tmp_path, Job(number, (), SKIPPED if number == 2 else FINISHED, folder=folder))
    end_sweep()
    said = "next: python -m results report 'my runs' outputs (a page on all runs there; or table, figures)"
    assert capsys.readouterr().out.splitlines()[-1] == said


def test_jobs_know_how_many_run_beside_them(tmp_path: Path) -> None:
    def nothing() -> tuple[str, Path]:
        return FINISHED, tmp_path

    report(tmp_path, Job(0, ()))
    for number in (1, 2):
        perform(tmp_path, Job(number, ()), nothing)
    assert [job.at_once for job in read_jobs(tmp_path)] == [1, 2, 2]


def offline_run(folder: Path, number: int, name: str = "ab12") -> Path:
    part = folder / "wandb" / f"offline-run-2026010{number}_000000-{name}"
    part.mkdir(parents=True)
    (folder / "wandb" / "run-id.txt").write_text("ab12\n")
    return part


def test_one_command_uploads_the_runs_of_a_sweep(tmp_path: Path) -> None:
    """Each part by name or, without other parts, by a shell pattern."""
    output = tmp_path / "with space"
    folders = [output / name for name in ("a/1", "a/2", "b/3")]
    assert sync_command(folders) is None
    parts = [offline_run(folder, 1) for folder in folders]
    assert sync_command(folders[:2]) == f"wandb sync '{parts[0]}' '{parts[1]}'"
    assert sync_command(folders) == f"wandb sync '{output}'/*/*/wandb/offline-run-*"
    offline_run(output / "b/4", 1)
    assert sync_command(folders) == " ".join(["wandb sync", *(f"'{part}'" for part in parts)])
    offline_run(folders[1], 2)
    assert sync_command(folders[:2]) == f"wandb sync '{output / 'a'}'/*/wandb/offline-run-*"
    folder = tmp_path / "c" / "1"
    offline_run(folder, 1, "of-before")  # of an earlier try
    part = offline_run(folder, 2)
    assert sync_command([folder]) == f"wandb sync {part}"


def test_a_part_without_a_record_is_not_uploaded(tmp_path: Path) -> None:
    """Of a process that was killed before W&B wrote its log: wandb sync would upload no part."""
    for number, content in ((1, b":W&B\xb4\xe1\x00 and records"), (2, b":W&B\xb4\xe1\x00"), (3, b"")):
        part = offline_run(tmp_path, number)
        (part / "run-ab12.wandb").write_bytes(content)
    first, _, last = sorted(tmp_path.glob("wandb/offline-run-*"))
    assert sync_command([tmp_path]) == f"wandb sync {first} {last}"


def test_jobs_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    jobs = start_sweep(tmp_path / ".multirun")
    for number in range(4):
        report(jobs, Job(number, ("seed=1",), "finished", "", "f", 1.0))
    (jobs / "1.json").write_text("[]")
    (jobs / "2.json").write_text(json.dumps({"number": 2, "status": "good"}))
    (jobs / "3.json").write_text((jobs / "0.json").read_text())
    (jobs / "x.json").write_text("{}")
    found = read_jobs(jobs)
    assert [job.status for job in found] == ["finished", LOST, LOST, LOST]
    assert all(str(jobs / f"{job.number}.json") in job.reason for job in found[1:])
