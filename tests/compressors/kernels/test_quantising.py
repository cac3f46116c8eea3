"""Compiled loops of quantisers against ``encode`` and ``add``: payloads, residuals and sums, bit for bit."""

from typing import Any

import pytest
import torch

from compressors.api import Codec, Step
from compressors.ef_sign import EFSign
from compressors.kernels.choice import backend_of
from compressors.kernels.cpu.quantising import CHUNK
from compressors.kernels.reference import Backend
from compressors.natural import Natural
from compressors.one_bit import OneBit
from compressors.qsgd import QSGD
from compressors.terngrad import TernGrad

KERNELS, REFERENCE = backend_of(torch.device("cpu")), Backend()
CODECS = {
    "ef_sign": EFSign(),
    "one_bit": OneBit(),
    "one_bit per layer": OneBit(per="layer"),
    "natural": Natural(),
    "terngrad": TernGrad(),
    "terngrad in 2 bits": TernGrad(clip=None, values_per_byte=4),
    "qsgd": QSGD(),
    "qsgd in 7 bits": QSGD(bits=None, levels=40, norm="l2", bucket_size=24),
    "qsgd in 9 bits": QSGD(bits=9, bucket_size=1000),
}
SIZES = (1, 2, 7, 9, 255, 257, CHUNK + 1, 2 * CHUNK + 613)
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def outcome(backend: Backend, codec: Codec, x: torch.Tensor, step: Step) -> list[torch.Tensor]:
    """Payload, residual and decoded sum; fp32 is viewed as int32, so that -0 and 0 differ."""
    rest, out = x.clone(), torch.randn(len(x), generator=torch.Generator().manual_seed(1))
    payload: Any = backend.encode(codec, rest, step)
    backend.decode(codec, payload, out, step)
    found = [*payload, rest, out]
    return [field.view(torch.int32) if field.dtype == torch.float32 else field for field in found]


def vector(size: int) -> torch.Tensor:
    x = torch.randn(size, generator=torch.Generator().manual_seed(size)) ** 3
    special = torch.tensor([0.0, -0.0, 1e-40, -1e-45, 1e30, 1.0])
    x[size // 2 :][: len(special)] = special[: size - size // 2]
    return x


@pytest.mark.parametrize("size", SIZES)
def test_random_bits(size: int) -> None:
    device = torch.device("cpu")
    found = [backend.random_bits(12345, size, device) for backend in (KERNELS, REFERENCE)]
    assert torch.equal(*found)


@every_codec
def test_equals_reference(codec: Codec) -> None:
    for size in SIZES:
        third = size // 3
        for shapes in (
            ((size,),),
            ((third,), (size - third,)),
            ((0,), (size - third,), (0,), (third,)),
            ((size % 9,), (size // 9, 3, 3), (0, 4)),
        ):
            step = Step(5, size, segment="a", shapes=shapes)
            own, expected = (outcome(b, codec, vector(size), step) for b in (KERNELS, REFERENCE))
            for one, other in zip(own, expected, strict=True):
                assert torch.equal(one, other), (size, shapes)


@every_codec
def test_the_loops_are_used(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops take contiguous fp32 entries; for other entries the codec's ``encode`` is called."""
    monkeypatch.setattr(type(codec), "encode", lambda *_: pytest.fail("the definition was asked"))
    KERNELS.encode(codec, vector(100), Step(0, 0, shapes=((100,),)))
    for x in (vector(100).double(), vector(200)[::2], vector(100).half()):
        with pytest.raises(pytest.fail.Exception, match="the definition was asked"):
            KERNELS.encode(codec, x, Step(0, 0, shapes=((100,),)))


@every_codec
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(codec: Codec, bad: float) -> None:
    x = vector(600)
    x[300] = bad
    rest, out = (
        part.view(torch.float32) for part in outcome(KERNELS, codec, x, Step(0, 0, shapes=((600,),)))[-2:]
    )
    assert not (rest.isfinite().all() and out.isfinite().all())
