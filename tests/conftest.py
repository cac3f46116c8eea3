"""Without a GPU Triton's kernels run in its interpreter: asked for before triton is loaded."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
