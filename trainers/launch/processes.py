"""The processes of one run on this machine, which start and end together.

They exchange addresses in a file in a folder that only this user can access. Each reports its end to the
starting process through a pipe, in JSON. No port is opened for this, and nothing is unpickled.
"""

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType

from trainers.files.plain import Fields
from trainers.launch.isolation import STOP_SIGNALS, JobError, know_start_method, signals_blocked
from trainers.launch.stopping import SAME_SECONDS, StoppedError, end_with_parent
from trainers.launch.streams import keep_streams

# Environment variable: the file in which a local run's processes exchange their addresses
RENDEZVOUS_FILE = "TOTAL_ERROR_RENDEZVOUS_FILE"
_LAST_STEP_SECONDS = 300  # time to finish a step and save it, for processes that were asked to stop
_CLOSING_SECONDS = 130  # time to end after the training has ended or failed: W&B may take 120
_POLL_SECONDS = 0.2
_STOPPED = "stopped; the same command continues the run"  # the message of processes that were not training
# For each report of a process that did not finish: seconds until the others get a stop signal.
# failed, interrupted: the others would wait for this process. lost: the report of the process that failed
# may still be on its way. refused: all processes refuse the run and end without a signal.
_PATIENCE_SECONDS = {"failed": 0.0, "interrupted": 0.0, "lost": 1.0, "refused": 300.0}


