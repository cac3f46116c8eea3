"""The plan of a sweep: what its jobs, wherever they run, know of each other."""

import json
import os
from collections.abc import Sequence

_PLAN = "TOTAL_ERROR_PLAN"  # processes that a launcher starts inherit it


def announce(jobs: Sequence[Sequence[str]]) -> None:
    """Tell the jobs of the sweep that begins, given as their words, how many they are and what they share."""
    common = sorted(set.intersection(*map(set, jobs))) if len(jobs) > 1 else []
    os.environ[_PLAN] = json.dumps([len(jobs), common])


def forget() -> None:
    """A sweep begins that has not been planned."""
    os.environ.pop(_PLAN, None)


def planned() -> tuple[int, list[str]]:
    """The number of jobs, 0 where it is not known, and the words that all of them share."""
    num_jobs, common = json.loads(os.environ.get(_PLAN, "[0, []]"))
    return num_jobs, common
