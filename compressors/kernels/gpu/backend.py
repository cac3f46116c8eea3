"""Kernels for GPUs: Triton's programs on all segments and workers of a step at once."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from compressors.core.checks import MethodError
from compressors.core.codec import Codec, Compressed
from compressors.core.payloads import Sparse, divide
from compressors.core.rules import AtLeast, AtLeastSampled, Drawn, Largest, Rounding, SignsAtLeast
from compressors.core.segments import Input, Segment, Step
from compressors.kernels.conditions import DTYPES, can_add, is_plain
from compressors.kernels.cpu.table import PieceTables
from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import reading as reading
from compressors.kernels.gpu import rounding as rounding
from compressors.kernels.gpu import signing as signing
from compressors.kernels.gpu import sums as sums
from compressors.kernels.gpu import trial as trial
from compressors.kernels.gpu.ranking import take_largest, take_sampled
from compressors.kernels.gpu.table import TILE, DeviceTable, upload
from compressors.kernels.gpu.taking import (
    KEYS,
    Taken,
    add_up,
    begins_of,
    mark,
    numbers_sent,
    take_drawn,
    take_marked,
)
from compressors.kernels.reference import Backend, require_own, rules_of, step_of
from compressors.parts.magnitudes import Histogram
from compressors.parts.surveys import Survey

TAKES: dict[type, Callable[..., Taken]] = {
    AtLeast: take_marked,
    AtLeastSampled: take_sampled,
    Drawn: take_drawn,
    Largest: take_largest,
}
RULES = tuple(TAKES)  # rules with kernels
_LONGEST = 2**31 - 4096  # the kernels count entries of a row in int32, up to the end of the last tile


def reason_unavailable() -> str:
    """The reason why Triton cannot run on this machine's GPU; empty if it can.

    Triton compiles at the first call, needs a C compiler, and supports certain GPUs only.
    """
    if not torch.cuda.is_available():
        return ""
    try:
        GpuKernels().add_rows(torch.ones(2, 1, device="cuda"))
    except Exception as error:  # Triton, its compilers and the driver raise errors of many kinds
        return f"triton {triton.__version__} cannot compile here: {(str(error).splitlines() or [''])[0]}"
    return ""


class GpuKernels(Backend):
    """Triton kernels for contiguous fp32 and fp64 entries; the reference for all other cases.

    ``compress`` waits for the device once, for the number of entries that reach a threshold, or for those of
    several layers that are among a row's largest. No other selection waits.
    """

    name = f"triton {triton.__version__}"

    def __init__(self) -> None:
        self._tables = PieceTables(DeviceTable)
        self._tried: set[tuple[type, torch.dtype, torch.device]] = set()

    def compress(
        self, codecs: Sequence[Codec], inputs: list[Input], step: Step, workers: range
    ) -> list[Compressed]:
        steps = [step_of(step, x.segment) for x in inputs]
        rules = rules_of(codecs, inputs, steps, workers) if _can_run(inputs) else None
        if rules is not None and isinstance(rules[0], SignsAtLeast):
            self._try_signs(inputs[0].rows)
            return self._signs(codecs, inputs, steps, rules)
        if rules is None or not isinstance(rules[0], RULES):
            found = self._rounded(codecs, inputs, steps, workers)
            return super().compress(codecs, inputs, step, workers) if found is None else found
        rows = inputs[0].rows
        with torch.cuda.device_of(rows):  # no effect for CPU tensors
            table = self._tables.of(inputs)
            factor = _factor(table, inputs)
            take = TAKES[type(rules[0])]
            self._try(type(rules[0]), take, rows)
            taken, where, sent, totals = take(table, rules, factor)
            errors, norms = map(table.host.per_segment, totals)
        found = []
        for codec, own, rule, kept, at, counts, error, norm in zip(
            codecs, steps, rules, taken, where, sent, errors, norms, strict=True
        ):
            payload = rule.payload(kept, len(workers)) if isinstance(rule, Drawn) else Sparse(kept, at)
            require_own(codec, payload)
            found.append(Compressed(counts, error, norm, [payload], codec, own))
        return found

    def _signs(
        self, codecs: Sequence[Codec], inputs: list[Input], steps: list[Step], rules: Sequence[SignsAtLeast]
    ) -> list[Compressed]:
        """Compress to signs of large entries, one joined payload for each segment."""
        dtype = inputs[0].rows.dtype
        with torch.cuda.device_of(inputs[0].rows):
            table = self._tables.of(inputs)
            of_rows = table.host.per_row([rule.threshold for rule in rules], DTYPES[dtype])
            thresholds = upload(of_rows, table.device)
            keys = thresholds.view(KEYS[dtype])  # the bits of positive numbers
            mark(table, _factor(table, inputs), keys, blocks.AT_LEAST)
            begins, totals = begins_of(table), add_up(table.sums_of_all, table.adding)
            sent = numbers_sent(table, begins)  # the host waits
            sizes = [int(of_segment.sum()) for of_segment in sent]
            words = torch.empty(sum(sizes), dtype=torch.int32, device=table.device)
            found = (table.pieces, thresholds, keys, table.counts, begins, words)
            signing.pack_signs[(len(table.counts),)](*found)
            norms = table.host.per_segment(totals)
        errors = self.squared_norms([given.segment._replace(rows=given.rows) for given in inputs])
        return [
            Compressed(counts, error, norm, [rule.payload(own)], codec, step)
            for codec, step, rule, own, counts, error, norm in zip(
                codecs, steps, rules, words.split(sizes), sent, errors, norms, strict=True
            )
        ]

    def _rounded(
        self, codecs: Sequence[Codec], inputs: list[Input], steps: list[Step], workers: range
    ) -> list[Compressed] | None:
        """Compress by the codecs' roundings, one joined payload for each segment; None without roundings."""
        roundings = [
            codec.rounding(given.size, step._replace(worker=worker))
            for codec, given, step in zip(codecs, inputs, steps, strict=True)
            for worker in workers
        ]
        known = [own for own in roundings if own is not None]
        can_run = _can_run(inputs) and inputs[0].rows.dtype == torch.float32
        if not can_run or len(known) < len(roundings) or not rounding.are_alike(known):
            return None
        segments, norms = self.form(inputs)
        rows = [row for segment in segments for row in segment.rows]
        self._try_rounding(codecs[0], type(known[0]), rows[0])
        with torch.cuda.device_of(rows[0]):
            fields = [_of_segments(*field, len(workers)) for field in rounding.encode(known, rows)]
        found = []
        errors = self.squared_norms(segments)
        for number, (codec, segment, own, error, norm) in enumerate(
            zip(codecs, segments, steps, errors, norms, strict=True)
        ):
            payload = codec.payload(*(field[number] for field in fields))
            found.append(Compressed(segment.num_elements, error, norm, [payload], codec, own))
        return found

    def form(self, inputs: list[Input]) -> tuple[list[Segment], list[Tensor]]:
        """In one pass over memory."""
        if not _can_run(inputs):
            return super().form(inputs)
        with torch.cuda.device_of(inputs[0].rows):
            table = self._tables.of(inputs)
            mark(table, _factor(table, inputs), table.masks, blocks.NOTHING)
            norms = table.host.per_segment(add_up(table.sums_of_all, table.adding))
        return [given.segment._replace(rows=given.rows) for given in inputs], norms

    def encode(self, codec: Codec, x: Tensor, step: Step) -> Any:
        return self.encode_rows(codec, [x], [step])[0]

    def encode_rows(self, codec: Codec, rows: Sequence[Tensor], steps: Sequence[Step]) -> list[Any]:
        known = _roundings(codec, rows, steps)
        if known is None:
            return [codec.encode(row, step) for row, step in zip(rows, steps, strict=True)]
        self._try_rounding(codec, type(known[0]), rows[0])
        with torch.cuda.device_of(rows[0]):
            fields = [_of_segments(*field, 1) for field in rounding.encode(known, rows)]
        return [codec.payload(*own) for own in zip(*fields, strict=True)]

    def decode(self, codec: Codec, payload: Any, out: Tensor, step: Step) -> None:
        self.decode_rows(codec, [[payload]], [out], [[step]])

    def decode_rows(
        self,
        codec: Codec,
        payloads: Sequence[Sequence[Any]],
        outs: Sequence[Tensor],
        steps: Sequence[Sequence[Step]],
    ) -> None:
        known = _roundings(codec, outs, [of_row[0] for of_row in steps])
        if known is None:
            for row, out, of_row in zip(payloads, outs, steps, strict=True):
                for payload, step in zip(row, of_row, strict=True):
                    codec.add(payload, out, step)
            return
        with torch.cuda.device_of(outs[0]):
            rounding.decode(known, payloads, outs)

    def means(
        self, everyones: list[list[Any]], inputs: list[Input], local: list[Compressed], num_workers: int
    ) -> list[Tensor]:
        """All segments in one launch, if one codec has sent them."""
        codecs, steps = zip(*(own.origin for own in local), strict=True)
        rows = [given.rows[0] for given in inputs]
        if len(set(map(id, codecs))) > 1 or _roundings(codecs[0], rows, steps) is None:
            return super().means(everyones, inputs, local, num_workers)
        total = inputs[0].rows.new_zeros(sum(given.size for given in inputs))
        outs = total.split([given.size for given in inputs])
        of_workers = [num_workers * [step] for step in steps]  # a rounding is decoded the same for all
        self.decode_rows(codecs[0], everyones, outs, of_workers)
        return list(divide(total, num_workers).split([given.size for given in inputs]))

    def random_bits(self, seed: int, size: int, device: torch.device) -> Tensor:
        return rounding.random_bits(seed, size, device)

    def _try_rounding(self, codec: Codec, kind: type, rows: Tensor) -> None:
        """Raise ``MethodError`` if a rounding's kernels are wrong on the GPU of ``rows``; tried once."""
        self._require("rounds to wrong values", kind, rows, lambda: trial.rounds_right(codec, rows.device))

    def _try(self, kind: type, take: Callable[..., Taken], rows: Tensor) -> None:
        """Raise ``MethodError`` if a rule's kernels are wrong on the GPU of ``rows``; tried once."""
        if kind in trial.RULES:
            # A search among all entries is rare, and tried too.
            takes: list[Callable[..., Taken]] = [take] if kind is AtLeast else [take, partial(take, room=0)]
            tried = (partial(trial.is_right, kind, own, rows.dtype, rows.device) for own in takes)
            self._require("selects wrong entries", kind, rows, lambda: all(own() for own in tried))

    def _try_signs(self, rows: Tensor) -> None:
        """The same of signs."""

        def compress(given: Input, rule: SignsAtLeast) -> Compressed:
            return self._signs([Codec()], [given], [Step(0, 0)], [rule])[0]

        is_right = partial(trial.signs_right, compress, rows.dtype, rows.device)
        self._require("sends wrong signs", SignsAtLeast, rows, is_right)

    def _try_reading(self, rows: Tensor) -> None:
        """The same of surveys and searches."""
        is_right = partial(trial.reads_right, reading.survey, reading.search, rows.dtype, rows.device)
        self._require("reads wrong numbers", Survey, rows, is_right)

    def _require(self, fault: str, kind: type, rows: Tensor, is_right: Callable[[], bool]) -> None:
        key = (kind, rows.dtype, rows.device)
        if not rows.is_cuda or key in self._tried:
            return
        if not is_right():
            name = torch.cuda.get_device_name(rows.device)
            raise MethodError(f"{self.name} {fault} on {name}: use kernels=reference")
        self._tried.add(key)

    def add_rows(self, rows: Tensor) -> Tensor:
        if rows.dtype not in DTYPES:
            return super().add_rows(rows)
        rows = rows.contiguous()
        num_rows, size = rows.shape
        out = rows.new_empty(size)
        with torch.cuda.device_of(rows):
            sums.add_rows[(-(-size // TILE),)](rows, out, num_rows, size, TILE=TILE)
        return out

    def adds_joined(self, payload: Any, compressed: Compressed) -> bool:
        return can_add(payload, compressed) or super().adds_joined(payload, compressed)

    def means_of_joined(
        self,
        everyones: list[Any],
        counts: np.ndarray | None,
        inputs: list[Input],
        local: list[Compressed],
        num_workers: int,
    ) -> list[Tensor]:
        if not all(map(can_add, everyones, local)):
            return super().means_of_joined(everyones, counts, inputs, local, num_workers)
        values = torch.cat([payload.values for payload in everyones])
        indices = torch.cat([payload.indices for payload in everyones])
        if counts is None:
            lengths = [len(payload.values) // num_workers for payload in everyones]
            counts = np.array(lengths)[:, None].repeat(num_workers, 1)
        sizes = [x.size for x in inputs]
        begins, starts = counts.cumsum().reshape(counts.shape) - counts, np.cumsum(sizes) - sizes
        sent = np.stack(np.broadcast_arrays(begins, counts, starts[:, None]), 2).swapaxes(0, 1)  # [n, S, 3]
        total = values.new_zeros(sum(sizes))
        tiles = -(-int(counts.max()) // TILE)
        if tiles:
            with torch.cuda.device_of(total):
                for of_worker in upload(np.ascontiguousarray(sent), total.device):
                    grid = (len(sizes) * tiles,)
                    sums.add_sent[grid](of_worker, values, indices, total, tiles, TILE=TILE)
        return list(divide(total, num_workers).split(sizes))

    def survey(
        self, inputs: list[Input], levels: np.ndarray, wanted: np.ndarray, squares: bool = True
    ) -> Survey:
        if not _can_run(inputs):
            return super().survey(inputs, levels, wanted, squares)
        self._try_reading(inputs[0].rows)
        with torch.cuda.device_of(inputs[0].rows):
            table = self._tables.of(inputs)
            return reading.survey(table, _factor(table, inputs), levels, wanted, squares)

    def search(self, inputs: list[Input], thresholds: np.ndarray) -> list[Tensor]:
        if not _can_run(inputs):
            return super().search(inputs, thresholds)
        self._try_reading(inputs[0].rows)
        with torch.cuda.device_of(inputs[0].rows):
            table = self._tables.of(inputs)
            return reading.search(table, _factor(table, inputs), thresholds)

    def count_magnitudes(self, inputs: list[Input], histogram: Histogram) -> None:
        if not _can_run(inputs):
            super().count_magnitudes(inputs, histogram)
            return
        rows = inputs[0].rows
        is_right = partial(trial.counts_right, reading.add_magnitudes, rows.dtype, rows.device)
        self._require("counts wrong magnitudes", Histogram, rows, is_right)
        with torch.cuda.device_of(rows):
            table = self._tables.of(inputs)
            reading.add_magnitudes(table, _factor(table, inputs), histogram)

    def squared_norms(self, segments: list[Segment]) -> list[Tensor]:
        inputs = [Input(segment) for segment in segments]
        if not _can_run(inputs):
            return super().squared_norms(segments)
        with torch.cuda.device_of(segments[0].rows):
            table = self._tables.of(inputs)
            mark(table, segments[0].rows.new_ones(1), table.masks, blocks.NOTHING)
            return table.host.per_segment(add_up(table.sums_of_all, table.adding))


def _can_run(inputs: Sequence[Input]) -> bool:
    """Whether the kernels support dtypes, memory layout and sizes."""
    return all(
        is_plain(x.rows) and (x.memory is None or is_plain(x.segment.rows)) and x.size <= _LONGEST
        for x in inputs
    )


def _factor(table: DeviceTable, inputs: Sequence[Input]) -> Tensor:
    """The factor on gradients, [1] in the dtype of the entries."""
    scale, rows = inputs[0].scale, inputs[0].rows
    return table.kept("factor", scale, lambda: rows.new_full((1,), scale))


def _roundings(codec: Codec, rows: Sequence[Tensor], steps: Sequence[Step]) -> list[Rounding] | None:
    """The roundings of ``rows``, [d] each; None if the kernels do not support them."""
    if not all(row.dtype == torch.float32 and row.is_contiguous() for row in rows):
        return None
    if max(map(len, rows)) > _LONGEST:
        return None
    found = [codec.rounding(len(row), step) for row, step in zip(rows, steps, strict=True)]
    known = [own for own in found if own is not None]
    return known if len(known) == len(found) and rounding.are_alike(known) else None


def _of_segments(field: Tensor, lengths: list[int], num_workers: int) -> Sequence[Tensor]:
    """The part of each segment, from a field of all rows and the rows' lengths."""
    if num_workers > 1:
        lengths = np.add.reduceat(lengths, np.arange(0, len(lengths), num_workers)).tolist()
    return field.split(lengths)
