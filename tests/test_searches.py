"""Searches: what Hydra's sweepers and an agent of W&B may start, and how a stopped process ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, TIMEOUT_SECONDS, command

from trainers.config.searches import check_search
from trainers.files.goals import Objective, objective_of
from trainers.launch.stopping import end_by_stop_signal

GRID = {"_target_": "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"}
OPTUNA = {
    "_target_": "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper",
    "direction": "maximize",
}
WANTED = {"objective": "test/accuracy", "byte_budget": 1e5}


def test_a_search_needs_an_objective_to_maximise() -> None:
    check_search(GRID, {})
    check_search(OPTUNA, WANTED)
    with pytest.raises(ValueError, match=r"needs an objective: set tracker\.objective=METRIC"):
        check_search(OPTUNA, {"objective": None})
    with pytest.raises(ValueError, match=r"hydra\.sweeper\.direction must be maximize"):
        check_search(OPTUNA | {"direction": "minimize"}, WANTED)
    assert objective_of(WANTED) == Objective("test/accuracy", 1e5)
    assert objective_of({}) is None


def test_a_sweep_inside_a_trial_of_an_agent_is_refused(tmp_path: Path) -> None:
    """All its jobs would write to the trial's one run."""
    done = command("-m", "seed=0,1", f"output={tmp_path}", WANDB_SWEEP_ID="s", WANDB_RUN_ID="r")
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: an agent of Weights & Biases has started this command")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("agent", [True, False])
def test_a_stopped_process_ends_by_the_signal_under_an_agent(agent: bool) -> None:
    """Without an agent it ends with its exit status. The status of no signal has no effect."""
    imports = f"import sys; from {end_by_stop_signal.__module__} import end_by_stop_signal as end"
    script = f"{imports}; end(1); end(143); sys.exit(143)"
    variables = {**os.environ, **({"WANDB_SWEEP_ID": "s"} if agent else {})}
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=variables, timeout=TIMEOUT_SECONDS)
    assert ended.returncode == (-15 if agent else 143)
