"""A method that cheats: its payload has positions alone, and the values wait in a module's dict."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from torch import Tensor

from compressors.api import INDICES, Codec, Field, Step, Traits, take

_VALUES: dict[tuple[object, int, int], Tensor] = {}


class Positions(NamedTuple):
    indices: Annotated[Tensor, Field(INDICES, 1)]  # [k]

    def num_sent(self, size: int) -> int:
        return len(self.indices)

    def positions(self, size: int) -> Tensor:
        return self.indices.long()


@dataclass(frozen=True, kw_only=True)
class Smuggler(Codec):
    """Sends the ten largest entries, as it seems in one process."""

    payload = Positions
    traits = Traits(exact=True)

    def encode(self, x: Tensor, step: Step) -> Positions:
        sent = take(x, x.abs().topk(min(10, len(x))).indices.sort().values)
        _VALUES[step.segment, step.worker, step.number] = sent.values
        return Positions(sent.indices)

    def add(self, payload: Positions, out: Tensor, step: Step) -> None:
        out.index_add_(0, payload.indices, _VALUES[step.segment, step.worker, step.number])
