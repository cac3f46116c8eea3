"""Triton's kernels of quantisers against ``encode`` and ``add`` on the CPU, bit for bit.

On a GPU, or in Triton's interpreter without one.
"""

from typing import Any

import interpreter
import numpy as np
import pytest
import torch
from few_digits import DEVICE

from compressors.api import Codec, Step
from compressors.core.randomness import random_bits
from compressors.ef_sign import EFSign
from compressors.kernels.reference import Backend
from compressors.natural import Natural
from compressors.one_bit import OneBit
from compressors.qsgd import QSGD
from compressors.terngrad import TernGrad

pytest.importorskip("triton", reason="a GPU's kernels are Triton's")

from compressors.kernels.gpu import backend as gpu
from compressors.kernels.gpu import trial

interpreter.install()
KERNELS, REFERENCE = gpu.GpuKernels(), Backend()
CODECS = {
    "ef_sign": EFSign(),
    "one_bit": OneBit(),
    "natural": Natural(),
    "terngrad": TernGrad(),
    "terngrad in 2 bits": TernGrad(clip=None, values_per_byte=4),
    "qsgd": QSGD(),
    "qsgd in 7 bits": QSGD(bits=None, levels=40, norm="l2", bucket_size=264),
    "qsgd in 15 bits": QSGD(bits=15, bucket_size=1000),
    "qsgd with one level": QSGD(bits=2),
}
SHAPES = {
    5000: ((1700,), (0,), (20, 30), (2700,)),  # several tiles and pieces
    301: ((1,), (300,)),
    7: ((7,),),
    1: ((1,), (0,)),
}
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def vector(size: int) -> torch.Tensor:
    x = torch.randn(size, generator=torch.Generator().manual_seed(size)) ** 3
    special = torch.tensor([0.0, -0.0, 1e-40, -1e-45, 1e30, 1.0])
    x[size // 2 :][: len(special)] = special[: size - size // 2]
    return x


def bits(fields: Any) -> list[torch.Tensor]:
    """On the CPU; fp32 is viewed as int32, so that -0 and 0 differ."""
    return [own.cpu().view(torch.int32) if own.dtype == torch.float32 else own.cpu() for own in fields]


@every_codec
def test_rows_of_any_sizes_together(codec: Codec) -> None:
    """Payloads, residuals and sums of two workers' payloads, which are decoded in one launch."""
    steps = [Step(5, 3, segment=f"{size}", shapes=shapes) for size, shapes in SHAPES.items()]
    rows = [vector(size) for size in SHAPES]
    ours, theirs = [row.to(DEVICE) for row in rows], [row.clone() for row in rows]
    payloads = KERNELS.encode_rows(codec, ours, steps)
    expected = REFERENCE.encode_rows(codec, theirs, steps)
    outs = [row.flip(0) for row in rows]
    sums = [out.to(DEVICE) for out in outs]
    KERNELS.decode_rows(codec, [[own, own] for own in payloads], sums, [[step, step] for step in steps])
    REFERENCE.decode_rows(codec, [[own, own] for own in expected], outs, [[step, step] for step in steps])
    for own, other in zip(payloads, expected, strict=True):
        assert all(map(torch.equal, bits(own), bits(other)))
    assert all(map(torch.equal, bits(ours), bits(theirs)))
    assert all(map(torch.equal, bits(sums), bits(outs)))


@every_codec
def test_the_kernels_are_used(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take contiguous fp32 entries; for other entries the codec's ``encode`` is called."""
    monkeypatch.setattr(type(codec), "encode", lambda *_: pytest.fail("the definition was asked"))
    step = Step(0, 0, shapes=((100,),))
    KERNELS.encode(codec, vector(100).to(DEVICE), step)
    for x in (vector(100).double(), vector(200)[::2], vector(100).half()):
        with pytest.raises(pytest.fail.Exception, match="the definition was asked"):
            KERNELS.encode(codec, x.to(DEVICE), step)


@every_codec
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(codec: Codec, bad: float) -> None:
    x = vector(600)
    x[300] = bad
    rest, out, step = x.to(DEVICE), torch.zeros(600, device=DEVICE), Step(0, 0, shapes=((600,),))
    KERNELS.decode(codec, KERNELS.encode(codec, rest, step), out, step)
    assert not (rest.isfinite().all() and out.isfinite().all())


def test_the_trial_of_a_gpu_notices_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device(DEVICE)
    assert trial.rounds_right(EFSign(), device)
    encode = trial.rounding.encode

    def wrong(*words: Any) -> list[Any]:
        (packed, lengths), *others = encode(*words)
        return [(packed ^ 1, lengths), *others]

    monkeypatch.setattr(trial.rounding, "encode", wrong)
    assert not trial.rounds_right(EFSign(), device)


@pytest.mark.parametrize("size", [0, 1, 3000])
def test_random_bits(size: int) -> None:
    found = KERNELS.random_bits(12345, size, torch.device(DEVICE))
    assert np.array_equal(found.cpu().numpy().view(np.uint32), random_bits(12345, size))
