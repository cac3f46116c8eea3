"""From segments to what the local workers send: by a kernel where one can run, else worker by worker."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import Codec, Context, Fault, Segment
from compressors.fields import payload_of, require_own
from compressors.kernels.choice import kernels_for
from compressors.norms import squared_norms
from compressors.payloads import Sparse

_GROUP = 2**16  # elements that a RowCodec is given at once: few enough for its temporaries to stay in cache


class Encoded(NamedTuple):
    """What the W local workers send for one segment."""

    parts: list[Any]  # payloads, each of one worker or of several in a row
    workers_per_part: list[int]
    counts: np.ndarray  # [W] int64, elements that each worker sends
    sent: np.ndarray | None = None  # [W, L] int64, the same per layer, where a kernel counted them
    error: Tensor | None = None  # [W, L] float64, ||p - C(p)||^2 per layer, where a kernel summed it
    input_norm: Tensor | None = None  # [W, L] float64, ||p||^2 per layer, where the context asks for it
    room: Tensor | None = None  # [d] zeros for the mean, where a kernel has left some


class Summed(NamedTuple):
    """What the local workers send for one segment with a linear codec."""

    rows: Tensor  # [W, k] values
    add_up: Callable[[Tensor], Tensor]  # rows [m, k] to their sum [k], one row after the other
    payload: Callable[[Tensor], Any]  # values [k] to the payload that stands for them
    sent: np.ndarray | None = None  # as in ``Encoded``
    error: Tensor | None = None
    input_norm: Tensor | None = None
    room: Tensor | None = None
    spread: Callable[[Tensor], Tensor] | None = None  # what adding that payload to zeros [d] gives, compiled


def can_check(codec: Codec, kernels: str) -> bool:
    """Whether p of ``codec`` is best checked on the way: by kernels on a CPU it takes no time of its own."""
    return hasattr(codec, "rule") and kernels_for(kernels, "cpu") is not None


def encode_all(
    codec: Codec, segments: list[Segment], context: Context, communicator: Any, kernels: str
) -> list[Encoded]:
    """Payloads of the local workers in their order; ``rows`` keep what was not sent."""
    selections = _by_kernel(codec, segments, context, communicator, kernels)
    if selections is None:
        segments, norms = _measured(segments, context, kernels)
        return [
            _encode(codec, segment, context, communicator)._replace(input_norm=norm)
            for segment, norm in zip(segments, norms, strict=True)
        ]
    found = []
    num_rows = len(communicator.ranks)
    for rule, selected in selections:
        if selected.indices is None:
            payload = rule.payload(selected.values, num_rows)
        else:
            payload = Sparse(selected.values, selected.indices)
        require_own(codec, payload)
        sent = selected.sent
        counts = sent[:, 0] if sent.shape[1] == 1 else sent.sum(1)
        found.append(Encoded([payload], [num_rows], counts, *selected[2:]))
    return found


def sum_all(
    codec: Codec, segments: list[Segment], context: Context, communicator: Any, kernels: str
) -> list[Summed]:
    """``encode_all`` for a linear codec, whose values are to be added up over the workers."""
    selections = _by_kernel(codec, segments, context, communicator, kernels)
    num_rows = len(communicator.ranks)
    found = []
    if selections is not None:
        compiled = kernels_for(kernels, segments[0].rows.device.type)
        for segment, (rule, selected) in zip(segments, selections, strict=True):
            size = segment.rows.shape[1]
            spread = partial(compiled.spread, rule, size, selected.room) if compiled.can_spread else None
            rows = selected.values.view(num_rows, len(selected.values) // num_rows)
            found.append(Summed(rows, compiled.add_rows, partial(_of_one, rule), *selected[2:], spread))
        return found
    segments, norms = _measured(segments, context, kernels)
    for segment, norm in zip(segments, norms, strict=True):
        encoded = _encode(codec, segment, context, communicator)
        first, rows = encoded.parts[0], encoded.workers_per_part[0]
        template = first._replace(**{name: f[: len(f) // rows] for name, f in first._asdict().items()})
        name = payload_of(codec).values
        values = torch.cat([getattr(part, name) for part in encoded.parts])
        payload = partial(_with_values, template, name)
        found.append(
            Summed(values.view(num_rows, len(values) // num_rows), _add_rows, payload, input_norm=norm)
        )
    return found


def _measured(
    segments: list[Segment], context: Context, kernels: str
) -> tuple[list[Segment], list[Tensor | None]]:
    """The segments with their sums formed and, if the context asks for them, their squared norms."""
    segments = [segment.added() for segment in segments]
    if context.refuse is not None:
        context.refuse(_faults(segments))
    if not context.measure_input:
        return segments, [None] * len(segments)
    return segments, squared_norms(segments, kernels)


def _faults(segments: list[Segment]) -> list[Fault]:
    return [
        Fault(row, segment.name, layer)
        for segment in segments
        for row, entries in enumerate(segment.rows)
        for layer, own in enumerate(entries.split(segment.edges.diff().tolist()))
        if not own.isfinite().all()
    ]


def _by_kernel(
    codec: Codec, segments: list[Segment], context: Context, communicator: Any, kernels: str
) -> list[tuple[Any, Any]] | None:
    """Rule and outcome per segment; None where no kernel can run."""
    compiled = kernels_for(kernels, segments[0].rows.device.type)
    if compiled is None or not hasattr(codec, "rule") or not compiled.can_run(segments):
        return None
    workers = communicator.ranks
    rules = [codec.rule(s.rows.shape[1], context._replace(segment=s.name), workers) for s in segments]
    refuse = {} if context.refuse is None else {"refuse": context.refuse}
    selected = compiled.select(segments, rules, measure=context.measure_input, **refuse)
    return list(zip(rules, selected, strict=True))


def _add_rows(rows: Tensor) -> Tensor:
    """[m, k] to [k], one row after the other: a library's own sum may take them in another order."""
    first, *others = rows
    total = first.clone()
    for row in others:
        total += row
    return total


