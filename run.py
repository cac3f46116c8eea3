"""Command line of a training: composition and checks of the config, and start of the run.

See `python run.py --help`.
"""

import sys
from importlib.util import find_spec

if __name__ == "__main__":  # before the slow imports below: Ctrl-C within them would print a traceback
    if find_spec("hydra") is None:  # often another Python than that of .venv
        sys.exit(
            f"error: hydra is not installed for {sys.executable}: activate .venv or pip install -e '.[lab]'"
        )
    try:
        from trainers.launch.stopping import begin_command

        begin_command()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)

import os
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from trainers.config import composition, guard, words

guard.install()


@hydra.main(version_base="1.3", config_path=str(guard.CONF), config_name="config")
def main(config: DictConfig) -> float | None:
    """Run one job: the only one, or one of a sweep. Returns the objective of a sweep's job, if known.

    Raises ``SystemExit`` with the status of the only job, if it is not finished.
    """
    from trainers.config.searches import reached, refuse_sweep
    from trainers.launch.jobs import Job, current_sweep, perform, perform_alone, set_overrides
    from trainers.launch.slurm import take_ranks

    take_ranks()
    now = HydraConfig.get()
    in_sweep = now.mode == RunMode.MULTIRUN
    overrides: Any = OmegaConf.to_container(now.overrides.task, resolve=False)  # a list

    def work() -> tuple[str, Path]:
        if not in_sweep:
            refuse_sweep(now.sweeper, composition.keys_of(overrides))
        resolved = composition.resolve(config, overrides, in_sweep)
        composition.print_exception(now.runtime.choices)
        set_overrides(overrides)
        from trainers.run.session import run  # a slow import, after the checks

        return run(resolved, in_sweep=in_sweep)

    if not in_sweep:
        perform_alone(work)
        return None
    sweep = current_sweep()
    assert sweep is not None  # ``StartOfSweep`` has run
    done = perform(sweep, Job(now.job.num, tuple(overrides)), work)
    return reached(config.get("tracker") or {}, Path(done.folder)) if done.folder else None


def command_line() -> int:
    """Run ``main``; returns the exit status, which is not 0 if a job failed."""
    from trainers.launch.jobs import end_sweep, was_stopped
    from trainers.launch.stopping import handlers_restored

    os.environ["HYDRA_FULL_ERROR"] = "1"  # otherwise Hydra itself prints the errors below and exits
    status, interrupted = 0, False
    with handlers_restored():
        try:
            sys.argv[1:] = words.checked(sys.argv[1:])
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        except KeyboardInterrupt:
            interrupted = True
        except Exception as error:  # Hydra, its plugins and joblib raise many types
            if not was_stopped():
                status = 1
                print(f"error: {composition.hydra_message(error)}", file=sys.stderr)
    if interrupted or was_stopped():
        status, interrupted = 130, True
        print("interrupted", file=sys.stderr)
    return max(status, end_sweep(interrupted=interrupted))


def run_command() -> int:
    """Run the command as the whole process; returns the exit status."""
    from trainers.launch.stopping import end_by_stop_signal
    from trainers.launch.streams import keep_streams

    keep_streams()
    status = command_line()
    end_by_stop_signal(status)
    return status


if __name__ == "__main__":
    sys.exit(run_command())