class PeerLostError(RuntimeError):
    """Another process of this run ended, or did not answer in time."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"another process ended or did not answer for {timeout_seconds:g} s")


def launch(entry: str, argument: object, processes: int) -> None:
    """Call ``entry``, as ``module:function``, with ``argument`` in ``processes`` fresh processes.

    Returns or raises after all of them have ended. Raises ``JobError`` if one is killed or fails, after the
    others were stopped, and ``StoppedError`` if this process or one of them was asked to stop. A ``JobError``
    that ``entry`` raises must be raised in all processes: they get no stop signal.
    """
    group = _Group(processes)
    with (
        group.signals_passed_on(),
        tempfile.TemporaryDirectory(prefix="total-error-", ignore_cleanup_errors=True) as folder,
    ):
        try:
            group.start(entry, argument, Path(folder) / "rendezvous")
            group.wait()
        finally:
            group.kill()
    group.judge()


class _Group:
    """The processes of a run, as controlled by the process that starts them.

    The report of a process at its end has one of the keys ``done``, ``stopped`` and those of
    ``_PATIENCE_SECONDS``.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.children: list[BaseProcess] = []
        self.pipes: list[Connection] = []
        self.reports: dict[int, Fields] = {}  # by rank, in the order of their arrival
        self.stop_signal = 0  # the signal that asked this process to stop; 0 if none did
        self.stop_signal_at = 0.0
        self.stop_at = self.kill_at = float("inf")  # times at which the others are stopped, and killed
        self.reasons: list[Fields] | None = None  # the reports that arrived before the stop signal

    def start(self, entry: str, argument: object, rendezvous_file: Path) -> None:
        know_start_method()
        context = multiprocessing.get_context("spawn")
        with signals_blocked():  # a new process receives signals only after it has set its handlers
            for rank in range(self.processes):
                ours, theirs = context.Pipe(duplex=False)
                environment = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                environment[RENDEZVOUS_FILE] = str(rendezvous_file)
                environment |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(self.processes))
                child = context.Process(target=_enter, args=(entry, argument, environment, theirs))
                child.start()
                self.children.append(child)
                self.pipes.append(ours)
                theirs.close()
        if self.stop_signal:  # the signal came before the processes existed
            self._send(self.stop_signal)

    def wait(self) -> None:
        """Wait until all processes have ended; stop those that would wait for one that has ended."""
        while alive := [child.sentinel for child in self.children if child.is_alive()]:
            silent = [pipe for rank, pipe in enumerate(self.pipes) if rank not in self.reports]
            connection.wait([*alive, *silent], _POLL_SECONDS)
            self._listen()
            now = time.monotonic()
            for report in self.reports.values():
                patience = next((_PATIENCE_SECONDS[key] for key in report if key in _PATIENCE_SECONDS), None)
                if patience is not None:
                    self.stop_at = min(self.stop_at, now + patience)
            if len(self.reports) == self.processes:
                self.kill_at = min(self.kill_at, now + _CLOSING_SECONDS)
            if now >= self.stop_at and self.reasons is None:
                self.reasons = list(self.reports.values())
                self.kill_at = min(self.kill_at, now + _CLOSING_SECONDS)
                self._send(signal.SIGTERM)
                self._send(signal.SIGCONT)  # a suspended process handles SIGTERM only after SIGCONT
            if now >= self.kill_at:
                self.kill()
        self._listen()

    def kill(self) -> None:
        for child in self.children:
            child.kill()
        for child in self.children:
            child.join()

    def judge(self) -> None:
        """Raise the error that follows from the reports; return if all processes are done."""
        if all("done" in report for report in self.reports.values()):  # also if a signal came after the end
            return
        ends = {key: own for own in reversed(self.reasons or [*self.reports.values()]) for key in own}
        if "failed" in ends:
            raise JobError(ends["failed"]["failed"])
        if "refused" in ends:  # all processes refuse; the first one's report has the most detailed reason
            raise JobError(next(r["refused"] for _, r in sorted(self.reports.items()) if "refused" in r))
        if self.stop_signal or "stopped" in ends:
            stops = [report for report in self.reports.values() if report.get("message")]
            number = self.stop_signal or ends["stopped"]["stopped"]
            by_default: Fields = {"stopped": number, "message": _STOPPED}
            stop = next(iter(stops), by_default)
            raise StoppedError(stop["stopped"], stop["message"])
        if "lost" in ends:
            raise JobError(ends["lost"]["lost"])

    @contextmanager
    def signals_passed_on(self) -> Iterator[None]:
        """Context manager: pass SIGTERM and SIGINT on to all processes; no effect outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._pass_on) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)  # None: the handler was not set from Python

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        """Pass a signal on. A second Ctrl-C, more than ``SAME_SECONDS`` later, kills the processes."""
        now = time.monotonic()
        if not self.stop_signal:
            self.stop_signal, self.stop_signal_at, self.kill_at = number, now, now + _LAST_STEP_SECONDS
        elif number == signal.SIGINT and now - self.stop_signal_at > SAME_SECONDS:
            self.kill_at = now
        self._send(number)

    def _send(self, number: int) -> None:
        for rank, child in enumerate(self.children):
            if rank not in self.reports:
                assert child.pid is not None  # the process was started
                with suppress(ProcessLookupError):
                    os.kill(child.pid, number)

    def _listen(self) -> None:
        """Read the reports of ended processes; a process without one is reported by its exit status."""
        for rank, (child, pipe) in enumerate(zip(self.children, self.pipes, strict=True)):
            if rank in self.reports:
                continue
            has_ended = not child.is_alive()  # must be read before the pipe
            try:
                if pipe.poll():
                    self.reports[rank] = json.loads(pipe.recv_bytes())
                    continue
            except (EOFError, OSError):
                child.join()
                has_ended = True
            if has_ended:
                assert child.exitcode is not None
                self.reports[rank] = self._end_of(rank, child.exitcode)

    def _end_of(self, rank: int, code: int) -> Fields:
        by_signal = {-signal.SIGINT, 128 + signal.SIGINT}  # SIGINT ends a process before its training
        if self.stop_signal:
            by_signal |= {-self.stop_signal, -signal.SIGKILL}  # ``wait`` kills a process that takes too long
        if code in by_signal:
            return {"stopped": self.stop_signal or signal.SIGINT, "message": "", "interrupted": True}
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return {"failed": f"process {rank} of {self.processes} {how}"}


def _enter(entry: str, argument: object, environment: dict[str, str], parent: Connection) -> None:
    """Call ``entry`` in one of the processes, and report how the call ended."""
    end_with_parent()
    keep_streams()
    for number in STOP_SIGNALS:  # nothing is lost yet, and a Python handler could wait for a long import
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    os.environ.update(environment)
    report = _call(resolve_name(entry), argument)
    sys.stdout.flush()
    with suppress(OSError):
        parent.send_bytes(json.dumps(report).encode())


def _call(entry: Callable[[object], None], argument: object) -> Fields:
    """The report on a call of ``entry``."""
    try:
        entry(argument)
    except StoppedError as stop:
        return {"stopped": stop.signal, "message": str(stop)}
    except JobError as error:
        return {"refused": str(error)}
    except PeerLostError as error:
        return {"lost": str(error)}
    except OSError as error:
        return {"failed": " ".join(str(error).split())}
    except Exception as error:  # of any kind: the parent needs a report
        from compressors.core.checks import MethodError
        from compressors.encoding.settings import EncodingError  # imports torch

        if isinstance(error, (EncodingError, MethodError)):
            return {"failed": " ".join(str(error).split())}
        traceback.print_exc()
        rank, processes = os.environ["RANK"], os.environ["WORLD_SIZE"]
        return {"failed": f"process {rank} of {processes} failed; its traceback is above"}
    return {"done": True}