def _of_one(rule: Any, values: Tensor) -> Any:
    return rule.payload(values, 1)


def _with_values(template: Any, name: str, values: Tensor) -> Any:
    return template._replace(**{name: values})


def errors_of(segments: list[Segment], local: Sequence[Encoded | Summed]) -> dict[str, Tensor] | None:
    """Per segment what the kernels say of the error, None where there were none."""
    if local[0].error is None:
        return None
    return {segment.name: encoded.error for segment, encoded in zip(segments, local, strict=True)}


def norms_of(segments: list[Segment], local: Sequence[Encoded | Summed]) -> dict[str, Tensor] | None:
    """Per segment ||p||^2, None where it was not asked for."""
    if local[0].input_norm is None:
        return None
    return {segment.name: encoded.input_norm for segment, encoded in zip(segments, local, strict=True)}


def _encode(codec: Codec, segment: Segment, context: Context, communicator: Any) -> Encoded:
    context = context._replace(segment=segment.name)
    rows, workers = segment.rows, communicator.ranks
    num_rows, size = rows.shape
    if not (hasattr(codec, "encode_rows") and rows.is_contiguous()):
        parts = [
            codec.encode(row, context._replace(worker=worker))
            for row, worker in zip(rows, workers, strict=True)
        ]
        require_own(codec, parts[0])
        return Encoded(parts, [1] * len(parts), np.array([p.num_sent(size) for p in parts]))
    group = max(1, _GROUP // size)
    if group >= num_rows:
        part, count = codec.encode_rows(rows, context, workers)
        require_own(codec, part)
        return Encoded([part], [num_rows], count)
    parts, counts = [], []
    for start in range(0, num_rows, group):
        part, count = codec.encode_rows(rows[start : start + group], context, workers[start : start + group])
        parts.append(part)
        counts.append(count)
    require_own(codec, parts[0])
    return Encoded(parts, [len(c) for c in counts], np.concatenate(counts))
