"""Processes of multiprocessing's ``spawn``, and its fork server, forked from a copy of this process.

``fork_template`` makes the copy, which forks twice for every request: the intermediate process ends, and the
new process becomes a child of the requesting process. The new process has the arguments, environment, folder,
open files and signals of a new interpreter.
"""

import ctypes
import fcntl
import json
import multiprocessing.util
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

SET_NAME, SET_CHILD_SUBREAPER = 15, 36  # options of prctl
NAME = "spawn_main"  # name of the new processes in /proc/PID/comm
_ASKED = (signal.SIGINT, signal.SIGTERM)
_MOST_BYTES, _MOST_FILES = 2**20, 64  # limits of a request
_IMITATED = ("from multiprocessing.spawn ", "from multiprocessing.forkserver ")
_prctl = ctypes.CDLL(None).prctl


def fork_template() -> Callable[[], Any] | None:
    """Make multiprocessing's ``spawn`` fork a copy of this process.

    Returns None in this process, and the main function in a new process.
    """
    ours, theirs = map(_above_streams, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    if os.fork():
        theirs.close()
        _ask_for_processes(ours)
        return None
    ours.close()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED)  # a terminal sends these signals to the copy too
    while True:
        text, files, _, _ = socket.recv_fds(theirs, _MOST_BYTES, _MOST_FILES)
        if not text:
            os._exit(0)
        told, tells = os.pipe()
        between = os.fork()
        if between == 0:
            fresh = os.fork()
            if fresh == 0:
                for number in (theirs.detach(), told, tells):
                    os.close(number)
                return _become(json.loads(text), files)
            os.write(tells, str(fresh).encode())
            os._exit(0)
        os.waitpid(between, 0)
        theirs.send(os.read(told, 64))
        for number in (told, tells, *files):
            os.close(number)


def _above_streams(end: socket.socket) -> socket.socket:
    """Move the socket to a descriptor above 2, because a closed standard stream leaves its number free."""
    with end:
        return socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))


def _ask_for_processes(template: socket.socket) -> None:
    """Replace multiprocessing's function that starts an interpreter, in this process only."""
    from_nothing, owner = multiprocessing.util.spawnv_passfds, os.getpid()

    def spawn(path: bytes, words: Sequence[str], files: Sequence[int]) -> int:
        code = words[words.index("-c") + 1]
        if os.getpid() != owner or not code.startswith(_IMITATED):
            return from_nothing(path, words, files)
        files = sorted({*(number for number in range(3) if _is_open(number)), *files})
        ignored = [number for number in _ASKED if signal.getsignal(number) == signal.SIG_IGN]
        request = {
            "code": code,
            "files": files,
            "folder": os.getcwd(),  # noqa: PTH109 (plain text)
            "environment": dict(os.environ),
            "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
            "ignored": [int(number) for number in ignored],
        }
        _prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(template, [json.dumps(request).encode()], files)
            return int(template.recv(64))
        finally:
            _prctl(SET_CHILD_SUBREAPER, 0, 0, 0, 0)

    multiprocessing.util.spawnv_passfds = spawn


def _is_open(number: int) -> bool:
    with suppress(OSError):
        os.fstat(number)
        return True
    return False


def _become(request: dict[str, Any], files: list[int]) -> Callable[[], Any]:
    """Imitate the requested interpreter; returns its main function."""
    free = max(*files, *request["files"]) + 1
    aside = [fcntl.fcntl(number, fcntl.F_DUPFD, free) for number in files]
    for number in {0, 1, 2, *files}:
        with suppress(OSError):
            os.close(number)
    for number, asked in zip(aside, request["files"], strict=True):
        os.dup2(number, asked)
        os.close(number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # its value came from the server's environment
    sys.argv = ["-c", "--multiprocessing-fork"]
    _prctl(SET_NAME, NAME.encode(), 0, 0, 0)
    for signal_number in request["ignored"]:
        signal.signal(signal_number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return partial(exec, request["code"], {})
