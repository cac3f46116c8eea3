"""The plan of a sweep: number of jobs and common overrides, for the processes of its jobs."""

import json
import os
from collections.abc import Sequence

_jobs: list[tuple[str, ...]] = []  # overrides of all jobs, in the process of the sweep
_PLAN = "TOTAL_ERROR_PLAN"  # environment variable; processes of a launcher inherit it


def announce(jobs: Sequence[Sequence[str]]) -> None:
    """Publish the number of ``jobs`` (overrides of each job) and their common overrides to the jobs."""
    _jobs[:] = map(tuple, jobs)
    common = sorted(set.intersection(*map(set, jobs))) if len(jobs) > 1 else []
    os.environ[_PLAN] = json.dumps([len(jobs), common])


def forget() -> None:
    """Remove the plan, for a sweep without one."""
    _jobs.clear()
    os.environ.pop(_PLAN, None)


def planned() -> tuple[int, list[str]]:
    """The number of jobs, or 0 if it is not known, and the overrides that all jobs share."""
    num_jobs, common = json.loads(os.environ.get(_PLAN, "[0, []]"))
    return num_jobs, common


def all_jobs() -> list[tuple[str, ...]]:
    """The overrides of all jobs, by number; empty if they are not known, as in a job's own process."""
    return list(_jobs)
