"""Records of a sweep's jobs: a small file for each job, and the table at the end."""

import json
import os
import re
import shlex
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainers.config.errors import ConfigError
from trainers.files.atomic import write_whole
from trainers.files.files import UnreadableFileError, read_job
from trainers.files.offline import sync_command
from trainers.launch import sweep_plan
from trainers.launch.parallel import is_stopping, raise_when_stopped, stopping_with_sweep
from trainers.launch.stopping import StoppedError
from trainers.names import RESULTS

FINISHED, SKIPPED, FAILED, LOST = "finished", "skipped", "failed", "lost"
INTERRUPTED, NOT_STARTED = "interrupted", "not started"
Work = Callable[[], tuple[str, Path]]
_FOLDER = "TOTAL_ERROR_JOBS"  # environment variable: folder of the jobs' files; new processes inherit it
_COMMAND = "TOTAL_ERROR_COMMAND"
_OVERRIDES = "TOTAL_ERROR_OVERRIDES"  # of the running job
_PARALLEL_JOB = "TOTAL_ERROR_PARALLEL_JOB"  # such as "job 3 of 9", in processes of jobs that run in parallel
_STYLES = {  # of the terminal, by status
    **{FINISHED: "green", SKIPPED: "dim", FAILED: "red", LOST: "red"},
    **{INTERRUPTED: "yellow", NOT_STARTED: "dim"},
}


@dataclass(frozen=True)
class Job:
    """One job of a sweep and how it ended; ``lost`` until it reports its end."""

    number: int
    overrides: tuple[str, ...]
    status: str = LOST
    reason: str = "its process ended without a report"
    folder: str = ""
    seconds: float = 0.0
    at_once: int = 1  # number of running jobs at its start, including itself


def start_sweep(folder: Path) -> Path:
    """Make the folder for the files of a new sweep's jobs, inside ``folder``, and return it.

    Raises ``OSError`` if it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    jobs = (folder / f"{moment}-{os.getpid()}").absolute()
    jobs.mkdir()
    os.environ[_FOLDER] = str(jobs)
    sweep_plan.forget()
    os.environ.pop(_PARALLEL_JOB, None)
    os.environ[_COMMAND] = json.dumps(command())
    return jobs


def command() -> list[str]:
    """The command line that the user typed, also in processes that a launcher started."""
    if _COMMAND in os.environ:
        return json.loads(os.environ[_COMMAND])
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def set_overrides(overrides: Sequence[str]) -> None:
    """Record the overrides of the next job of this process or of a process that it starts.

    ``isolate`` is omitted: it belongs to the sweep and is refused without ``-m``.
    """
    own = [word for word in overrides if word.partition("=")[0] != "isolate"]
    os.environ[_OVERRIDES] = json.dumps(own)


def job_overrides() -> list[str] | None:
    """The overrides after ``python run.py`` that run this job alone; None without a command line."""
    return json.loads(os.environ[_OVERRIDES]) if _OVERRIDES in os.environ else None


def current_sweep() -> Path | None:
    """The folder of the sweep that this process belongs to."""
    return Path(os.environ[_FOLDER]) if _FOLDER in os.environ else None


def was_stopped() -> bool:
    """Whether a sweep that this process started was asked to stop."""
    sweep = current_sweep()
    return sweep is not None and _is_of(os.getpid(), sweep) and is_stopping(sweep)


def _is_of(process: int, jobs: Path) -> bool:
    """Whether a process started the sweep of the folder ``jobs``; ``start_sweep`` gives it this name."""
    return jobs.name.endswith(f"-{process}")


def parallel_job() -> str:
    """The name of this process's job if other jobs may run in parallel; otherwise an empty text."""
    return os.environ.get(_PARALLEL_JOB, "")


def report(jobs: Path, job: Job) -> None:
    """Write a job's file; a later report replaces an earlier one.

    If the job has several processes, for example under torchrun or SLURM, only the first one writes it.
    """
    if _is_first():
        write_whole(jobs / f"{job.number}.json", json.dumps(asdict(job)) + "\n")


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def perform_alone(work: Work) -> None:
    """Do the work of the only job; if it is refused, stopped or fails, print why and raise ``SystemExit``."""
    try:
        work()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    except StoppedError as stop:
        stop.print_message()
        sys.exit(128 + stop.signal)
    except Exception:  # a fault of the code: Hydra would hide its traceback
        traceback.print_exc()
        sys.exit(1)


