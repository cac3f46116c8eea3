"""Isolation of a sweep's jobs: each runs in its own process, and a killed job does not affect the others.

The standard library's fork server imports the slow modules once and forks a child for every job.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, resource_tracker
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from trainers.files.plain import Config
from trainers.launch.streams import keep_streams
from trainers.names import full_name

# Slow imports that no config names; optimizers import torch._dynamo at their first step
EVERY_JOB_IMPORTS = (
    *("hydra.main", "torch._dynamo", "compressors.build", "compressors.kernels.cpu.backend"),
    *("trainers.run.training", "wandb"),
)
GRACE_SECONDS = 300  # time for a job that was asked to stop, to finish its step and write a checkpoint
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # the signals that ask a process to stop
_POLL_SECONDS = 0.5
_turns = threading.Lock()  # multiprocessing also reads other processes' exit statuses when it starts one
_SERVER_ENDED = 255  # multiprocessing's exit status of a process whose fork server has ended


class JobError(RuntimeError):
    """A job ended without a result; the message is one line with the reason."""


class IsolatedCall:
    """A call of ``entry`` (``module:function``) with a plain value, in its own process.

    The first call imports ``modules``, for all later ones too; several threads may make calls. The process
    stops when its caller ends. Raises ``JobError`` if it cannot start.
    """

    def __init__(self, entry: str, argument: object, modules: Iterable[str] = ()) -> None:
        know_start_method()
        # a fork of a process that has imported torch is not safe with the libraries of macOS
        get_context, is_safe = multiprocessing.get_context, sys.platform != "darwin"
        context = get_context("forkserver") if is_safe else get_context("spawn")
        imported = [*EVERY_JOB_IMPORTS, entry.partition(":")[0], *modules]
        context.set_forkserver_preload([full_name(module) for module in imported])
        self._receiver, sender = context.Pipe(duplex=False)
        with sender, _turns:  # an open copy of ``sender`` would hide the end of the child
            arguments = (entry, argument, dict(os.environ), str(Path.cwd()), sender)
            self._child = context.Process(target=_child, args=arguments)
            try:
                with signals_blocked(), _module_path():
                    self._child.start()
            except (EOFError, OSError) as error:
                self._receiver.close()
                raise JobError(_describe_end(_SERVER_ENDED)) from error

    def send_signal(self, number: int) -> None:
        assert self._child.pid is not None  # it has started
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, number)

    def result(self) -> Any:
        """Wait for the value of ``entry``.

        Raises ``JobError`` if the process was killed or ``entry`` raised.
        """
        child = self._child
        with self._receiver:
            try:
                connection.wait([self._receiver, child.sentinel])
                outcome = None
                with suppress(EOFError):  # the child has ended without a result
                    outcome = self._receiver.recv() if self._receiver.poll() else None
                connection.wait([child.sentinel])
                with _turns:
                    child.join()
            except BaseException:
                child.terminate()
                child.join(GRACE_SECONDS)
                raise
            finally:
                child.kill()
        if outcome is None:
            raise JobError(_describe_end(child.exitcode))
        fault, result = outcome
        if fault:
            raise JobError(fault)
        return result


def run_isolated(entry: str, config: Config) -> object:
    """The value of an ``IsolatedCall`` with a config, and with the modules that the config names."""
    named = [part["_target_"] for part in config.values() if isinstance(part, dict) and "_target_" in part]
    return IsolatedCall(entry, config, [name.rpartition(".")[0] for name in named]).result()


def know_start_method() -> None:
    """Set a start method that new processes know: they lack that of joblib."""
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("spawn", force=True)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Context manager: processes started in it receive ``STOP_SIGNALS`` only after unblocking them."""
    resource_tracker.ensure_running()  # its start unblocks signals, so it must come first
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _module_path() -> Iterator[None]:
    """Context manager: a new interpreter searches modules where this process does, not in its own folder."""
    environment = dict(os.environ)
    os.environ |= {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)


def _describe_end(exit_code: int | None) -> str:
    if exit_code == _SERVER_ENDED:
        return "the process that starts this sweep's jobs has ended"
    if exit_code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        return "its process was asked to stop"
    if exit_code is not None and exit_code < 0:
        return f"its process was killed by {signal.Signals(-exit_code).name}"
    return f"its process ended with status {exit_code}"


def _child(
    entry: str, argument: object, environment: dict[str, str], folder: str, sender: connection.Connection
) -> None:
    """Call ``entry`` and send the reason of a failure, or its result."""
    for number in STOP_SIGNALS:  # blocked until here: a terminal sends them to a whole group
        signal.signal(number, interrupt_once)
    keep_streams()
    threading.Thread(target=_stop_with_launcher, args=(os.getppid(),), daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        function: Callable[[object], object] = resolve_name(entry)
        outcome = "", function(argument)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # any fault in the job's code is the job's outcome
        traceback.print_exc()
        outcome = f"{type(error).__name__}: {' '.join(str(error).split())}", None
    sender.send(outcome)


def _stop_with_launcher(server: int) -> None:
    """Stop this process when the launcher of its sweep or the fork ``server`` has ended."""
    launcher = multiprocessing.parent_process()
    assert launcher is not None
    while os.getppid() == server and not connection.wait([launcher.sentinel], _POLL_SECONDS):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def ignore_signal(*_: object) -> None:
    """A handler without effect.

    With SIG_IGN, Python prints an error for a signal that arrived just before, and programs inherit it.
    """


def interrupt_once(*_: object) -> None:
    """Raise ``KeyboardInterrupt`` once: later signals must not interrupt the cleanup."""
    for number in STOP_SIGNALS:
        signal.signal(number, ignore_signal)
    raise KeyboardInterrupt
