"""Selection from long vectors by the kernels, compared with the reference and with known results."""

import torch
from torch import Tensor

from benchmarks.gpu.measuring import Options, Record
from benchmarks.gpu.sizes import DENSITY, QUICK, SIZES, fits, threshold_of, whole
from compressors.api import Codec, Step
from compressors.hard_threshold import HardThreshold
from compressors.kernels.reference import Backend
from compressors.random_k import RandomK
from compressors.top_k import TopK
from trainers.step.layout import WHOLE

MANY_ROWS = (8, 3)  # rows of 1 B entries, together more than 2^31; the first number that fits is used


def check_size(options: Options, record: Record, label: str, size: int) -> None:
    """Compare the kernels' payload, residual, error and norm with the reference's, bit for bit."""
    from compressors.kernels.gpu.backend import GpuKernels

    gradient = torch.randn(1, size, device=options.device)
    for codec in (HardThreshold(threshold=threshold_of(DENSITY)), TopK(density=DENSITY)):
        found = []
        for backend in (GpuKernels(), Backend()):
            # 0 + 1 g is exact, so one or two operations give the same bits.
            rest = torch.zeros_like(gradient)
            (own,) = backend.compress([codec], [whole(gradient, rest)], Step(0, 0), range(1))
            (payload,) = own.payloads
            found.append([payload.values, payload.indices, own.error, own.input_norm, rest])
        same = [torch.equal(ours, reference) for ours, reference in zip(*found, strict=True)]
        names = ("values", "indices", "error", "norm", "residual")
        differ = [name for name, equal in zip(names, same, strict=True) if not equal]
        what = f"{type(codec).__name__} at {label}, beside the reference on the device"
        record("checks", what=what, result="equal" if not differ else f"differ: {', '.join(differ)}")


def check_many(options: Options, record: Record) -> None:
    """Check the selection in as many rows as fit."""
    size = QUICK["tiny"] if options.quick else SIZES["1 B"]
    for num_rows in MANY_ROWS[1:] if options.quick else MANY_ROWS:
        if fits(options, record, f"{num_rows} rows of {size:,}", 10 * num_rows * size):
            _check_planted(options, record, num_rows, size)
            break


def _check_planted(options: Options, record: Record, num_rows: int, size: int) -> None:
    """Check that a few entries among zeros are selected in rows with more than 2^31 entries together."""
    from compressors.kernels.gpu.backend import GpuKernels

    device, kernels = options.device, GpuKernels()
    edges = {0, 1, 255, 256, 4095, 4096, size // 2, size - 257, size - 1}
    at = torch.tensor(sorted(edges), device=device)
    signs = torch.arange(len(at), device=device) % 2 * 2.0 - 1
    gradient = torch.zeros(num_rows, size, device=device)
    rest = torch.zeros_like(gradient)
    what = f"in {num_rows} rows of {size:,}, {num_rows * size:,} entries"

    def look(codec: Codec, expected: Tensor, values: Tensor, norm: int) -> None:
        (own,) = kernels.compress([codec], [whole(gradient, rest)], Step(0, 0), range(num_rows))
        (payload,) = own.payloads
        left = own.error.flatten().tolist() == num_rows * [norm - len(values)]
        fine = (
            torch.equal(payload.indices.long(), expected.repeat(num_rows))
            and torch.equal(payload.values, values.repeat(num_rows))
            and own.input_norm.flatten().tolist() == num_rows * [norm]
            and left
        )
        record("checks", what=f"{type(codec).__name__} {what}", result="found" if fine else "WRONG")

    gradient[:, at] = signs
    look(HardThreshold(threshold=0.5), at, signs, len(at))
    rest.zero_()
    look(TopK(density=(len(at) + 0.5) / size), at, signs, len(at))
    gradient.fill_(1.0)  # their squares have an exact sum
    rest.zero_()
    codec, step = RandomK(density=DENSITY), Step(0, 0, segment=WHOLE)
    drawn = torch.from_numpy(codec.rule(size, step, range(1)).positions[0]).to(device)
    look(codec, drawn, torch.ones(len(drawn), device=device), size)
