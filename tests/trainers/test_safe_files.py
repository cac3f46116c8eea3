"""Writes into folders with links, and reads of the files of jobs and trackers."""

import json
import os
from pathlib import Path

import pytest
from command_line import command
from configs import resolved

from trainers.launch.jobs import LOST, read_jobs, report, start_sweep
from trainers.launch.jobs import Job as SweepJob
from trainers.records.files import read_wandb_id
from trainers.records.safe_files import LinkError, require_no_links, write_whole
from trainers.run.folder import RunFolder
from trainers.run.trackers import JsonLines


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "theirs"
    path.write_text("theirs")
    return path


def test_a_write_replaces_a_link(tmp_path: Path, theirs: Path) -> None:
    for name in ("a.json", "a.json.partial"):
        (tmp_path / name).symlink_to(theirs)
    write_whole(tmp_path / "a.json", "ours")
    assert (tmp_path / "a.json").read_text() == "ours" and not (tmp_path / "a.json").is_symlink()
    assert theirs.read_text() == "theirs"
    assert not (tmp_path / "a.json.partial").is_symlink()


def test_the_one_link_of_wandb_that_leads_out_of_its_folder(tmp_path: Path, theirs: Path) -> None:
    """Every run with Weights & Biases has this link; a resumed run must not be refused because of it."""
    logs = tmp_path / "run" / "wandb" / "offline-run-1" / "logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to(theirs)
    require_no_links(tmp_path / "run")
    (logs / "debug.log").symlink_to(theirs)
    with pytest.raises(LinkError, match=r"debug\.log is a link"):
        require_no_links(tmp_path / "run")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "ours")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a.json", "\ud800")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["ours"]


def test_records_replace_a_link(tmp_path: Path, theirs: Path) -> None:
    for name in ("metrics.jsonl", "metrics.partial"):
        (tmp_path / name).symlink_to(theirs)
    records = JsonLines(tmp_path / "metrics.jsonl", b'{"step": 1}\n')
    records.log({"step": 2})
    records.finish(None)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'
    assert theirs.read_text() == "theirs"


def test_a_lock_with_another_name_too(tmp_path: Path, theirs: Path) -> None:
    """Taking a lock that is a hard link would empty the other file."""
    folder = RunFolder(resolved("experiment=quick", f"output={tmp_path / 'o'}"))
    folder.path.parent.mkdir(parents=True)
    os.link(theirs, folder.path.parent / f".{folder.id}.lock")
    with pytest.raises(LinkError, match=r"\.lock must be a file of its own"):
        folder.open()
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize("place", [".multirun", ".multirun/multirun.yaml", ".multirun/x"])
def test_jobs_of_a_sweep_stay_in_output(tmp_path: Path, place: str) -> None:
    outside, output = tmp_path / "outside", tmp_path / "output"
    outside.mkdir()
    (output / place).parent.mkdir(parents=True)
    (output / place).symlink_to(outside if "yaml" not in place else outside / "x.yaml")
    result = command("-m", "experiment=quick", "tracker=none", f"output={output}", "seed=0,1")
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert str(output / place) in result.stderr
    assert not list(outside.iterdir()) and len(list(output.rglob("*"))) <= 2


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
