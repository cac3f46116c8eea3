"""Script with local steps whose process 1 kills itself once: dying_example.py STEP SCRIPT [options]."""

import os
import runpy
import signal
import sys

from total_error import LocalState

if __name__ == "__main__":
    last, usual = int(sys.argv[1]), LocalState.step
    sys.argv = sys.argv[2:]
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":

        def step(self: LocalState) -> bool:
            if self.local_step == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return usual(self)

        LocalState.step = step
    runpy.run_path(sys.argv[0], run_name="__main__")
