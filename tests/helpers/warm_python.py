"""A server that forks a process for every requested script, so that the process need not import modules.

Each process has the arguments, environment, folder and open files of a new interpreter, and ends like one. A
request is a line of JSON on stdin. The answer is a line on stdout: the id of the process with the script. The
answer to ``{"wait": ID}`` is the exit status of that process, sent when the process has ended.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from warm_spawning import fork_template


def serve() -> dict | None:
    """Answer requests until the input ends; in a forked process, returns the request to run."""
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        child = os.fork()
        if child == 0:
            return request
        print(child, flush=True)
    return None


def become(request: dict) -> None:
    """Imitate a new interpreter that runs the script, in its own session if requested."""
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # its value came from the server's environment
    modes = ((os.devnull, os.O_RDONLY), *((request[name], os.O_WRONLY) for name in ("stdout", "stderr")))
    for number, (path, mode) in enumerate(modes):
        if path is None:
            os.close(number)
            continue
        opened = os.open(path, mode)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = request["arguments"]
    asked = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [str(Path(sys.argv[0]).resolve().parent), *(place for place in asked if place)]


def run_to_the_end(main: Callable[[], object]) -> None:
    """Call ``main`` and end like an interpreter, but without freeing the objects of all modules.

    Freeing them copies memory shared with the server, which takes three times as long as a small run.
    """
    try:
        main()
        status = None
    except SystemExit as end:
        status = end.code
        if not isinstance(status, int | None):
            raise
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError:  # the interpreter then prints a message and chooses the status
        sys.exit(status)
    os._exit(status or 0)


def serve_scripts(modules: Iterable[str]) -> None:
    """Import further modules and answer requests; a forked process runs its script at the end."""
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # otherwise a garbage collection copies memory shared with the server
    asked = serve()
    if asked is not None:
        become(asked)
        spawned = fork_template()
        run_to_the_end(spawned or partial(runpy.run_path, sys.argv[0], run_name="__main__"))
