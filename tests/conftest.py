"""Settings for all tests, made before they load anything.

Without a GPU Triton's kernels run in its interpreter. Workers of pytest-xdist share the cores: a thread each.
A shell that starts tests in the background makes them ignore Ctrl-C, and all that they start: not here.
"""

import os
import signal

import torch

signal.signal(signal.SIGINT, signal.default_int_handler)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
