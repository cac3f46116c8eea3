"""Whole writes, and reads of the files of jobs and trackers."""

import json
import os
from pathlib import Path

import pytest

from trainers.files.atomic import write_whole
from trainers.files.files import read_wandb_id
from trainers.launch.jobs import LOST, read_jobs, report, start_sweep
from trainers.launch.jobs import Job as SweepJob


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "ours")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a.json", "\ud800")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["ours"]


def test_jobs_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    jobs = start_sweep(tmp_path / ".multirun")
    for number in range(4):
        report(jobs, SweepJob(number, ("seed=1",), "finished", "", "f", 1.0))
    (jobs / "1.json").write_text("[]")
    (jobs / "2.json").write_text(json.dumps({"number": 2, "status": "good"}))
    (jobs / "3.json").write_text((jobs / "0.json").read_text())
    (jobs / "x.json").write_text("{}")
    found = read_jobs(jobs)
    assert [job.status for job in found] == ["finished", LOST, LOST, LOST]
    assert all(str(jobs / f"{job.number}.json") in job.reason for job in found[1:])


@pytest.mark.parametrize(
    ("content", "name"), [(b"ab12cd34\n", "ab12cd34"), (b"../x", None), (b"", None), (b"\xff", None)]
)
def test_the_id_of_a_wandb_run(tmp_path: Path, content: bytes, name: str | None) -> None:
    (tmp_path / "run-id.txt").write_bytes(content)
    assert read_wandb_id(tmp_path / "run-id.txt") == name
