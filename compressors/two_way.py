"""Two-way compression: the means that servers send back are compressed too, with the servers' own residual.

Tang et al., 2019, "DoubleSqueeze", https://arxiv.org/abs/1905.05957, with the server's work divided among the
workers: worker w is the server of the w-th part of every segment, as in 1-bit Adam (Tang et al., 2021,
https://arxiv.org/abs/2102.02888). Parts are padded with zeros to one length, and each part is compressed
separately. The servers' residual is sent in later steps. Bytes per element: those of ``up``, plus those of
``down`` for the part of which a worker is the server.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import (
    Codec,
    Communicator,
    Input,
    Knob,
    Plan,
    Reduced,
    Reducer,
    Segment,
    State,
    Step,
    Traits,
    backend_of,
    kinds_of,
    require,
    zeros_of,
)
from compressors.core.fields import declared, payload_of
from compressors.parts.gaussian import gaussian_error, refuse_growth
from compressors.parts.rounds import begin, end


class Served(NamedTuple):
    """The state: n times the server residual of worker w in part w; zeros in other parts.

    Its mean over workers is the servers' residual, also after rows are redistributed to other workers.
    """

    residual: dict[str, Tensor]  # [W, d] per segment


@dataclass(frozen=True, kw_only=True)
class TwoWay(Reducer):
    """Workers send parts encoded by ``up`` to the servers, which send means encoded by ``down`` to all.

    Raises ``ValueError`` for codecs that are not dense: their payloads have different lengths.
    """

    up: Codec
    down: Codec

    def __post_init__(self) -> None:
        for name, codec in (("up", self.up), ("down", self.down)):
            fits = isinstance(codec, Codec) and codec.traits.dense
            rule = "a codec that sends every element"
            require(fits, f"TwoWay.{name}", rule, type(codec).__name__)
            payload_of(codec)

    @property
    def traits(self) -> Traits:
        up, down = self.up.traits, self.down.traits
        return Traits(exact=False, dense=True, seeded=up.seeded or down.seeded, relays=True)

    @property
    def knob(self) -> Knob | None:
        """That of ``up``; with the same one of ``down``, both together."""
        if self.up.knob is None:
            return None
        knob = self.up.knob.within("up")
        if self.down.knob != self.up.knob:
            return knob
        return knob._replace(others={**knob.others, **self.down.knob.within("down").factors})

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kinds_of(self.up) + kinds_of(self.down)))

    def check(self, plan: Plan) -> None:
        for codec in (self.up, self.down):
            codec.check(plan._replace(feedback="", needs_contraction=False))
        refuse_growth(self.up, plan, f"TwoWay.up, {type(self.up).__name__},")
        error = gaussian_error(self.down)  # servers keep a residual under every feedback
        rule = f"a codec with an error of at most ||x||^2 on a Gaussian vector x, not {error:.3g} ||x||^2"
        require(error <= 1, "TwoWay.down", rule, type(self.down).__name__)

    def init(self, segments: list[Segment]) -> Served:
        return Served(zeros_of(segments))

    def reduce(
        self, inputs: list[Input], state: Served, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        segments, norms = begin(inputs)
        mean = {s.name: self._reduce(s, state.residual[s.name], step, communicator) for s in segments}
        return end(segments, mean, norms), state

    def _reduce(self, segment: Segment, residual: Tensor, step: Step, communicator: Communicator) -> Tensor:
        """The mean [d]. Leaves p - C(p) in the segment's rows, and the servers' residual in ``residual`` [W,
        d]."""
        size, workers = segment.rows.shape[1], communicator.size
        length = -(-size // workers)
        own = [
            step._replace(segment=f"{segment.name}/{part}", shapes=((length,),)) for part in range(workers)
        ]
        parts, unsent = (_in_parts(rows, workers, length) for rows in (segment.rows, residual))
        own_residuals = []
        for row, server in enumerate(communicator.local_workers):
            own_residuals.append(unsent[row, server].clone())
            unsent[row, server] = 0
        parts += unsent  # 0 unless the rows of ``residual`` belonged to other workers before
        unsent.zero_()
        arrived = [field.unbind() for field in self._to_servers(parts, own, communicator)]
        wide = torch.promote_types(residual.dtype, torch.float32)
        totals = [row.to(wide) for row in own_residuals]
        payloads = [
            [self.up.payload(*of_worker) for of_worker in zip(*of_server, strict=True)]
            for of_server in zip(*arrived, strict=True)
        ]
        steps = [
            [own[server]._replace(worker=worker) for worker in range(workers)]
            for server in communicator.local_workers
        ]
        backend_of(segment.rows.device).decode_rows(self.up, payloads, totals, steps)
        means = [total.div_(workers) for total in totals]
        found = self._to_all(means, own, communicator)
        for row, server in enumerate(communicator.local_workers):
            unsent[row, server] = means[row] * workers
        segment.rows.copy_(parts.flatten(1)[:, :size])
        residual.copy_(unsent.flatten(1)[:, :size])
        return found.flatten()[:size].to(residual.dtype)

    def _to_servers(self, parts: Tensor, own: list[Step], communicator: Communicator) -> list[Tensor]:
        """Send ``parts`` [W, n, m]; returns the fields of ``up`` for the local servers, [W, n, ...] each."""
        steps = [step._replace(worker=worker) for worker in communicator.local_workers for step in own]
        payloads = backend_of(parts.device).encode_rows(self.up, list(parts.flatten(0, 1)), steps)
        return [
            communicator.all_to_all(torch.stack(fields).unflatten(0, parts.shape[:2]), declared_as.kind)
            for fields, declared_as in zip(
                zip(*payloads, strict=True), declared(self.up.payload).fields.values(), strict=True
            )
        ]

    def _to_all(self, means: list[Tensor], own: list[Step], communicator: Communicator) -> Tensor:
        """The decoded means of all servers' parts, [n, m]; their residual is left in ``means``."""
        steps = [step._replace(segment=f"{step.segment}/mean", worker=w) for w, step in enumerate(own)]
        backend = backend_of(means[0].device)
        replies = backend.encode_rows(self.down, means, [steps[w] for w in communicator.local_workers])
        gathered = [
            communicator.all_gather(torch.stack(fields), declared_as.kind)
            for fields, declared_as in zip(
                zip(*replies, strict=True), declared(self.down.payload).fields.values(), strict=True
            )
        ]
        found = means[0].new_zeros(len(own), len(means[0]))
        payloads = [[self.down.payload(*of_server)] for of_server in zip(*gathered, strict=True)]
        backend.decode_rows(self.down, payloads, list(found), [[step] for step in steps])
        return found


def _in_parts(rows: Tensor, count: int, length: int) -> Tensor:
    """A copy of ``rows`` [W, d] as [W, count, length], padded with zeros."""
    padded = rows.new_zeros(len(rows), count * length)
    padded[:, : rows.shape[1]] = rows
    return padded.view(len(rows), count, length)
