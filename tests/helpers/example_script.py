"""Script that runs the example script at the given path, also without torchvision's operators."""

import runpy
import sys

import data.torchvision_shim  # noqa: F401  torchmetrics needs it with a CPU build of torch

if __name__ == "__main__":
    sys.argv = sys.argv[1:]  # as the script would have it
    runpy.run_path(sys.argv[0], run_name="__main__")
