"""The template: a Python process with slow modules, from which the servers of all test processes are forked.

The process that started pytest starts the template, which ends with that process. A request is a JSON message
with open files, over a socket. The answer is the id of the forked server.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VARIABLE = "TOTAL_ERROR_TEST_TEMPLATE"  # environment variable with the name of the template's socket
# On import, the project's modules here do not depend on arguments or environment of a command. run.py is
# missing, because its import changes Hydra, and wandb, because its import reads the environment.
IMPORTS = (
    *("compressors.kernels.cpu.backend", "trainers.run.session", "trainers.run.training", "filelock"),
    *("hydra.main", "hydra._internal.hydra", "numba_ready", "pydantic", "rich.console", "rich.table"),
    *("safetensors.torch", "scipy.sparse", "scipy.special", "torch", "torch._dynamo"),
    *("torch.distributed",),
)
_MOST_BYTES, _MOST_FILES = 2**20, 8  # limits of a request
_kept: list[subprocess.Popen] = []  # the template ends when its stdin is closed


def start() -> None:
    """Start the template, unless this process or its parent has done so; does not wait for its imports."""
    if VARIABLE in os.environ:
        return
    name = f"total-error-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        words = [sys.executable, __file__, str(listener.fileno())]
        files = {"pass_fds": [listener.fileno()], "stdin": subprocess.PIPE}
        _kept.append(subprocess.Popen(words, cwd=ROOT, process_group=0, **files))
    os.environ[VARIABLE] = name


def fork_server(kind: str, files: list[int], **request: Any) -> int:
    """Fork a server of a kind in ``SERVERS``, with copies of open files; returns its process id."""
    start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{os.environ[VARIABLE]}")
        socket.send_fds(connection, [json.dumps({"kind": kind} | request).encode()], files)
        return int(connection.recv(64))


def wait_for_request(listener: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork a process per request; returns request and files in it, and None here when pytest has ended."""
    while listener in select.select([sys.stdin, listener], [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            text, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, _MOST_FILES)
            child = os.fork()
            if child == 0:
                return json.loads(text), files
            connection.send(str(child).encode())
        for number in files:
            os.close(number)
    return None


def serve_scripts(files: list[int], modules: list[str]) -> None:
    """warm_python.py's server, with two files as stdin and stdout."""
    import warm_python

    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    warm_python.serve_scripts(modules)


def serve_processes(files: list[int], modules: list[str], path: list[str]) -> None:
    """multiprocessing's server of processes: ``files`` are its socket and the pipe that ends it."""
    sys.path[:] = path
    forkserver.main(*files, modules)


SERVERS = {"scripts": serve_scripts, "processes": serve_processes}


if __name__ == "__main__":
    sys.path.insert(1, str(ROOT))  # the path of the project's modules
    for module in IMPORTS:
        importlib.import_module(module)
    gc.freeze()  # otherwise a garbage collection copies memory shared with the template
    os.fsync = os.fstat  # as in tests/conftest.py
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that ended servers do not stay as zombies
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        asked = wait_for_request(listening)
    if asked is not None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        SERVERS[asked[0].pop("kind")](asked[1], **asked[0])
