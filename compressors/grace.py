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
    """The interface of GRACE's compressors."""

    def compress(self, tensor: Tensor, name: str) -> tuple[Sequence[Tensor], Any]:
        """The tensors to send, and the context ``ctx`` for ``decompress``."""

    def decompress(self, tensors: Sequence[Tensor], ctx: Any) -> Tensor:
        """The decoded tensor, with the shape of the input."""


class Message(NamedTuple):
    """All bytes that a worker sends for a segment."""

    body: Annotated[Tensor, Field("message")]  # [bytes] uint8


@dataclass(frozen=True, kw_only=True)
class Grace(Codec):
    """``compressor`` as a codec.

    The payloads of other workers are decoded with the local ``ctx``, as in GRACE: neither ``ctx`` nor the
    sizes of the tensors may depend on values. All workers draw from one seed, so ``ctx`` may contain random
    draws. The compressor must not keep a state between steps, because a checkpoint would not contain it.
    GRACE does not report which elements are sent, so all elements count as sent. Raises ``ValueError`` for an
    object without ``compress`` and ``decompress``.
    """

    compressor: GraceCompressor
    _contexts: dict[str, tuple[Any, list[Tensor]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # by segment, from its last encoding: ctx, and empty tensors of the dtypes and shapes sent

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
