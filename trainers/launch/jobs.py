"""Records of a sweep's jobs: a small file for each job, and the table at the end."""

import json
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainers.launch.stopping import StoppedError
from trainers.records import sweep_plan
from trainers.records.files import UnreadableFileError, read_job
from trainers.records.offline import sync_command
from trainers.records.safe_files import require_no_links, require_own_file, write_whole

FAILED, FINISHED, LOST, SKIPPED = "failed", "finished", "lost", "skipped"
INTERRUPTED = "interrupted"
Work = Callable[[], tuple[str, Path]]
_FOLDER = "TOTAL_ERROR_JOBS"  # where a sweep's jobs report to; processes that a launcher starts inherit it
_COMMAND = "TOTAL_ERROR_COMMAND"
_OVERRIDES = "TOTAL_ERROR_OVERRIDES"  # of the job that runs now
_PARALLEL_JOB = "TOTAL_ERROR_PARALLEL_JOB"  # "job 3 of 9" in the processes of jobs that others run beside
_STYLES = {FAILED: "red", LOST: "red", FINISHED: "green", SKIPPED: "dim"}


@dataclass(frozen=True)
class Job:
    """One job of a sweep and how it ended; ``lost`` until it says otherwise."""

    number: int
    overrides: tuple[str, ...]
    status: str = LOST
    reason: str = "its process ended without a word"
    folder: str = ""
    seconds: float = 0.0
    at_once: int = 1  # jobs that were running when it had started, itself included


def start_sweep(folder: Path) -> Path:
    """Name the folder that the jobs of a sweep, which begins now, report to.

    Raises ``OSError`` where it cannot be made, or ``folder`` holds a link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    require_no_links(folder)
    require_own_file(folder / "multirun.yaml")  # which Hydra writes
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    jobs = (folder / f"{moment}-{os.getpid()}").absolute()
    jobs.mkdir()
    os.environ[_FOLDER] = str(jobs)
    sweep_plan.forget()
    os.environ.pop(_PARALLEL_JOB, None)
    os.environ[_COMMAND] = json.dumps(command())
    return jobs


def command() -> list[str]:
    """What was typed, also where a launcher has started this process with a command of its own."""
    if _COMMAND in os.environ:
        return json.loads(os.environ[_COMMAND])
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def set_overrides(overrides: Sequence[str]) -> None:
    """Record the overrides of the job that this process, or one that it starts, is about to run.

    ``isolate`` is of its sweep, and refused without ``-m``.
    """
    own = [word for word in overrides if word.partition("=")[0] != "isolate"]
    os.environ[_OVERRIDES] = json.dumps(own)


def job_overrides() -> list[str] | None:
    """The overrides after ``python run.py`` that run this job alone; None where no command line made it."""
    return json.loads(os.environ[_OVERRIDES]) if _OVERRIDES in os.environ else None


def current_sweep() -> Path | None:
    """The folder of the sweep that this process belongs to."""
    return Path(os.environ[_FOLDER]) if _FOLDER in os.environ else None


def parallel_job() -> str:
    """What the job of this process is called, if others may run beside it; else an empty text."""
    return os.environ.get(_PARALLEL_JOB, "")


def report(jobs: Path, job: Job) -> None:
    """Put down what is known of a job; a later report replaces an earlier one."""
    write_whole(jobs / f"{job.number}.json", json.dumps(asdict(job)) + "\n")


def perform(jobs: Path, job: Job, work: Work, refusal: type[Exception]) -> None:
    """Do a job's work, which returns its status and folder, and put down what became of it.

    ``refusal`` is said in one line, and once for all jobs that are refused alike; any other exception is a
    fault in one job's code, which must not take the other jobs along.
    """
    running = sum(other.status == LOST for other in read_jobs(jobs))
    job = replace(job, at_once=running + 1)
    report(jobs, job)
    num_jobs, common = sweep_plan.planned()
    if not jobs.name.endswith(f"-{os.getpid()}"):  # a launcher has started this process, and others
        os.environ[_PARALLEL_JOB] = _name(job, num_jobs)
    if os.environ.get("RANK", "0") == "0":
        print(first_line(read_jobs(jobs), job, num_jobs, common), flush=True)
    started = time.perf_counter()
    try:
        status, folder = work()
        job = replace(job, status=status, reason="", folder=str(folder))
    except StoppedError as stop:  # in this very process: the sweep stops with its job
        stop.say()
        report(jobs, replace(job, status=FAILED, reason=INTERRUPTED, seconds=time.perf_counter() - started))
        raise KeyboardInterrupt from stop
    except refusal as error:
        job = replace(job, status=FAILED, reason=str(error))
        alike = _first_alike(read_jobs(jobs), job)
        print(f"error: {alike or job.reason}", file=sys.stderr, flush=True)
    except Exception as error:  # a fault in one job's code must not take the other jobs along
        traceback.print_exc()
        job = replace(job, status=FAILED, reason=f"{type(error).__name__}: {' '.join(str(error).split())}")
    except KeyboardInterrupt:
        report(jobs, replace(job, status=FAILED, reason=INTERRUPTED, seconds=time.perf_counter() - started))
        raise
    report(jobs, replace(job, seconds=time.perf_counter() - started))


def first_line(jobs: Sequence[Job], job: Job, num_jobs: int = 0, common: Sequence[str] = ()) -> str:
    """The line that a job begins with: its place in the sweep, its own settings, how long the rest takes.

    ``jobs`` are those that have started, ``num_jobs`` is 0 where it is not known. The estimate takes the mean
    of the jobs that have finished, and that as many run at once from here on as ever before: where a launcher
    starts the next ones, some of those before have just ended.
    """
    own = " ".join(word for word in job.overrides if word not in common)
    said = _name(job, num_jobs) + f": {own}" * bool(own)
    ended = [other for other in jobs if other.status != LOST]
    seconds = [other.seconds for other in ended if other.status == FINISHED]
    if ended:
        said += f"; {len(ended)} done"
    if seconds and num_jobs:
        remaining = num_jobs - len(ended)
        at_once = min(remaining, max(other.at_once for other in jobs))
        left = sum(seconds) / len(seconds) * remaining / at_once
        said += f", about {in_time(left)} left"
    return said


def in_time(seconds: float) -> str:
    """A time in words: 40 s, 12 min, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _name(job: Job, num_jobs: int) -> str:
    return f"job {job.number + 1}" + f" of {num_jobs}" * (num_jobs > 0)


