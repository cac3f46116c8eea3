"""One run on several SLURM nodes, by the batch file and by a sweep: results of a run on one machine.

Shell scripts replace SLURM's programs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT
from faults import METHODS, SMALL, uninterrupted
from interrupting import left_behind
from resuming import assert_same

FILE = ROOT / "examples/slurm/several_nodes.sbatch"
NODES = 2
IN_A_JOB = """
export SLURM_JOB_ID=77 SLURM_JOB_NODELIST=NODES SLURM_NTASKS=4
export SLURM_JOB_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE='2(x2)'
"""
PROGRAMS = {
    "scontrol": '[ "$1 $2 $3" = "show hostnames NODES" ] && printf "127.0.0.1\\nsecond\\n"',
    "srun": f'shift\nfor node in $(seq 0 {NODES - 1}); do SLURM_NODEID=$node "$@" & done\n'
    'for job in $(jobs -p); do wait "$job" || exit 1; done',
}

OF_SUBMITIT = {
    "scontrol": PROGRAMS["scontrol"],
    "sbatch": f'{IN_A_JOB}bash "$1" > "$1.log" 2>&1 &\necho Submitted batch job 77',
    "srun": """while [[ "$1" == --* ]]; do [[ "$1" == --output || "$1" == --error ]] && shift; shift; done
for task in 0 1 2 3; do
    SLURM_PROCID=$task SLURM_LOCALID=$((task % 2)) SLURM_NODEID=$((task / 2)) "$@" &
done
wait""",
    "sacct": 'printf "JobID|State|NodeList\\n77|RUNNING|NODES\\n"',
}


def path_with(programs: dict[str, str], folder: Path) -> str:
    """PATH with these programs in front."""
    folder.mkdir()
    for name, lines in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{lines}\n")
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_the_batch_file_is_a_shell_script() -> None:
    subprocess.run(["bash", "-n", str(FILE)], check=True)


@pytest.mark.slow
def test_nodes_of_a_job_train_one_run(tmp_path: Path) -> None:
    words = [*SMALL, METHODS["gathered"], "trainer.steps=20"]
    job = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "NODES",
        "SLURM_NNODES": str(NODES),
        "INTERFACE": "lo",
        "PROCESSES": "2",
        "PYTHON": sys.executable,
        "PATH": path_with(PROGRAMS, tmp_path / "programs"),
    }
    command = ["bash", str(FILE), *words, f"output={tmp_path / 'out'}"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | job, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "in 4 process(es)" in done.stdout
    assert_same(left_behind(tmp_path / "out"), uninterrupted(tmp_path / "alone", *words))


@pytest.mark.slow
def test_a_job_of_a_sweep_runs_on_several_nodes(tmp_path: Path) -> None:
    """submitit's batch script, with the setup of ``slurm_nodes``, starts four processes of one run."""
    words = [*SMALL, METHODS["gathered"], "trainer.steps=20"]
    launcher = ["hydra/launcher=slurm_nodes", "hydra.launcher.nodes=2", "hydra.launcher.tasks_per_node=2"]
    command = [sys.executable, "run.py", "-m", *words, *launcher, f"output={tmp_path / 'out'}"]
    job = {"GLOO_SOCKET_IFNAME": "lo", "PATH": path_with(OF_SUBMITIT, tmp_path / "programs")}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | job, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    logs = "".join(path.read_text() for path in (tmp_path / "out/.multirun/.submitit").rglob("*.log"))
    assert "in 4 process(es)" in done.stdout + logs
    assert_same(left_behind(tmp_path / "out"), uninterrupted(tmp_path / "alone", *words))
