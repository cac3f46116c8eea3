"""Transport of a reduce-scatter: every worker sends each owner of a part what it has for that part.

The mean then has this worker's part alone, and zeros elsewhere. Owners add in worker order, half precision in
fp32, so a part of the mean has the bits that an all-gather gives it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    INDICES,
    METADATA,
    VALUES,
    Codec,
    Communicator,
    Field,
    Input,
    Sparse,
    Step,
    backend_of,
)
from compressors.core.codec import Compressed
from compressors.core.fields import declared, payload_of, values_of
from compressors.core.payloads import divide, index_dtype

Edges = tuple[int, ...]  # boundaries of the owners' parts of a segment, n + 1 numbers from 0 to d


def sends_entries(codec: Codec) -> bool:
    """Whether C(p) consists of the values in the payload, at its positions."""
    as_sent = codec.traits.exact or type(codec).add is Codec.add
    return payload_of(codec).has_a_value_each and not codec.traits.dense and as_sent


class _Outgoing(NamedTuple):
    """What a worker sends of one segment."""

    codec: Codec
    step: Step
    edges: Edges
    fields: Mapping[str, Field]
    parts: list[Any]  # a payload per owner; None for an owner without elements
    counts: list[int]  # elements sent to each owner
    of_entries: bool  # whether the payloads are entries of the whole segment


@dataclass(frozen=True)
class ToOwners:
    """A transport for one worker per process: an all-to-all, in which every worker owns a part.

    ``owners`` are the n workers of the mean; other workers have a mean and owners of their own.
    """

    edges: Mapping[str, Edges] = field(repr=False)
    owners: range

    rounds = False

    def require_fit(self, codec: Codec) -> None:
        """Raise ``ValueError`` for a payload that does not declare its fields."""
        payload_of(codec)

    def mean(
        self, inputs: list[Input], compressed: list[Compressed], step: Step, communicator: Communicator
    ) -> list[Tensor]:
        """The mean of this worker's part of every segment, and zeros elsewhere, [d]."""
        outgoing = _outgoing(compressed, [self.edges[given.name] for given in inputs])
        place = communicator.rank - self.owners.start
        arrived = self._exchange(outgoing, place, communicator)
        means = []
        for given, own, sent in zip(inputs, compressed, outgoing, strict=True):
            mean = own.out if own.out is not None else given.rows.new_zeros(given.size)
            means.append(mean)
            if sent.parts[place] is not None:
                part = mean[sent.edges[place] : sent.edges[place + 1]]
                part.copy_(self._mean_of(sent, next(arrived), part, place))
        return means

    def _mean_of(self, sent: _Outgoing, payloads: list[Any], part: Tensor, place: int) -> Tensor:
        """The mean of one part, [d], in fp32 or wider."""
        total = torch.zeros_like(part, dtype=torch.promote_types(part.dtype, torch.float32))
        steps = [sent.step._replace(worker=worker) for worker in self.owners]
        if sent.of_entries:
            payloads = [own._replace(indices=own.indices - sent.edges[place]) for own in payloads]
            for own in payloads:
                own.add_to(total)
        else:
            backend_of(part.device).decode_rows(sent.codec, [payloads], [total], [steps])
        if not sent.codec.traits.of_senders:
            return divide(total, len(self.owners))
        senders = torch.zeros_like(total)
        for own, step in zip(payloads, steps, strict=True):
            senders[own.indices if sent.of_entries else sent.codec.positions(own, len(part), step)] += 1
        return total.div_(senders.clamp_(min=1))

    def _exchange(
        self, outgoing: list[_Outgoing], place: int, communicator: Communicator
    ) -> Iterator[list[Any]]:
        """The payloads of all owners, in worker order, for this worker's part of each segment with one."""
        to_each = [[own for own in outgoing if own.parts[v] is not None] for v in range(len(self.owners))]
        first, here, n = outgoing[0], to_each[place], len(self.owners)
        traits = first.codec.traits
        if traits.ragged or (first.of_entries and not traits.linear):
            numbers = [own.counts[v] for v, segments in enumerate(to_each) for own in segments]
            small = torch.tensor(numbers).to(index_dtype(max(own.edges[-1] for own in outgoing)))
            of_owners = list(map(len, to_each)), [len(here)] * n
            (received,) = self._trade([small], *of_owners, [METADATA], communicator)
            counts = received.view(n, len(here)).numpy().astype(np.int64)  # [n, S] elements that arrive
        else:  # equal on all workers
            counts = np.array([[own.counts[place] for own in here]] * n, dtype=np.int64)
        alike: dict[int | str, list[str]] = {}  # names of fields that have equal lengths
        for name, declaration in first.fields.items():
            alike.setdefault(declaration.elements_per_entry or name, []).append(name)
        found: dict[str, list[tuple[Tensor, ...]]] = {}  # [S][n] entries that arrive, by field
        for every, names in alike.items():
            if isinstance(every, int):
                lengths = -(-counts // every)
            else:  # equal on all workers
                lengths = np.array(
                    [[len(getattr(own.parts[place], every)) for own in here]] * n, dtype=np.int64
                )
            leaving = [sum(len(getattr(own.parts[v], names[0])) for own in to_each[v]) for v in range(n)]
            fields = [
                torch.cat([getattr(own.parts[v], name) for v in range(n) for own in to_each[v]])
                for name in names
            ]
            kinds = [first.fields[name].kind for name in names]
            arrived = self._trade(fields, leaving, lengths.sum(1).tolist(), kinds, communicator)
            for name, entries in zip(names, arrived, strict=True):
                pieces = entries.split(lengths.flatten().tolist())
                found[name] = [pieces[row :: len(here)] for row in range(len(here))]
        payloads = []
        for row, own in enumerate(here):
            of_workers = zip(*[found[name][row] for name in own.fields], strict=True)
            payloads.append(
                [own.parts[place]._replace(**dict(zip(own.fields, of, strict=True))) for of in of_workers]
            )
        return iter(payloads)

    def _trade(
        self,
        fields: list[Tensor],
        leaving: list[int],
        arriving: list[int],
        kinds: list[str],
        communicator: Communicator,
    ) -> list[Tensor]:
        """The entries of every field that arrive from all owners; ``leaving`` and ``arriving`` [n] count
        them."""
        counts = np.zeros((2, 1, communicator.size), dtype=np.int64)
        counts[:, 0, self.owners.start : self.owners.stop] = leaving, arriving
        received, _ = communicator.all_to_all_ragged(
            [[field] for field in fields], counts[0], kinds, counts[1]
        )
        return [tensor for (tensor,) in received]


def _outgoing(compressed: list[Compressed], edges: list[Edges]) -> list[_Outgoing]:
    """Per segment the payload, divided among the owners of its parts."""
    if not sends_entries(compressed[0].origin[0]):
        return [_undivided(own, ends) for own, ends in zip(compressed, edges, strict=True)]
    entries = []
    for own, ends in zip(compressed, edges, strict=True):
        (payload,), (codec, step) = own.payloads, own.origin
        values, positions = values_of(payload), codec.positions(payload, ends[-1], step)
        order = positions.argsort()  # a method of a user may send them in another order
        values, positions = values[order], positions[order]
        entries.append((values, positions))
    device = entries[0][0].device
    bounds = torch.tensor(edges, device=device)
    firsts = torch.stack([torch.searchsorted(p, own) for (_, p), own in zip(entries, bounds, strict=True)])
    found = []
    for own, ends, (values, positions), places in zip(
        compressed, edges, entries, firsts.tolist(), strict=True
    ):
        codec, step = own.origin
        fields = {"values": Field(VALUES, 1)} | (
            {} if codec.traits.linear else {"indices": Field(INDICES, 1)}
        )
        indices = positions.to(index_dtype(ends[-1]))
        parts = [
            Sparse(values[first:last], indices[first:last]) if start < stop else None
            for (start, stop), (first, last) in zip(pairwise(ends), pairwise(places), strict=True)
        ]
        counts = [last - first for first, last in pairwise(places)]
        found.append(_Outgoing(codec, step, ends, fields, parts, counts, True))
    return found


def _undivided(own: Compressed, edges: Edges) -> _Outgoing:
    """The payload of a segment of which one owner has all elements."""
    (payload,), (codec, step) = own.payloads, own.origin
    parts = [payload if start < stop else None for start, stop in pairwise(edges)]
    fields, counts = declared(codec.payload).fields, [int(own.counts[0])] * len(parts)
    return _Outgoing(codec, step, edges, fields, parts, counts, False)
