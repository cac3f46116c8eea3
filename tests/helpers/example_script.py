"""Runs an example script where torchvision's operators may be missing; its path is the only argument."""

import runpy
import sys

import data.torchvision_shim  # noqa: F401  which torchmetrics needs beside a CPU build of torch

if __name__ == "__main__":
    runpy.run_path(sys.argv[1], run_name="__main__")
