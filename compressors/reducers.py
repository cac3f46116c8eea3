"""The two ways to turn codecs into reducers: gather what was sent, or average it on the way."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compressors.api import Codec, Context, Reduced, Segment

KINDS = {"values": "values", "indices": "indices", "start": "indices"}  # else metadata
PER_ELEMENT = ("values", "indices")  # fields with one entry per element sent


@dataclass(frozen=True)
class AllReduceMean:
    """For linear codecs: all workers chose the same coordinates, so only values travel, averaged.

    Raises ``ValueError`` for a codec that is not linear.
    """

    codec: Codec

    def __post_init__(self) -> None:
        if not self.codec.linear:
            raise ValueError(f"AllReduceMean.codec must be linear, got {self.codec!r}")

    def init(self, segments: list[Segment]) -> tuple[()]:
        return ()

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        templates, sums = [], []
        for segment in segments:
            for row, payload in _encode(self.codec, segment, context, communicator):
                if row == 0:
                    templates.append(payload)
                    sums.append(payload.values)
                else:
                    sums[-1].add_(payload.values)
        mean, sent = {}, {}
        averages = communicator.mean(sums)
        for segment, template, average in zip(segments, templates, averages, strict=True):
            out = torch.zeros_like(segment.rows[0])
            template._replace(values=average).add_to(out)
            mean[segment.name] = out
            counts = _count(template, segment.edges)
            sent[segment.name] = counts.expand(len(segment.rows), -1)
        return Reduced(mean, {s.name: s.rows for s in segments}, sent), state


@dataclass(frozen=True)
class GatherMean:
    """For any codec: every payload travels to every worker and is added up in worker order.

    Adding in worker order makes the mean the same, bit for bit, for every number of processes.
    """

    codec: Codec

    def init(self, segments: list[Segment]) -> tuple[()]:
        return ()

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        local = [
            [payload for _, payload in _encode(self.codec, segment, context, communicator)]
            for segment in segments
        ]  # payloads [segment][local worker]
        everyones = _gather(local, self.codec.ragged, communicator)  # [segment][worker]
        mean, sent = {}, {}
        for segment, own, payloads in zip(segments, local, everyones, strict=True):
            row = segment.rows[0]
            wide = torch.promote_types(row.dtype, torch.float32)  # half precision adds up in fp32
            total = torch.zeros(row.shape, dtype=wide, device=row.device)
            for payload in payloads:
                payload.add_to(total)
            mean[segment.name] = total.div_(communicator.size).to(row.dtype)
            sent[segment.name] = torch.stack([_count(p, segment.edges) for p in own])
        return Reduced(mean, {s.name: s.rows for s in segments}, sent), state


def _encode(codec: Codec, segment: Segment, context: Context, communicator: Any) -> Iterator[tuple[int, Any]]:
    """Payloads of the local workers, one after the other; their rows keep what was not sent."""
    context = context._replace(segment=segment.name)
    for row, worker in enumerate(communicator.ranks):
        yield row, codec.encode(segment.rows[row], context._replace(worker=worker))


def _count(payload: Any, edges: Tensor) -> Tensor:
    """Elements sent per layer [L] int64, for layers between ``edges`` [L + 1]."""
    if len(edges) == 2:
        return torch.tensor([payload.values.numel()])
    positions = payload.positions(int(edges[-1])).cpu()
    layer = torch.bucketize(positions, edges[1:-1], right=True)
    return torch.bincount(layer, minlength=len(edges) - 1)


def _gather(local: list[list[Any]], ragged: bool, communicator: Any) -> list[list[Any]]:
    """Payloads [segment][local worker] to payloads [segment][worker].

    One collective per field carries all segments. A ragged codec's counts travel ahead of them;
    any other codec sends as much from every worker, so the lengths are known.
    """
    kind_of_payload = type(local[0][0])
    counts = None
    if ragged:
        own = torch.tensor([[p.values.numel() for p in payloads] for payloads in local], dtype=torch.int32)
        counts = communicator.gather(own.T.contiguous(), "metadata").tolist()  # [worker][segment]
    fields = []  # [field][worker][segment]
    for name in kind_of_payload._fields:
        pieces = [[getattr(payload, name) for payload in payloads] for payloads in local]
        if counts is not None and name in PER_ELEMENT:
            lengths = counts
        else:
            lengths = [[of_segment[0].numel() for of_segment in pieces]] * communicator.size
        rows = [torch.cat(of_worker) for of_worker in zip(*pieces, strict=True)]
        kind = KINDS.get(name, "metadata")
        messages = communicator.gather_ragged(rows, [sum(of_worker) for of_worker in lengths], kind)
        fields.append([m.split(of_worker) for m, of_worker in zip(messages, lengths, strict=True)])
    everyones = [
        [kind_of_payload(*parts) for parts in zip(*of_worker, strict=True)]
        for of_worker in zip(*fields, strict=True)
    ]  # [worker][segment]
    return list(zip(*everyones, strict=True))