def read_jobs(jobs: Path) -> list[Job]:
    """The jobs that have started, by number. One whose file cannot be read is lost, with that reason."""
    found = []
    for path in jobs.glob("*.json"):
        if not re.fullmatch(r"[0-9]{1,9}", path.stem):
            continue
        try:
            fields = read_job(path)
            found.append(Job(**fields | {"overrides": tuple(fields["overrides"])}))
        except UnreadableFileError as error:
            found.append(Job(int(path.stem), (), LOST, str(error)))
    return sorted(found, key=lambda job: job.number)


def print_jobs(jobs: Sequence[Job], console: Console | None = None) -> None:
    """A line for every job, with what tells it from the others, and a count of how they ended.

    A reason that jobs share stands in the line of the first one, with their number.
    """
    alike = Counter(job.reason for job in jobs if job.reason)
    common = set.intersection(*(set(job.overrides) for job in jobs)) if len(jobs) > 1 else set()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("job", "status", "seconds", "settings", "folder, or why it failed"):
        table.add_column(name, justify="right" if name in ("job", "seconds") else "left", overflow="fold")
    for job in jobs:
        status = f"[{_STYLES[job.status]}]{job.status}[/]"
        own = " ".join(word for word in job.overrides if word not in common)
        why = _first_alike(jobs, job) or job.reason + f" ({alike[job.reason]} jobs)" * (alike[job.reason] > 1)
        seconds = f"{job.seconds:.0f}"
        table.add_row(str(job.number + 1), status, seconds, escape(own), escape(why or job.folder))
    console = console or Console(width=None if os.isatty(1) else 160)
    console.print(table)
    counts = Counter(job.status for job in jobs)
    order = (FINISHED, SKIPPED, FAILED, LOST)
    console.print(", ".join(f"{counts[status]} {status}" for status in order if counts[status]))


def _first_alike(jobs: Sequence[Job], job: Job) -> str:
    """The words for a job that ended for the reason of an earlier one; empty for the first."""
    first = next((other for other in jobs if other.reason == job.reason and job.reason), job)
    return f"as job {first.number + 1}" if first.number < job.number else ""


def end_sweep(interrupted: bool = False) -> int:
    """Print what became of the jobs of the sweep that ran, if one did; 1 if one of them failed.

    Below torchrun the first process alone prints. Jobs of an interrupted sweep that ended without a word were
    stopped along with it.
    """
    sweep = current_sweep()
    jobs = read_jobs(sweep) if sweep is not None else []
    if interrupted:
        jobs = [
            replace(job, status=FAILED, reason=INTERRUPTED) if job.status == LOST else job for job in jobs
        ]
    if jobs and os.environ.get("RANK", "0") == "0":
        print_jobs(jobs)
        folders = [Path(job.folder) for job in jobs if job.status == FINISHED]
        if sync := sync_command(folders):
            print(f"to Weights & Biases: {sync}")
    return int(any(job.status not in (FINISHED, SKIPPED) for job in jobs))
