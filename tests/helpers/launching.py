"""Entry point of processes for the tests of the launcher: its argument names the way to end."""

import os
import signal
import sys
import time

from compressors.core.checks import MethodError
from trainers.launch.isolation import JobError
from trainers.launch.processes import PeerLostError
from trainers.launch.stopping import StoppedError


def run(name: str) -> None:
    first = os.environ["RANK"] == "0"
    if name == "refuse":
        raise JobError("all of them")
    if name == "stop":
        raise StoppedError(signal.SIGTERM, "stopped after step 3" if first else "")
    if name == "be asked" and first:
        os.kill(os.getppid(), signal.SIGTERM)
    if name == "be asked twice":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if first:
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(1)
            os.kill(os.getppid(), signal.SIGINT)
    if name in ("die", "fail", "err", "lose", "leave", "vanish", "interrupt", "be mistaken") and not first:
        if name == "vanish":
            os._exit(0)
        if name == "lose":
            raise PeerLostError(3)
        if name == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "fail":
            raise OSError(28, "No space left on device", "there")
        if name == "err":
            raise MethodError("a codec's mistake")
        if name == "leave":
            sys.exit(3)
        raise KeyError("what")
    if name != "succeed":
        time.sleep(600)
