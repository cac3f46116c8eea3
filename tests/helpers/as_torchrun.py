"""run.py in two processes with the environment that torchrun sets; the arguments are those of run.py."""

import os
import runpy
import socket
import sys
from pathlib import Path

PROCESSES = 2


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(PROCESSES):
        child = os.fork()
        if child == 0:
            ranks = dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
            sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(PROCESSES))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), **ranks, **sizes)
            sys.argv[0] = "run.py"
            sys.path[0] = str(Path.cwd())
            runpy.run_path("run.py", run_name="__main__")
            return
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main()
