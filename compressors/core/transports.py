"""Transports of payloads: an all-reduce of values, and an all-gather with a sum in every process."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from compressors.core.checks import MethodError
from compressors.core.codec import Codec, Compressed
from compressors.core.communicator import Communicator
from compressors.core.fields import declared, payload_of
from compressors.core.segments import Input, Step
from compressors.kernels.choice import backend_of


class Transport(Protocol):
    """Computes the mean of payloads over all workers."""

    @property
    def rounds(self) -> bool:
        """Whether values are rounded for the transfer; the rounding error is put back into p - C(p)."""

    def require_fit(self, codec: Codec) -> None:
        """Raise ``ValueError`` for a codec that does not fit the transport."""

    def mean(
        self, inputs: list[Input], compressed: list[Compressed], step: Step, communicator: Communicator
    ) -> list[Tensor]:
        """The mean over all n workers of the decoded payloads of each segment, [d]."""


@dataclass(frozen=True)
class AllReduce:
    """For linear codecs: all workers select the same elements, so an all-reduce averages the values."""

    rounds = False

    def require_fit(self, codec: Codec) -> None:
        """Raise ``ValueError`` unless ``codec`` is linear and its payload has one field of values."""
        if not codec.traits.linear:
            raise ValueError(f"AllReduce needs a codec that is linear, got {codec!r}")
        if payload_of(codec).values is None:
            raise ValueError(f"AllReduce needs a codec that sends one field of values, got {codec!r}")

    def mean(
        self, inputs: list[Input], compressed: list[Compressed], step: Step, communicator: Communicator
    ) -> list[Tensor]:
        backend = backend_of(inputs[0].rows.device)
        name = declared(type(compressed[0].payloads[0])).values or "values"
        if step.number == 0:
            _require_equal_lengths([name], compressed, communicator)
        rows = [_values(own.payloads, name, len(own.sent)) for own in compressed]
        averages = communicator.all_reduce_mean(rows, backend.add_rows)
        means = []
        for given, own, average in zip(inputs, compressed, averages, strict=True):
            mean = own.out if own.out is not None else given.rows.new_zeros(given.size)
            payload, share = own.payloads[0], len(own.sent) // len(own.payloads)
            if share > 1:  # number of workers in the first payload
                payload = type(payload)(*[x[: x.shape[0] // share] for x in payload])
            backend.add(payload._replace(**{name: average}), mean, own)
            means.append(mean)
        return means


@dataclass(frozen=True)
class AllGather:
    """For any codec: every worker receives all payloads and adds them in worker order.

    Because of this order the mean is bit-identical for every number of processes.
    """

    rounds = False

    def require_fit(self, codec: Codec) -> None:
        """Raise ``ValueError`` for a payload that does not declare its fields."""
        payload_of(codec)

    def mean(
        self, inputs: list[Input], compressed: list[Compressed], step: Step, communicator: Communicator
    ) -> list[Tensor]:
        backend = backend_of(inputs[0].rows.device)
        everyones, lengths = _gather(inputs, compressed, communicator)
        if not backend.adds_joined(everyones[0], compressed[0]):
            pieces = [
                _one_each(payload, i, lengths, communicator.size) for i, payload in enumerate(everyones)
            ]
            return backend.means(pieces, inputs, compressed, communicator.size)
        counts = lengths.get(declared(compressed[0].origin[0].payload).values or "")
        return backend.means_of_joined(everyones, counts, inputs, compressed, communicator.size)


@dataclass(frozen=True)
class SenderMean(AllGather):
    """An all-gather, with the mean of a coordinate over the workers that sent it; 0 if none did."""

    def mean(
        self, inputs: list[Input], compressed: list[Compressed], step: Step, communicator: Communicator
    ) -> list[Tensor]:
        everyones, lengths = _gather(inputs, compressed, communicator)
        means = []
        for number, (given, own) in enumerate(zip(inputs, compressed, strict=True)):
            codec, of_codec = own.origin
            # Half precision is summed, and senders are counted, in fp32.
            wide = torch.promote_types(given.rows.dtype, torch.float32)
            total, senders = given.rows.new_zeros(2, given.size, dtype=wide)
            for worker, payload in enumerate(
                _one_each(everyones[number], number, lengths, communicator.size)
            ):
                at = of_codec._replace(worker=worker)
                codec.add(payload, total, at)
                senders[codec.positions(payload, given.size, at)] += 1
            means.append(total.div_(senders.clamp_(min=1)).to(given.rows.dtype))
        return means


def _values(payloads: Any, name: str, num_rows: int) -> Tensor:
    """Field ``name`` of each worker, [W, k]."""
    values: list[Tensor] = [getattr(payload, name) for payload in payloads]
    if len(values) == 1:
        return values[0].view(num_rows, values[0].shape[0] // num_rows)
    return torch.stack(values)


def _gather(
    inputs: list[Input], compressed: list[Compressed], communicator: Communicator
) -> tuple[list[Any], dict[str, np.ndarray]]:
    """All workers' payloads, one per segment, and the lengths [S, n] of fields whose lengths differ.

    Workers are in order. One collective sends one field of all segments; for a ragged codec, it sends all
    fields with the same number of elements per entry. The counts of a ragged codec are sent first. Other
    codecs send the same number of entries from every worker, so the lengths are known.
    """
    codec, _ = compressed[0].origin
    kind_of = declared(codec.payload).fields
    fields = {
        name: [join([getattr(payload, name) for payload in own.payloads]) for own in compressed]
        for name in kind_of
    }
    lengths: dict[str, np.ndarray] = {}  # [S, n] of the fields whose lengths differ
    if codec.traits.ragged:
        counts = np.array([own.counts for own in compressed])
        largest = max(given.size for given in inputs)
        counts = communicator.all_gather_counts(counts, largest)  # [S, n]
        for every in sorted({own.elements_per_entry or 0 for own in kind_of.values()} - {0}):
            alike = [name for name, own in kind_of.items() if own.elements_per_entry == every]
            of_fields, kinds = [fields[name] for name in alike], [kind_of[name].kind for name in alike]
            lengths |= dict.fromkeys(alike, -(-counts // every))
            arrived = communicator.all_gather_ragged(of_fields, lengths[alike[0]], kinds)
            fields.update(zip(alike, arrived, strict=True))
    others = {name: own for name, own in kind_of.items() if name not in lengths}
    _require_equal_lengths(list(others), compressed, communicator)
    for name, field in others.items():
        fields[name] = communicator.all_gather_fields(fields[name], field.kind)
    return [codec.payload(*of_segment) for of_segment in zip(*fields.values(), strict=True)], lengths


def _one_each(payload: Any, segment: int, lengths: dict[str, np.ndarray], num_workers: int) -> list[Any]:
    """One payload per worker from a joined payload."""
    pieces = []
    for name, whole in payload._asdict().items():
        if name in lengths:
            pieces.append(whole.split(lengths[name][segment].tolist()))
        else:
            pieces.append(whole.view(num_workers, len(whole) // num_workers).unbind())
    return [type(payload)(*of_worker) for of_worker in zip(*pieces, strict=True)]


def _require_equal_lengths(
    names: list[str], compressed: list[Compressed], communicator: Communicator
) -> None:
    """Raise ``MethodError`` unless each of the ``names`` has the same lengths on all workers.

    On those of this process in every step, and in the first step, by a collective, on all.
    """
    codec, step = compressed[0].origin
    local = communicator.local_workers
    found = [[[getattr(p, name).numel() for p in own.payloads] for own in compressed] for name in names]
    unequal = [any(len(set(lengths)) > 1 for lengths in of_name) for of_name in found]
    if names and communicator.world_size > 1 and step.number == 0:
        totals = [[sum(lengths) for lengths in of_name] for of_name in found]
        row = torch.tensor(totals, device=communicator.device) // len(local)
        everyones = communicator.collect(row.expand(len(local), -1, -1).contiguous())
        differs = (everyones != everyones[0]).any(2).any(0).tolist()
        unequal = [one or other for one, other in zip(unequal, differs, strict=True)]
    if any(unequal):
        raise MethodError(
            f"{codec.payload.__name__}.{names[unequal.index(True)]} must have the same length on all "
            f"workers: its Field has no elements_per_entry, or {type(codec).__name__} must declare "
            "Traits(ragged=True)"
        )


def join(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]
