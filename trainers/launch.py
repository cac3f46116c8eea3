"""Start the processes of one run on this machine, with the launcher behind torchrun."""

import logging
import signal
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from compressors.wire import WireError
from trainers.communicator import LostProcessError
from trainers.isolation import JobError
from trainers.stopping import StoppedError

_SECONDS_TO_NOTICE = 1.0
_LOGGERS = ("torch.distributed.elastic", "torch.multiprocessing.spawn")
_LAST_STEP_SECONDS = 300  # that processes have to end their step and save it when they are asked to stop
Argument = TypeVar("Argument")
Result = TypeVar("Result")


def launch(entry: Callable[[Argument], Result], argument: Argument, processes: int) -> Result:
    """Run ``entry(argument)`` in ``processes`` fresh processes that can find each other.

    ``entry`` has to be importable by name. Returns what the first process returned. Raises
    ``JobError`` when one of them dies, or cannot go on, after the others were stopped; ``StoppedError``
    when this process was asked to stop, after it has passed that on, or they were, and they have ended.
    A process that is asked to stop exits with 128 and the signal's number: an orderly return would wait for
    this process to take its result, which it does not do while it stops them.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(_LOGGERS):  # tracebacks of what is said below in a line
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="spawn",
        shutdown_timeout=_LAST_STEP_SECONDS,
    )
    try:
        with own_signal_handlers_afterwards():
            return elastic_launch(config, _enter)(entry, argument)[0]
    except SignalException as error:
        raise StoppedError(error.sigval, "") from error
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode in (128 + signal.SIGTERM, 128 + signal.SIGINT):
            raise StoppedError(failure.exitcode - 128, "") from error
        said = failure.message["message"] if isinstance(failure.message, dict) else ""
        if said.startswith("JobError: "):
            raise JobError(said.removeprefix("JobError: ")) from error
        how = f"was killed by {failure.signal_name()}" if failure.exitcode < 0 else "failed, as it says above"
        raise JobError(f"process {rank} of {processes} {how}") from error


def _enter(entry: Callable[[Argument], Result], argument: Argument) -> Result:
    """``entry`` in one of the processes; the launcher tells its parent of a ``JobError``, in words."""
    try:
        return entry(argument)
    except LostProcessError as error:
        time.sleep(_SECONDS_TO_NOTICE)  # for the launcher to see first which one was lost
        raise JobError(str(error)) from error
    except (OSError, WireError) as error:
        raise JobError(" ".join(str(error).split())) from error
    except Exception:  # the launcher tells nobody where it happened
        traceback.print_exc()
        raise


@contextmanager
def own_signal_handlers_afterwards() -> Iterator[None]:
    """Put back what the launcher, which leaves its own behind, has replaced."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: set by somebody else than Python
