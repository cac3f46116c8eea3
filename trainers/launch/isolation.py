"""Isolation of a sweep's jobs: each runs in its own process, and a killed job does not affect the others.

A nursery, one per process that a launcher starts jobs in, has imported what takes long and forks a child
for every job. multiprocessing's own fork server would import from wherever the command was typed, so the
nursery is a spawned process, which looks for modules where its parent does.
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

from trainers.launch.streams import keep_streams
from trainers.records.plain import Config

# What takes long to import and no config names; optimizers import torch._dynamo when they begin
EVERY_JOB_IMPORTS: tuple[str, ...] = (
    "torch._dynamo",
    "compressors.build",
    "compressors.kernels.cpu.backend",
)
EVERY_JOB_IMPORTS += ("trainers.run.training", "wandb")
GRACE_SECONDS = 300  # for a job that was asked to stop, to end its step and save it
ASKED = (signal.SIGINT, signal.SIGTERM)  # the signals that ask a process to stop
_nursery: "Nursery | None" = None


class JobError(RuntimeError):
    """A job ended without a result; says in a line how."""


@dataclass(frozen=True)
class _Request:
    """What a child is to do: call ``entry``, as ``module:function``, where and as its parent would."""

    entry: str
    argument: object
    environment: dict[str, str]
    folder: str


@dataclass(frozen=True)
class _Outcome:
    """What became of it. ``fault``: an exception that nobody expected, whose traceback has been printed."""

    returned: bool = False
    result: object = None
    fault: str = ""
    exit_code: int | None = None


def run_isolated(entry: str, config: Config) -> object:
    """``entry`` (``module:function``) of a config in a process of its own; what it returned, a plain value.

    What the first config names is imported once, for this and all later calls. Raises ``JobError`` when the
    process was killed or ``entry`` raised. When the caller is interrupted or ends, so does the process.
    """
    global _nursery
    if _nursery is None:
        named = [
            part["_target_"] for part in config.values() if isinstance(part, dict) and "_target_" in part
        ]
        modules = [entry.partition(":")[0], *(name.rpartition(".")[0] for name in named)]
        _nursery = Nursery([*EVERY_JOB_IMPORTS, *modules])
    try:
        return _nursery.run(entry, config)
    except (EOFError, OSError) as error:
        code = _nursery.close()
        _nursery = None
        raise JobError(f"the process that starts this sweep's jobs {_how(code)}") from error
    except JobError:
        raise
    except BaseException:
        _nursery.close()
        _nursery = None
        raise


class Nursery:
    """The parent's side of the process that forks a child for every job."""

    def __init__(self, imports: Iterable[str]) -> None:
        context = spawning()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, tuple(imports)))
        with signals_blocked():
            self.process.start()  # which hears no signal until it has said how to take them
        self.is_ready = False  # it is importing; nothing is lost when it is killed
        theirs.close()  # else the nursery's death would go unnoticed
        # Before multiprocessing waits at exit for the nursery, which waits for the pipe to close
        self.close_at_exit = Finalize(self, self.pipe.close, exitpriority=10)

    def run(self, entry: str, argument: object) -> object:
        if not self.is_ready:
            self.is_ready = self.pipe.recv()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pipe.send(_Request(entry, argument, dict(os.environ), str(Path.cwd())))
        outcome: _Outcome = self.pipe.recv()
        if not outcome.returned:
            raise JobError(outcome.fault or f"its process {_how(outcome.exit_code)}")
        return outcome.result

    def close(self) -> int | None:
        """Stop the job that runs, and the nursery; its exit status."""
        self.close_at_exit()
        self.process.join(GRACE_SECONDS + 2 if self.is_ready else 0)
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def spawning() -> SpawnContext:
    """multiprocessing's context for fresh processes."""
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("spawn", force=True)  # joblib's own, unknown to a new process
    return multiprocessing.get_context("spawn")


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Processes that start inside the block hear neither of ``ASKED`` before they unblock them."""
    resource_tracker.ensure_running()  # it unblocks signals when it starts, so before
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _how(exit_code: int | None) -> str:
    if exit_code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        return "was asked to stop"
    if exit_code is not None and exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"


def _serve(parent: connection.Connection, imports: Sequence[str]) -> None:
    """Run what ``parent`` asks for, one child at a time, until it closes the pipe."""
    for number in ASKED:  # sent to a whole group; the parent decides what becomes of the job
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)
    keep_streams()
    for name in imports:
        with suppress(Exception):  # a job that needs it will say what is wrong
            importlib.import_module(name)
    with suppress(EOFError, BrokenPipeError):
        parent.send(True)
        while True:
            parent.send(_fork(parent, parent.recv()))


def _fork(parent: connection.Connection, request: _Request) -> _Outcome:
    """Do it in a child. Raises ``EOFError`` when ``parent`` has gone, after the child was stopped."""
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
            if parent in ready:  # nothing but its end
                _stop(child)
                raise EOFError
            if receiver in ready:  # before the end of the child, which would wait for its reader
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
    for number in ASKED:
        signal.signal(number, _interrupt)
    threading.Thread(target=_end_with_nursery, daemon=True).start()
    try:
        os.environ.clear()
        os.environ.update(request.environment)
        os.chdir(request.folder)
        function: Callable[[object], object] = resolve_name(request.entry)
        outcome = _Outcome(returned=True, result=function(request.argument))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # a fault in the job's code is the job's outcome, whatever kind it is
        traceback.print_exc()
        outcome = _Outcome(fault=f"{type(error).__name__}: {' '.join(str(error).split())}")
    sender.send(outcome)


def _interrupt(*_: object) -> None:
    """Once: what is closed now is not to be interrupted again."""
    for number in ASKED:  # not SIG_IGN: Python complains of a signal that came just before
        signal.signal(number, lambda *_: None)
    raise KeyboardInterrupt


def _end_with_nursery() -> None:
    nursery = multiprocessing.parent_process()
    assert nursery is not None
    connection.wait([nursery.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
