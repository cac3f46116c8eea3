"""Command line of a training: composition and checks of the config, and start of the run.

See `python run.py --help`.
"""

import sys

if __name__ == "__main__":  # before the slow imports below: Ctrl-C within them would print a traceback
    if sys.platform == "win32":
        sys.exit("error: Windows has neither O_NOFOLLOW nor fork: use WSL, see docs/getting_started.md")
    try:
        from trainers.launch.commands import stop_with_starter
        from trainers.launch.stopping import end_with_torchrun, leave_when_interrupted

        leave_when_interrupted()
        end_with_torchrun()
        stop_with_starter()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)

import os
import signal
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from trainers.config import composition, guard, words, yaml_loader
from trainers.config.errors import ConfigError, one_line

guard.install()
exit_statuses: list[int] = []  # exit status of a run outside a sweep, if it failed or was stopped
started_jobs: list[bool] = []  # an entry per started job; exceptions before the first one are Hydra's


@hydra.main(version_base="1.3", config_path=str(guard.CONF), config_name="config")
def main(config: DictConfig) -> float | None:
    """Run one job: the only one, or one of a sweep. Returns the objective of a sweep's job, if known."""
    from trainers.launch.jobs import FAILED, Job, current_sweep, perform
    from trainers.launch.slurm import take_ranks
    from trainers.launch.stopping import StoppedError

    started_jobs.append(True)
    take_ranks()
    hydra_config = HydraConfig.get()
    overrides = tuple(OmegaConf.to_container(hydra_config.overrides.task, resolve=False))
    if hydra_config.mode == RunMode.MULTIRUN:
        sweep = current_sweep()
        if sweep is not None:  # None if ``StartOfSweep`` did not run
            job = Job(hydra_config.job.num, overrides)
            done = perform(sweep, job, lambda: start(config, overrides, in_sweep=True), ConfigError)
            return None if done.status == FAILED else reached(config, Path(done.folder))
        return None
    try:
        typed = composition.keys_of(overrides)
        crossed = [key for key in hydra_config.sweeper.get("params") or {} if key.lstrip("+~") not in typed]
        if crossed:
            raise ConfigError(
                f"this is a sweep over {', '.join(crossed)}: put -m first, or type one value each"
            )
        start(config, overrides)
    except ConfigError as refusal:
        print(f"error: {refusal}", file=sys.stderr, flush=True)
        exit_statuses.append(1)
    except StoppedError as stop:
        stop.print_message()
        exit_statuses.append(128 + stop.signal)
    return None


def reached(config: DictConfig, folder: Path) -> float | None:
    """The objective of a finished run, if its tracker's settings name one."""
    from trainers.files.files import read_summary
    from trainers.files.goals import objective_of

    objective = objective_of(config.get("tracker") or {})
    return None if objective is None else objective.value(read_summary(folder))


def start(config: DictConfig, overrides: Sequence[str], *, in_sweep: bool = False) -> tuple[str, Path]:
    """Train with the config, unless the run is finished already.

    Returns ``finished`` or ``skipped``, and the run folder. Raises ``ConfigError`` and ``StoppedError``.
    """
    from trainers.launch.jobs import set_overrides

    resolved = composition.resolve(config, overrides, in_sweep)
    composition.print_exception(HydraConfig.get().runtime.choices)
    set_overrides(overrides)
    from trainers.run.session import run  # a slow import, after the checks

    return run(resolved, in_sweep=in_sweep)


class StartOfSweep(Callback):
    """Hydra's callback at the start of a sweep: checks its search, makes the folder for reports of jobs."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        from trainers.config.searches import check_search
        from trainers.launch.jobs import start_sweep
        from trainers.launch.parallel import ask_when_stopped, raise_when_stopped

        try:
            check_search(config.hydra.sweeper, config.get("tracker") or {})
            jobs = start_sweep(Path(config.hydra.sweep.dir))
            if "JoblibLauncher" in config.hydra.launcher.get("_target_", ""):
                ask_when_stopped(jobs)
            else:
                raise_when_stopped()
        except (OSError, ValueError) as error:  # Hydra turns what a callback raises into a warning
            print(f"error: {one_line(error)}", file=sys.stderr)
            sys.exit(1)  # before Hydra writes to the sweep's folder


def command_line() -> int:
    """Run ``main``; returns the exit status, which is not 0 if a job failed."""
    from trainers.launch.jobs import end_sweep

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        status = run_hydra()
    finally:
        yaml_loader.end()
    for number, handler in handlers.items():  # a sweep has replaced them; a finished run ignores signals
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler or signal.SIG_DFL)
    return max([status, end_sweep(interrupted=status == 130), *exit_statuses])


def run_hydra() -> int:
    """Run ``main``; returns 0 if no exception ended it. An error of Hydra's is printed in one line."""
    from trainers.launch.jobs import was_stopped

    os.environ["HYDRA_FULL_ERROR"] = "1"  # otherwise Hydra itself prints the errors below and exits
    try:
        sys.argv[1:] = words.checked(sys.argv[1:])
    except ValueError as error:
        return report_error(one_line(error))
    try:
        main()
    except KeyboardInterrupt:
        return report_interrupt()
    except Exception as error:  # Hydra, its plugins and joblib raise many types
        if not was_stopped():
            return report_exception(error)
    return report_interrupt() if was_stopped() else 0


def report_interrupt() -> int:
    print("interrupted", file=sys.stderr)
    return 130


def report_exception(error: Exception) -> int:
    """Print an exception that ended ``main``; returns the exit status. Unexpected ones are raised again."""
    if isinstance(error, BrokenProcessPool):
        return report_error("a process of the launcher was killed; the same command runs the remaining jobs")
    if isinstance(error, HydraException):
        return report_error(composition.hydra_message(error))
    if str(error).startswith("No trials are completed"):  # Optuna
        return report_error("no job of the search has finished")
    # Hydra raises many types for malformed overrides and files
    if started_jobs and not isinstance(error, (OSError, OmegaConfBaseException)):
        raise error
    return report_error(one_line(error))


def report_error(message: str) -> int:
    """Print an error of the command; returns the exit status."""
    print(f"error: {message}", file=sys.stderr)
    return 1


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
