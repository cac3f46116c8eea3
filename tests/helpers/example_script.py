"""Script that runs the example script at the given path, also without torchvision's operators."""

import runpy
import sys

import data.torchvision_shim  # noqa: F401  torchmetrics needs it with a CPU build of torch

if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__main__")
