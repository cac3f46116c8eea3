"""Adapter for compressors written for GRACE: compress(tensor, name), decompress(tensors, ctx).

Xu et al., 2021, "GRACE: a compressed communication framework for distributed machine learning",
https://github.com/sands-lab/grace. Bytes: those of the tensors that ``compress`` returns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from compressors.api import Codec, Field, Step, Traits, require


@runtime_checkable
class GraceCompressor(Protocol):
    """What GRACE asks of a compressor."""

    def compress(self, tensor: Tensor, name: str) -> tuple[Sequence[Tensor], Any]:
        """Tensors to be sent, and what this worker keeps to read those of others."""

    def decompress(self, tensors: Sequence[Tensor], ctx: Any) -> Tensor:
        """A tensor like the one compressed."""


class Message(NamedTuple):
    """Every byte that a worker sends for a segment."""

    body: Annotated[Tensor, Field("message")]  # [bytes] uint8


@dataclass(frozen=True, kw_only=True)
class Grace(Codec):
    """``compressor`` as a codec.

    What other workers send is read with one's own ``ctx``, as GRACE does: neither it nor the sizes of the
    tensors may depend on values. All workers draw from one seed, so that what is drawn may be in it. The
    compressor must remember nothing from step to step: a checkpoint would not hold it. As GRACE does not tell
    which elements were sent, all count as sent. Raises ``ValueError`` for an object without ``compress`` and
    ``decompress``.
    """

    compressor: GraceCompressor
    _contexts: dict[str, tuple[Any, list[Tensor]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # of what was last encoded of a segment: ctx, and empty tensors of the dtypes and shapes sent

    payload = Message
    traits = Traits(exact=False, dense=True, seeded=True)

    def __post_init__(self) -> None:
        name = type(self.compressor).__name__
        fits = isinstance(self.compressor, GraceCompressor)
        require(fits, "Grace.compressor", "an object with compress and decompress", name)

    def encode(self, x: Tensor, step: Step) -> Message:
        devices = [x.device] if x.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(step.derive_seed(shared=True))
            tensors, ctx = self.compressor.compress(x.clone(), step.segment)
        self._contexts[step.segment] = ctx, [tensor.to("meta") for tensor in tensors]
        payload = Message(torch.cat([tensor.contiguous().flatten().view(torch.uint8) for tensor in tensors]))
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Message, out: Tensor, step: Step) -> None:
        ctx, likes = self._contexts[step.segment]
        parts = payload.body.split([like.nbytes for like in likes])
        tensors = [
            part.clone().view(like.dtype).view(like.shape) for part, like in zip(parts, likes, strict=True)
        ]
        out += self.compressor.decompress(tensors, ctx).to(out.dtype).view_as(out)
