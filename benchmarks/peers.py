"""Public implementations of compression that run on a CPU, for ``benchmarks/compress.py``.

torch's PowerSGD hook, with feedback and warm start as in ``compressor=powersgd``, in a group of one process;
and torch's quantization to 8 bits, which rounds to the nearest level and keeps no residual. torch's
quantization hooks need a GPU.
"""

import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from compressors.api import Segment

RANK = 4  # of compressor=powersgd
POWERSGD, QUANTIZE = "torch's PowerSGD hook", "torch's quantization to 8 bits"
PEERS = {"powersgd": POWERSGD, "qsgd": QUANTIZE}  # by compressor


class _Bucket:
    """The part of DistributedDataParallel's bucket that the hook reads."""

    def __init__(self, segments: list[Segment]) -> None:
        self.flat = torch.cat([segment.rows[0] for segment in segments])
        self.shapes = [shape or (1,) for segment in segments for shape in segment.shapes]

    def buffer(self) -> Tensor:
        return self.flat

    def gradients(self) -> list[Tensor]:
        parts = self.flat.split([torch.Size(shape).numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


def peers(segments: list[Segment]) -> dict[str, Callable[[], object]]:
    """One reduction of one worker's segments by each implementation; opens a process group of one process."""
    if not dist.is_initialized():
        store = dist.FileStore(f"{tempfile.mkdtemp()}/store", 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    state = PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=2)
    state.iter = 2  # earlier steps are not compressed
    bucket = _Bucket(segments)
    drawn = bucket.flat.clone()

    def hook() -> None:
        powerSGD_hook(state, bucket).wait()

    def quantize() -> None:
        torch.quantize_per_tensor_dynamic(drawn, torch.qint8, False)

    return {POWERSGD: hook, QUANTIZE: quantize}
