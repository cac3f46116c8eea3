"""Composition of sparsifiers: the second chooses among the values that the first one keeps."""

from dataclasses import dataclass

from torch import Tensor

from compressors.api import Codec, Context, squared_norm
from compressors.checks import require
from compressors.density import Constant
from compressors.fields import payload_of, values_of
from compressors.payloads import Sparse, index_dtype


@dataclass(frozen=True, kw_only=True)
class Chain:
    """``first``, then ``second`` on the values that ``first`` keeps; both send exact values.

    What ``second`` leaves goes back to where ``first`` took it from. For example a random block,
    and of it the largest tenth: ``Chain(first=RandomBlock(density=0.1), second=TopK(density=0.1))``. Raises
    ``ValueError`` for a codec with a density schedule, which nothing would follow.
    """

    first: Codec
    second: Codec

    payload = Sparse

    def __post_init__(self) -> None:
        for codec in (self.first, self.second):
            exact = payload_of(codec).has_a_value_each
            require(exact, "Chain", "of codecs that send one value an element", type(codec).__name__)
            schedule = getattr(codec, "schedule", Constant())
            require(isinstance(schedule, Constant), "Chain", "of constant densities", schedule)

    @property
    def linear(self) -> bool:
        return self.first.linear and self.second.linear

    @property
    def ragged(self) -> bool:
        return self.first.ragged or self.second.ragged

    @property
    def randomized(self) -> bool:
        return self.first.randomized or self.second.randomized

    def encode(self, x: Tensor, context: Context) -> Sparse:
        outer = self.first.encode(x, context)
        kept = values_of(self.first, outer)
        inner = self.second.encode(kept, context._replace(segment=f"{context.segment}/second"))
        outer.add_to(x)  # its values are now what the second one did not take
        positions = outer.positions(x.numel())[inner.positions(kept.numel())]
        ascending = positions.argsort()
        values = values_of(self.second, inner)[ascending]
        return Sparse(values, positions[ascending].to(index_dtype(x.numel())))

    def error_bound(self, x: Tensor) -> float:
        return squared_norm(x).item()  # no more than everything is lost
