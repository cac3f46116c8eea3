"""A Python that has imported what takes seconds, and forks a process for every script it is asked to run.

Each one has the arguments, environment, folder and open files that a new interpreter would be given, and ends
as one does. A request is a line of JSON on stdin; the answers on stdout are a line with the process's id and,
when it has ended, one with its exit status. What else to import is named on the command line.
"""

import importlib
import json
import os
import runpy
import sys
from pathlib import Path

# None of it is the project's; wandb is left out, since it reads the environment when it is imported
IMPORTS = ("hydra", "numba", "scipy.sparse", "scipy.special", "torch", "torch._dynamo", "torch.distributed")


def serve() -> dict | None:
    """Answer requests until there are no more; in a forked process, what it was asked to run."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            return json.loads(line)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def become(request: dict) -> None:
    """Take the place of a new interpreter that runs the script, in a session of its own if asked for."""
    if request["session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
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


if __name__ == "__main__":
    sys.path.insert(1, str(Path.cwd()))  # where modules of the project are, if they are asked for
    for name in (*IMPORTS, *sys.argv[1:]):
        importlib.import_module(name)
    asked = serve()
    if asked is not None:
        become(asked)
        runpy.run_path(sys.argv[0], run_name="__main__")
