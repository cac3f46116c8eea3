"""Isolation of a sweep's jobs: each runs in its own process, and a killed job does not affect the others.

A process that runs jobs starts one fork server: a process that imports the slow modules once and then forks
a child for every job. It is a spawned process, because a spawned process gets its parent's module search
path; multiprocessing's own fork server would search the current folder instead.
"""

import importlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import connection, resource_tracker
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from pkgutil import resolve_name

from trainers.files.plain import Config
from trainers.launch.streams import keep_streams
from trainers.names import full_name

# Slow imports that no config names; optimizers import torch._dynamo at their first step
EVERY_JOB_IMPORTS: tuple[str, ...] = (
    "torch._dynamo",
    "compressors.build",
    "compressors.kernels.cpu.backend",
)
EVERY_JOB_IMPORTS += ("trainers.run.training", "wandb")
GRACE_SECONDS = 300  # time for a job that was asked to stop, to finish its step and write a checkpoint
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # the signals that ask a process to stop
_fork_server: "ForkServer | None" = None


class JobError(RuntimeError):
    """A job ended without a result; the message is one line with the reason."""


@dataclass(frozen=True)
class _Request:
    """The call for a child: ``entry``, as ``module:function``, with the parent's folder and environment."""

    entry: str
    argument: object
    environment: dict[str, str]
    folder: str


@dataclass(frozen=True)
class _Outcome:
    """The result of a call. ``fault`` names an unexpected exception, whose traceback has been printed."""

    returned: bool = False
    result: object = None
    fault: str = ""
    exit_code: int | None = None


def run_isolated(entry: str, config: Config) -> object:
    """Call ``entry`` (``module:function``) with a config in a separate process; return its plain value.

    The modules that the first config names are imported once, for this and all later calls. Raises
    ``JobError`` if the process was killed or ``entry`` raised. The process ends when its caller ends.
    """
    global _fork_server
    if _fork_server is None:
        named = [
            part["_target_"] for part in config.values() if isinstance(part, dict) and "_target_" in part
        ]
        modules = [entry.partition(":")[0], *(name.rpartition(".")[0] for name in named)]
        _fork_server = ForkServer([*EVERY_JOB_IMPORTS, *modules])
    try:
        return _fork_server.run(entry, config)
    except (EOFError, OSError) as error:
        code = _fork_server.close()
        _fork_server = None
        raise JobError(f"the process that starts this sweep's jobs {_describe_end(code)}") from error
    except JobError:
        raise
    except BaseException:
        _fork_server.close()
        _fork_server = None
        raise


class ForkServer:
    """The parent's side of the process that forks a child for every job."""

    def __init__(self, imports: Iterable[str]) -> None:
        context = spawning()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, tuple(imports)))
        with signals_blocked():
            self.process.start()  # it receives signals only after it has set its handlers
        self.is_ready = False  # until it is ready it only imports, so it may be killed
        theirs.close()  # an open copy would keep the pipe open after the server's end
        # At exit multiprocessing waits for the server, which waits for the end of the pipe: close that first
        self.close_at_exit = Finalize(self, self.pipe.close, exitpriority=10)

    def run(self, entry: str, argument: object) -> object:
        if not self.is_ready:
            self.is_ready = self.pipe.recv()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pipe.send(_Request(entry, argument, dict(os.environ), str(Path.cwd())))
        outcome: _Outcome = self.pipe.recv()
        if not outcome.returned:
            raise JobError(outcome.fault or f"its process {_describe_end(outcome.exit_code)}")
        return outcome.result

    def close(self) -> int | None:
        """Stop the running job and the server; return the server's exit status."""
        self.close_at_exit()
        self.process.join(GRACE_SECONDS + 2 if self.is_ready else 0)
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def spawning() -> SpawnContext:
    """multiprocessing's context for fresh processes."""
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("spawn", force=True)  # a new process lacks joblib's start method
    return multiprocessing.get_context("spawn")


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Context manager: processes started in it receive ``STOP_SIGNALS`` only after unblocking them."""
    resource_tracker.ensure_running()  # its start unblocks signals, so it must come first
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _describe_end(exit_code: int | None) -> str:
    if exit_code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        return "was asked to stop"
    if exit_code is not None and exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"


def _serve(parent: connection.Connection, imports: Sequence[str]) -> None:
    """Run the requests of ``parent``, one child at a time, until it closes the pipe."""
    for number in STOP_SIGNALS:  # a terminal sends them to a whole group; the parent decides about the job
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    keep_streams()
    for name in imports:
        with suppress(Exception):  # a job that needs the module will report the error
            importlib.import_module(full_name(name))
    with suppress(EOFError, BrokenPipeError):
        parent.send(True)
        while True:
            parent.send(_fork(parent, parent.recv()))


def _fork(parent: connection.Connection, request: _Request) -> _Outcome:
    """Run a request in a child. If ``parent`` has ended, stop the child and raise ``EOFError``."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(request, sender))
    child.start()
    sender.close()
    outcome = _Outcome()
    with receiver:
        awaited: list[connection.Connection | int] = [parent, child.sentinel, receiver]
        while child.is_alive():
            ready = connection.wait(awaited)
            if parent in ready:  # the parent sends nothing now, so it has closed the pipe
                _stop(child)
                raise EOFError
            if receiver in ready:  # read before the child ends: it waits until its result is read
                awaited.remove(receiver)
                with suppress(EOFError, OSError):
                    outcome = receiver.recv()
    return replace(outcome, exit_code=child.exitcode)


def _stop(child: BaseProcess) -> None:
    child.terminate()
    child.join(GRACE_SECONDS)
    child.kill()
    child.join()


def _child(request: _Request, sender: connection.Connection) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, interrupt_once)
    threading.Thread(target=_end_with_fork_server, daemon=True).start()
    try:
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        function: Callable[[object], object] = resolve_name(request.entry)
        outcome = _Outcome(returned=True, result=function(request.argument))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # any fault in the job's code is the job's outcome
        traceback.print_exc()
        outcome = _Outcome(fault=f"{type(error).__name__}: {' '.join(str(error).split())}")
    sender.send(outcome)


def ignore_signal(*_: object) -> None:
    """A handler without effect.

    With SIG_IGN, Python prints an error for a signal that arrived just before, and programs inherit it.
    """


def interrupt_once(*_: object) -> None:
    """Raise ``KeyboardInterrupt`` once: later signals must not interrupt the cleanup."""
    for number in STOP_SIGNALS:
        signal.signal(number, ignore_signal)
    raise KeyboardInterrupt


def _end_with_fork_server() -> None:
    server = multiprocessing.parent_process()
    assert server is not None
    connection.wait([server.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
