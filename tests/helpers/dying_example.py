"""Script with compression whose process 1 kills itself once: dying_example.py STEP SCRIPT [options].

It dies at the end of the reduction that is number STEP, counted from 0.
"""

import os
import runpy
import signal
import sys

from total_error import CompressionState

if __name__ == "__main__":
    last, usual = int(sys.argv[1]), CompressionState.close_step
    sys.argv = sys.argv[2:]
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1":

        def close_step(self: CompressionState) -> None:
            if self.step == last:
                os.kill(os.getpid(), signal.SIGKILL)
            usual(self)

        CompressionState.close_step = close_step
    runpy.run_path(sys.argv[0], run_name="__main__")
