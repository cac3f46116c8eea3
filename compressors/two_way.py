"""Two-way compression: what the servers send back is compressed, too, with a residual of their own.

Tang et al., 2019, "DoubleSqueeze", https://arxiv.org/abs/1905.05957, with the server's work shared out among
the workers: worker w is the server of the w-th part of every segment, as in 1-bit Adam (Tang et al., 2021,
https://arxiv.org/abs/2102.02888). Each part is compressed by itself. The servers' residual is sent later.
Bytes per element: those of ``up``, and those of ``down`` for the part that a worker serves.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from compressors.api import (
    Codec,
    Communicator,
    Input,
    Plan,
    Reduced,
    Reducer,
    Segment,
    State,
    Step,
    Traits,
    kinds_of,
    zeros_of,
)
from compressors.checks import require
from compressors.fields import declared, payload_of
from compressors.rounds import begin, end


class Served(NamedTuple):
    """The state: n times what worker w, as a server, has not sent of the means of part w; zeros elsewhere.

    Its mean over the workers is what the servers owe, also when the workers' rows are dealt out to others.
    """

    residual: dict[str, Tensor]  # [W, d] per segment


@dataclass(frozen=True, kw_only=True)
class TwoWay(Reducer):
    """Every worker sends its parts by ``up`` to their servers, which send the means to all by ``down``.

    Raises ``ValueError`` for codecs that do not send something of every element: others would send as much
    from every worker only by chance.
    """

    up: Codec
    down: Codec

    def __post_init__(self) -> None:
        for name, codec in (("up", self.up), ("down", self.down)):
            fits = isinstance(codec, Codec) and codec.traits.dense
            rule = "a codec that sends something of every element"
            require(fits, f"TwoWay.{name}", rule, type(codec).__name__)
            payload_of(codec)

    @property
    def traits(self) -> Traits:
        up, down = self.up.traits, self.down.traits
        return Traits(exact=False, dense=True, seeded=up.seeded or down.seeded, relays=True)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kinds_of(self.up) + kinds_of(self.down)))

    def check(self, plan: Plan) -> None:
        self.up.check(plan)
        self.down.check(plan)

    def init(self, segments: list[Segment]) -> Served:
        return Served(zeros_of(segments))

    def reduce(
        self, inputs: list[Input], state: Served, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        segments, norms = begin(inputs)
        mean = {s.name: self._reduce(s, state.residual[s.name], step, communicator) for s in segments}
        return end(segments, mean, norms), state

    def _reduce(self, segment: Segment, owed: Tensor, step: Step, communicator: Communicator) -> Tensor:
        """The mean [d]. p - C(p) is left in the segment's rows, and what servers owe in ``owed`` [W, d]."""
        (num_rows, size), workers = segment.rows.shape, communicator.size
        length = -(-size // workers)
        of_part = step._replace(segment=segment.name, shapes=((length,),))
        parts = pad(segment.rows, (0, workers * length - size)).view(num_rows, workers, length)
        payloads = [
            [self.up.encode(part, of_part._replace(worker=worker, segment=f"{segment.name}/{number}"))
             for number, part in enumerate(row)]
            for worker, row in zip(communicator.ranks, parts, strict=True)
        ]  # fmt: skip
        segment.rows.copy_(parts.flatten(1)[:, :size])
        arrived = [
            communicator.all_to_all(torch.stack([torch.stack(row) for row in field]), own.kind)
            for field, own in zip(_by_field(payloads), declared(self.up.payload).fields.values(), strict=True)
        ]
        wide = torch.promote_types(owed.dtype, torch.float32)
        unsent = pad(owed, (0, workers * length - size)).view(num_rows, workers, length)
        replies = []
        for row, server in enumerate(communicator.ranks):
            total = unsent[row, server].to(wide)
            for worker in range(workers):
                payload = self.up.payload(*(field[row, worker] for field in arrived))
                self.up.add(payload, total, of_part._replace(worker=worker))
            total /= workers
            reply = of_part._replace(worker=server, segment=f"{segment.name}/server")
            replies.append(self.down.encode(total, reply))
            unsent[row, server] = total * workers
        owed.copy_(unsent.flatten(1)[:, :size])
        kinds = [own.kind for own in declared(self.down.payload).fields.values()]
        told = [
            communicator.all_gather(torch.stack(list(field)), kind)
            for field, kind in zip(zip(*replies, strict=True), kinds, strict=True)
        ]
        means = torch.zeros(workers, length, dtype=wide, device=owed.device)
        for server, mean in enumerate(means):
            reply = of_part._replace(worker=server, segment=f"{segment.name}/server")
            self.down.add(self.down.payload(*(field[server] for field in told)), mean, reply)
        return means.flatten()[:size].to(owed.dtype)


def _by_field(payloads: list[list[Any]]) -> list[list[list[Tensor]]]:
    """Payloads [W][n] to their fields, [fields][W][n]."""
    count = len(payloads[0][0])
    return [[[payload[field] for payload in row] for row in payloads] for field in range(count)]
