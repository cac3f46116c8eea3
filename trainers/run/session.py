"""Start of a run: check for a finished run, processes, and reports of failures."""

import os
import sys
from pathlib import Path

from compressors.core.checks import MethodError
from compressors.encoding.settings import EncodingError
from trainers.config.checks import check
from trainers.config.errors import ConfigError, one_line, refusing
from trainers.files.plain import Config
from trainers.launch.isolation import JobError, run_isolated
from trainers.launch.jobs import FINISHED, SKIPPED
from trainers.launch.processes import PeerLostError, launch
from trainers.launch.stopping import StoppedError
from trainers.run.folder import RunFolder
from trainers.run.leftovers import clear_leftovers
from trainers.run.report import print_summary

FAILURES = (ConfigError, JobError, PeerLostError, EncodingError, MethodError, OSError)  # reported in one line


def run(config: Config, *, in_sweep: bool = False) -> tuple[str, Path]:
    """Train unless the run is finished already; each job of a sweep trains in its own process.

    Returns ``finished`` or, if the run was finished already, ``skipped``, and the run's folder. Raises
    ``ConfigError`` for a run that is refused or fails, and ``StoppedError`` for a stopped one that is not
    isolated.
    """
    with refusing():
        check(config)
        folder = RunFolder(config)
        finished = folder.summary() if config["resume"] != "never" else None
    if finished is not None:
        from trainers.run.build import check_parts  # a slow import

        with refusing():
            check_parts(config, int(os.environ.get("WORLD_SIZE", str(config["processes"]))))
        if os.environ.get("RANK", "0") == "0":
            code = ", with other code (resume=never runs it again)" * folder.ran_other_code()
            print(f"{folder.path} is finished already{code}; its numbers:")
            print_summary(finished)
            if folder.not_measured():
                absent = ",".join(folder.not_measured())
                print(f"it did not measure diagnostics={absent}; another output=FOLDER runs it again")
            clear_leftovers(folder.path)
        return SKIPPED, folder.path
    isolated = in_sweep and config["isolate"] and "WORLD_SIZE" not in os.environ
    try:
        if isolated:
            refusal = run_isolated(f"{__name__}:start_in_child", config)
            if refusal is not None:
                raise ConfigError(str(refusal))
        else:
            start(config)
    except FAILURES as error:
        raise ConfigError(one_line(error)) from error
    return FINISHED, folder.path


def start(config: Config) -> None:
    """Train in this process or, with ``processes`` > 1 and without a launcher, in new processes."""
    if "WORLD_SIZE" in os.environ or config["processes"] == 1:
        from trainers.run.training import train  # a slow import, only for processes that train

        train(config)
    else:
        launch(f"{__name__}:train_together", config, config["processes"])


def train_together(config: Config) -> None:
    """Train in one of several new processes; all of them raise the same refusal."""
    from trainers.run.training import train

    try:
        train(config)
    except ConfigError as refusal:
        raise JobError(str(refusal)) from refusal


def start_in_child(config: Config) -> str | None:
    """``start`` in a job's process; return the text of a refusal, or None."""
    try:
        start(config)
    except FAILURES as failure:
        return one_line(failure)
    except StoppedError as stop:
        stop.print_message()
        sys.exit(128 + stop.signal)
    return None
