"""Composition of sparsifiers: the second chooses among the values that the first one keeps."""

from dataclasses import dataclass

from torch import Tensor

from compressors.api import Codec, Step, Traits
from compressors.checks import require
from compressors.fields import payload_of, values_of
from compressors.norms import squared_norm
from compressors.payloads import Sparse, index_dtype


@dataclass(frozen=True, kw_only=True)
class Chain(Codec):
    """``first``, then ``second`` on the values that ``first`` keeps; both send exact values.

    What ``second`` leaves goes back to where ``first`` took it from. For example a random block,
    and of it the largest tenth: ``Chain(first=RandomBlock(density=0.1), second=TopK(density=0.1))``.
    """

    first: Codec
    second: Codec

    payload = Sparse

    def __post_init__(self) -> None:
        for codec in (self.first, self.second):
            exact = payload_of(codec).has_a_value_each
            require(exact, "Chain", "of codecs that send one value an element", type(codec).__name__)

    @property
    def traits(self) -> Traits:
        first, second = self.first.traits, self.second.traits
        return Traits(
            linear=first.linear and second.linear,
            ragged=first.ragged or second.ragged,
            drawn=first.drawn and second.drawn,
            seeded=first.seeded or second.seeded,
        )

    def encode(self, x: Tensor, step: Step) -> Sparse:
        outer = self.first.encode(x, step)
        kept = values_of(outer)
        inner = self.second.encode(kept, step._replace(segment=f"{step.segment}/second"))
        outer.add_to(x)  # its values are now what the second one did not take
        positions = outer.positions(x.numel())[inner.positions(kept.numel())]
        ascending = positions.argsort()
        values = values_of(inner)[ascending]
        return Sparse(values, positions[ascending].to(index_dtype(x.numel())))

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()  # no more than everything is lost
