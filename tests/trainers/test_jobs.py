"""Tests of the output of a sweep and its jobs: progress lines, the table, the command that uploads."""

from pathlib import Path

import pytest

from trainers.launch.jobs import FAILED, FINISHED, SKIPPED, Job, first_line, in_time
from trainers.records.offline import sync_command

WORDS = ("compressor=top_k", "seed=1")


def ended(*statuses: str, seconds: float = 60.0) -> list[Job]:
    return [Job(i, (), status, "", "", seconds) for i, status in enumerate(statuses)]


def test_a_job_says_its_place_and_what_is_left() -> None:
    """The mean time of what has finished, for all that are to end; skipped and failed ones take none."""
    job = Job(2, WORDS)
    before = ended(SKIPPED, FINISHED)
    expected = "job 3 of 9: seed=1; 2 done, about 7 min left"
    assert first_line([*before, job], job, 9, ["compressor=top_k"]) == expected
    assert first_line([job], job, 9) == "job 3 of 9: compressor=top_k seed=1"
    assert first_line([*ended(FAILED), job], job, 9) == "job 3 of 9: compressor=top_k seed=1; 1 done"
    assert first_line([*before, job], job) == "job 3: compressor=top_k seed=1; 2 done"
    assert first_line([job], job, 9, WORDS) == "job 3 of 9"


def test_jobs_that_run_at_once_share_what_is_left() -> None:
    job = Job(3, WORDS)
    jobs = [*ended(FINISHED, FINISHED), Job(2, ()), job]
    assert first_line(jobs, job, 10, WORDS) == "job 4 of 10; 2 done, about 4 min left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3570, "1 h 0 min"), (8000, "2 h 13 min")],
)
def test_time_in_words(seconds: float, words: str) -> None:
    assert in_time(seconds) == words


def offline_run(folder: Path, number: int, name: str = "ab12") -> Path:
    part = folder / "wandb" / f"offline-run-2026010{number}_000000-{name}"
    part.mkdir(parents=True)
    (folder / "wandb" / "run-id.txt").write_text("ab12\n")
    return part


def test_one_command_uploads_the_runs_of_a_sweep(tmp_path: Path) -> None:
    """Each part by name or, where there are no others, by a pattern for the shell."""
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


def test_parts_of_an_earlier_try_are_not_uploaded(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "1"
    offline_run(folder, 1, "of-before")
    part = offline_run(folder, 2)
    assert sync_command([folder]) == f"wandb sync {part}"
