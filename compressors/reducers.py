"""The two ways to turn codecs into reducers: gather what was sent, or average it on the way."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.api import Codec, Context, Reduced, Reducer, Segment
from compressors.encoding import Encoded, can_check, encode_all, errors_of, norms_of, sum_all
from compressors.fields import payload_of, values_of
from compressors.kernels.choice import kernels_for, require_choice
from compressors.norms import squared_norms
from compressors.payloads import divide
from compressors.wire import draws


@dataclass(frozen=True)
class AllReduceMean:
    """For linear codecs: all workers chose the same coordinates, so only values travel, averaged.

    Raises ``ValueError`` for a codec that is not linear, or whose payload does not have one field of values.
    """

    codec: Codec
    kernels: str = field(default="auto", repr=False)  # which change no result

    adds_gradient = measures_input = True

    @property
    def checks_input(self) -> bool:
        return can_check(self.codec, self.kernels)

    def __post_init__(self) -> None:
        require_choice("AllReduceMean.kernels", self.kernels)
        if not self.codec.linear:
            raise ValueError(f"AllReduceMean.codec must be linear, got {self.codec!r}")
        if payload_of(self.codec).values is None:
            raise ValueError(f"AllReduceMean.codec must send one field of values, got {self.codec!r}")

    def init(self, segments: list[Segment]) -> tuple[()]:
        return ()

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        local = sum_all(self.codec, segments, context, communicator, self.kernels)
        positions = {} if context.tell_positions else None
        mean, sent = {}, {}
        averages = communicator.mean([summed.rows for summed in local], local[0].add_up)
        for segment, summed, average in zip(segments, local, averages, strict=True):
            num_rows, size = segment.rows.shape
            if summed.spread is None:
                mean[segment.name] = segment.rows.new_zeros(size)
                summed.payload(average).add_to(mean[segment.name])
            else:
                mean[segment.name] = summed.spread(average)
            if summed.sent is None:
                payload = summed.payload(average)
                counts = count_sent([payload], np.array([payload.num_sent(size)]), segment.edges)
                sent[segment.name] = counts.repeat(num_rows, 0)
            else:
                sent[segment.name] = summed.sent
            if positions is not None:
                positions[segment.name] = summed.payload(average).positions(size).repeat(num_rows)
        remainder = {s.name: s.rows for s in segments}
        norms, error = norms_of(segments, local), errors_of(segments, local)
        each = payload_of(self.codec).has_a_value_each
        exact = each and local[0].rows.dtype == segments[0].rows.dtype
        return Reduced(mean, remainder, sent, norms, error, positions, True, each, exact), state


@dataclass(frozen=True)
class GatherMean:
    """For any codec: every payload travels to every worker and is added up in worker order.

    Adding in worker order makes the mean the same, bit for bit, for every number of processes. Raises
    ``ValueError`` for a codec whose payload does not declare its fields.
    """

    codec: Codec
    kernels: str = field(default="auto", repr=False)  # which change no result

    adds_gradient = measures_input = True

    @property
    def checks_input(self) -> bool:
        return can_check(self.codec, self.kernels)

    def __post_init__(self) -> None:
        require_choice("GatherMean.kernels", self.kernels)
        payload_of(self.codec)

    @cached_property
    def _is_drawn(self) -> bool:
        return draws(self.codec)

    def init(self, segments: list[Segment]) -> tuple[()]:
        return ()

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        local = encode_all(self.codec, segments, context, communicator, self.kernels)
        # Several workers' payload is added in one go where a sum runs in order; on a GPU it does not.
        in_one_go = hasattr(self.codec, "encode_rows") and segments[0].rows.device.type == "cpu"
        largest = max(segment.rows.shape[1] for segment in segments)
        everyones = _gather(local, self.codec, in_one_go, communicator, largest)
        means = _means(everyones, segments, local, communicator.size, self.kernels)
        mean = {segment.name: own for segment, own in zip(segments, means, strict=True)}
        sent: dict[str, np.ndarray] = {}
        positions = {} if context.tell_positions else None
        for segment, own in zip(segments, local, strict=True):
            is_counted = own.sent is not None
            sent[segment.name] = own.sent if is_counted else count_sent(own.parts, own.counts, segment.edges)
            if positions is not None:
                size = segment.rows.shape[1]
                positions[segment.name] = join([part.positions(size) for part in own.parts])
        remainder = {s.name: s.rows for s in segments}
        norms, error = norms_of(segments, local), errors_of(segments, local)
        each = payload_of(self.codec).has_a_value_each
        exact = each and values_of(self.codec, local[0].parts[0]).dtype == segments[0].rows.dtype
        return Reduced(mean, remainder, sent, norms, error, positions, self._is_drawn, each, exact), state


@dataclass(frozen=True)
class MeasureInput:
    """Tells ||p||^2 of what ``inner`` is given to reduce, in the steps that ask for it.

    For reducers that do not do so themselves, as those of codecs do, which say ``measures_input``.
    """

    inner: Reducer
    kernels: str = "auto"

    def __repr__(self) -> str:
        return repr(self.inner)  # measuring is no part of the method

    @property
    def adds_gradient(self) -> bool:
        return getattr(self.inner, "adds_gradient", False)

    def init(self, segments: list[Segment]) -> Any:
        return self.inner.init(segments)

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        if not context.measure_input:
            return self.inner.reduce(segments, state, context, communicator)
        segments = [segment.added() for segment in segments]
        found = squared_norms(segments, self.kernels)  # before inner empties the rows
        norms = {s.name: norm for s, norm in zip(segments, found, strict=True)}
        reduced, state = self.inner.reduce(segments, state, context, communicator)
        return reduced._replace(input_norm=norms), state


def _means(
    everyones: list[list[Any]], segments: list[Segment], local: list[Encoded], num_workers: int, kernels: str
) -> list[Tensor]:
    """What all workers sent per segment, added up in their order and divided by their number, [d] each."""
    compiled = kernels_for(kernels, segments[0].rows.device.type)
    if compiled is None or len(everyones[0]) > 1 or not compiled.can_average(everyones[0][0]):
        return [_mean(of, s.rows, num_workers) for of, s in zip(everyones, segments, strict=True)]
    rooms = [
        own.room if own.room is not None else s.rows.new_zeros(s.rows.shape[1])
        for own, s in zip(local, segments, strict=True)
    ]
    compiled.write_means([payload for (payload,) in everyones], num_workers, rooms)
    return rooms


def _mean(payloads: list[Any], rows: Tensor, num_workers: int) -> Tensor:
    size = rows.shape[1]
    wide = torch.promote_types(rows.dtype, torch.float32)  # half precision adds up in fp32
    total = torch.zeros(size, dtype=wide, device=rows.device)
    for payload in payloads:
        payload.add_to(total)
    return divide(total, num_workers).to(rows.dtype)


def count_sent(parts: list[Any], counts: np.ndarray, edges: Tensor) -> np.ndarray:
    """Elements sent per worker and layer [W, L] int64, for layers between ``edges`` [L + 1]."""
    num_layers = edges.numel() - 1
    if num_layers == 1:
        return counts[:, None]
    size = int(edges[-1])
    if (counts == size).all():  # each of them once
        return np.diff(edges.numpy())[None].repeat(len(counts), 0)
    positions = join([p.positions(size).cpu() for p in parts]).numpy()
    layers = np.searchsorted(edges.numpy()[1:-1], positions, side="right")
    owners = np.arange(len(counts)).repeat(counts)
    sent = np.bincount(owners * num_layers + layers, minlength=len(counts) * num_layers)
    return sent.reshape(-1, num_layers)


def _gather(
    local: list[Encoded], codec: Codec, in_one_go: bool, communicator: Any, largest: int
) -> list[list[Any]]:
    """What the local workers send, per segment, to what all workers send: payloads, workers in order.

    There is one payload per worker or, ``in_one_go``, one in all. ``largest`` is a segment's largest size.

    All segments travel together, and of a ragged codec all fields of one length. Its counts travel ahead of
    them; any other codec sends as much from every worker, so the lengths are known.
    """
    declared = payload_of(codec).fields
    fields = {
        name: [join([getattr(part, name) for part in encoded.parts]) for encoded in local]
        for name in declared
    }
    lengths: dict[str, np.ndarray] = {}  # [S, n] of the fields whose lengths differ
    if codec.ragged:
        counts = np.array([encoded.counts for encoded in local])
        counts = communicator.gather_counts(counts, largest)  # [S, n]
        for every in sorted({own.elements_per_entry or 0 for own in declared.values()} - {0}):
            alike = [name for name, own in declared.items() if own.elements_per_entry == every]
            of_fields, kinds = [fields[name] for name in alike], [declared[name].kind for name in alike]
            lengths |= dict.fromkeys(alike, -(-counts // every))
            fields.update(
                zip(alike, communicator.gather_ragged(of_fields, lengths[alike[0]], kinds), strict=True)
            )
    others = [name for name in declared if name not in lengths]
    for name in others:
        for encoded in local:
            _require_as_long(codec, name, encoded)
    for name in others:
        fields[name] = communicator.gather_equal(fields[name], declared[name].kind)
    stacked = [codec.payload(*of_segment) for of_segment in zip(*fields.values(), strict=True)]
    if in_one_go:
        return [[payload] for payload in stacked]
    everyones = []
    for segment, payload in enumerate(stacked):
        pieces = []
        for name, whole in payload._asdict().items():
            if name in lengths:
                pieces.append(whole.split(lengths[name][segment].tolist()))
            else:
                pieces.append(whole.view(communicator.size, -1).unbind())
        everyones.append([codec.payload(*of_worker) for of_worker in zip(*pieces, strict=True)])
    return everyones


def _require_as_long(codec: Codec, name: str, encoded: Encoded) -> None:
    """Raise ``ValueError`` unless all local workers' entries of a field are as many."""
    lengths = {
        getattr(part, name).numel() / rows
        for part, rows in zip(encoded.parts, encoded.workers_per_part, strict=True)
    }
    if len(lengths) > 1:
        raise ValueError(
            f"{codec.payload.__name__}.{name} must be as long on all workers: FIELDS says no "
            f"elements_per_entry, or {type(codec).__name__} is not ragged"
        )


def join(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]