def perform(jobs: Path, job: Job, work: Work) -> Job:
    """Do a job's work, which returns its status and folder; report and return how the job ended.

    A ``ConfigError`` is printed in one line, once for all jobs with the same reason. Any other exception is a
    fault in this job's code; it is reported, and the other jobs continue.
    """
    if is_stopping(jobs):
        return replace(job, status=INTERRUPTED, reason="")
    running = sum(other.status == LOST for other in read_jobs(jobs))
    job = replace(job, at_once=running + 1)
    report(jobs, job)
    num_jobs, common = sweep_plan.planned()
    is_below = _is_of(os.getppid(), jobs)  # not under submitit, whose jobs outlive the sweep
    if _is_of(os.getpid(), jobs):
        raise_when_stopped()
    else:  # a launcher has started this process, and others
        os.environ[_PARALLEL_JOB] = _name(job, num_jobs)
    if _is_first():
        print(first_line(read_jobs(jobs), job, num_jobs, common), flush=True)
    started = time.perf_counter()
    try:
        with stopping_with_sweep(jobs) if is_below else nullcontext():
            status, folder = work()
        job = replace(job, status=status, reason="", folder=str(folder))
    except (StoppedError, KeyboardInterrupt) as stop:
        if isinstance(stop, StoppedError):  # the job ran in this process
            stop.print_message()
        job = replace(job, status=INTERRUPTED, reason="")
        if not is_below:  # the sweep stops with this process
            report(jobs, replace(job, seconds=time.perf_counter() - started))
            raise KeyboardInterrupt from stop
    except ConfigError as error:
        job = replace(job, status=FAILED, reason=str(error))
        alike = _first_alike(read_jobs(jobs), job)
        print(f"error: {alike or job.reason}", file=sys.stderr, flush=True)
    except Exception as error:  # a fault in one job's code must not end the other jobs
        traceback.print_exc()
        job = replace(job, status=FAILED, reason=f"{type(error).__name__}: {' '.join(str(error).split())}")
    job = replace(job, seconds=time.perf_counter() - started)
    report(jobs, job)
    return job


def first_line(jobs: Sequence[Job], job: Job, num_jobs: int = 0, common: Sequence[str] = ()) -> str:
    """The first line of a job: its number in the sweep, its own settings and the remaining time.

    ``jobs`` are those that have started; ``num_jobs`` is 0 if unknown. The estimate assumes the mean time of
    the finished jobs, and the largest number of parallel jobs so far.
    """
    own = " ".join(word for word in job.overrides if word not in common)
    line = _name(job, num_jobs) + f": {own}" * bool(own)
    ended = [other for other in jobs if other.status != LOST]
    seconds = [other.seconds for other in ended if other.status == FINISHED]
    if ended:
        line += f"; {len(ended)} done"
    if seconds and num_jobs:
        remaining = num_jobs - len(ended)
        at_once = min(remaining, max(other.at_once for other in jobs))
        left = sum(seconds) / len(seconds) * remaining / at_once
        line += f", about {in_time(left)} left"
    return line


def in_time(seconds: float) -> str:
    """A time with its unit: 40 s, 12 min, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _name(job: Job, num_jobs: int) -> str:
    return f"job {job.number + 1}" + f" of {num_jobs}" * (num_jobs > 0)


def read_jobs(jobs: Path) -> list[Job]:
    """The jobs that have started, by number. A job whose file cannot be read is ``lost``, with the reason."""
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
    """Print a line for every job, with the settings in which jobs differ, and the number of jobs by status.

    A reason that several jobs share is printed once, in the line of the first one.
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
    console.print(", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status]))


def _first_alike(jobs: Sequence[Job], job: Job) -> str:
    """A reference to the earlier job with the same reason; empty if there is none."""
    first = next((other for other in jobs if other.reason == job.reason and job.reason), job)
    return f"as job {first.number + 1}" if first.number < job.number else ""


def reading(*outputs: str) -> str:
    """A line with the commands that read all runs in ``outputs``."""
    return f"next: {RESULTS} report {shlex.join(outputs)} (a page on all runs there; or table, figures)"


def end_sweep(interrupted: bool = False) -> int:
    """Print how the jobs of this process's sweep ended, if there was one; return 1 if a job failed.

    Under torchrun only the first process prints. In an interrupted sweep, jobs that have not reported their
    end count as interrupted.
    """
    sweep = current_sweep()
    jobs = read_jobs(sweep) if sweep is not None else []
    if interrupted:
        jobs = [replace(job, status=INTERRUPTED, reason="") if job.status == LOST else job for job in jobs]
    started = {job.number for job in jobs}
    jobs += [
        Job(number, overrides, NOT_STARTED, reason="")
        for number, overrides in enumerate(sweep_plan.all_jobs())
        if jobs and number not in started
    ]
    if jobs and os.environ.get("RANK", "0") == "0":
        print_jobs(jobs)
        folders = [Path(job.folder) for job in jobs if job.status == FINISHED]
        if outputs := {str(Path(job.folder).parents[1]) for job in jobs if job.status in (FINISHED, SKIPPED)}:
            print(reading(*sorted(outputs)))
        if sync := sync_command(folders):
            print(f"to Weights & Biases: {sync}")
    return int(any(job.status not in (FINISHED, SKIPPED) for job in jobs))
