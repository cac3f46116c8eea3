"""Ranks of processes that SLURM has started."""

import os


def take_ranks() -> None:
    """Take the rank of this process from SLURM, if a batch script has set WORLD_SIZE and no rank.

    Processes of other launchers, and jobs of one process, are left alone.
    """
    found = os.environ
    if "WORLD_SIZE" in found and "RANK" not in found and "SLURM_PROCID" in found:
        found["RANK"], found["LOCAL_RANK"] = found["SLURM_PROCID"], found["SLURM_LOCALID"]
        found["LOCAL_WORLD_SIZE"] = found["SLURM_STEP_TASKS_PER_NODE"].partition("(")[0]  # such as 4(x2)
