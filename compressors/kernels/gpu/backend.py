"""Kernels for GPUs: Triton's programs on all segments and workers of a step at once."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from compressors.core.backends import Backend, require_own, rules_of, step_of
from compressors.core.codec import Codec, Compressed
from compressors.core.payloads import Sparse, divide
from compressors.core.rules import AtLeast, Drawn, Largest
from compressors.core.segments import Input, Segment, Step
from compressors.kernels.cpu.table import PieceTables
from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import drawn as drawn
from compressors.kernels.gpu import largest as largest
from compressors.kernels.gpu.table import TILE, Adding, DeviceTable, upload

_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
RULES = (AtLeast, Drawn, Largest)  # rules with kernels
_KEYS = {torch.float32: torch.int32, torch.float64: torch.int64}  # dtype of magnitudes, without the sign bit
# A product and a sum round twice, as on the CPU.
NO_FUSED_MULTIPLY_ADD = {"enable_fp_fusion": False}
EIGHT_WARPS = {"num_warps": 8}  # for kernels with a whole piece in registers


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

    ``compress`` waits for the device once, for the number of selected entries; drawn positions need no wait.
    """

    name = f"triton {triton.__version__}"

    def __init__(self) -> None:
        self._tables = PieceTables(DeviceTable)

    def compress(
        self, codecs: Sequence[Codec], inputs: list[Input], step: Step, workers: range
    ) -> list[Compressed]:
        steps = [step_of(step, x.segment) for x in inputs]
        rules = rules_of(codecs, inputs, steps, workers) if _can_run(inputs) else None
        if rules is None or not isinstance(rules[0], RULES):
            return super().compress(codecs, inputs, step, workers)
        rows = inputs[0].rows
        with torch.cuda.device_of(rows):  # no effect for CPU tensors
            table = self._tables.of(inputs)
            factor = rows.new_full((1,), inputs[0].scale)
            if isinstance(rules[0], Drawn):
                taken, where, sent, totals = _take_drawn(table, rules, factor)
            elif isinstance(rules[0], AtLeast):
                taken, where, sent, totals = _take_marked(table, rules, factor)
            else:
                taken, where, sent, totals = _take_largest(table, rules, factor)
            errors, norms = map(table.host.per_segment, totals)
        found = []
        for codec, own, rule, kept, at, counts, error, norm in zip(
            codecs, steps, rules, taken, where, sent, errors, norms, strict=True
        ):
            payload = rule.payload(kept, len(workers)) if isinstance(rule, Drawn) else Sparse(kept, at)
            require_own(codec, payload)
            found.append(Compressed(counts, error, norm, [payload], codec, own))
        return found

    def add_rows(self, rows: Tensor) -> Tensor:
        if rows.dtype not in _DTYPES:
            return super().add_rows(rows)
        rows = rows.contiguous()
        num_rows, size = rows.shape
        out = rows.new_empty(size)
        with torch.cuda.device_of(rows):
            drawn.add_rows[(-(-size // TILE),)](rows, out, num_rows, size, TILE=TILE)
        return out

    def adds_joined(self, payload: Any, compressed: Compressed) -> bool:
        return _can_add(payload, compressed) or super().adds_joined(payload, compressed)

    def means_of_joined(
        self,
        everyones: list[Any],
        counts: np.ndarray | None,
        inputs: list[Input],
        local: list[Compressed],
        num_workers: int,
    ) -> list[Tensor]:
        if not all(map(_can_add, everyones, local)):
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
                    drawn.add_sent[grid](of_worker, values, indices, total, tiles, TILE=TILE)
        return list(divide(total, num_workers).split(sizes))

    def squared_norms(self, segments: list[Segment]) -> list[Tensor]:
        inputs = [Input(segment) for segment in segments]
        if not _can_run(inputs):
            return super().squared_norms(segments)
        with torch.cuda.device_of(segments[0].rows):
            table = self._tables.of(inputs)
            _mark(table, segments[0].rows.new_ones(1), table.masks, blocks.NOTHING, add=False)
            return table.host.per_segment(_add_up(table.sums_of_all, table.adding))


def _can_run(inputs: Sequence[Input]) -> bool:
    """Whether the kernels support dtypes, memory layout and sizes."""
    longest = 2**31 - TILE  # the kernels count drawn entries in int32, up to the end of the last tile
    return all(
        _is_plain(x.rows) and (x.memory is None or _is_plain(x.segment.rows)) and x.size <= longest
        for x in inputs
    )


def _can_add(payload: Any, compressed: Compressed) -> bool:
    """Whether ``payload`` has values and indices and can be decoded without its codec."""
    is_known = isinstance(payload, Sparse) and payload.values.dtype in _DTYPES
    has_default_add = type(compressed.origin[0]).add is Codec.add
    return is_known and has_default_add and payload.indices.dtype == torch.int32


def _is_plain(rows: Tensor) -> bool:
    return rows.dtype in _DTYPES and (rows.stride(1) == 1 or rows.shape[1] == 1)


# Per segment the values, the indices and the elements sent [W, L]; sums of squares of remaining entries and
# of all entries, [sum of W L] each.
Taken = tuple[Sequence[Tensor], Sequence[Tensor | None], list[np.ndarray], Sequence[Tensor]]
Packed = tuple[Sequence[Tensor], Sequence[Tensor], list[np.ndarray]]


def _mark(table: DeviceTable, factor: Tensor, keys: Tensor, rule: Any, *, add: bool = True) -> None:
    found = (keys, table.rows, table.masks, table.sums, table.sums_of_all, table.counts)
    blocks.mark[(len(table.counts),)](
        table.pieces, factor, *found, RULE=rule.value, ADD=add, **NO_FUSED_MULTIPLY_ADD
    )


def _take_marked(table: DeviceTable, rules: Sequence[AtLeast], factor: Tensor) -> Taken:
    own = table.host.per_row([r.threshold for r in rules], _DTYPES[factor.dtype])
    keys = upload(np.abs(own), table.device).view(_KEYS[factor.dtype])
    _mark(table, factor, keys, blocks.AT_LEAST)
    totals = _totals(table)  # before the host waits for the counts
    return (*_pack(table, factor, keys, table.counts), totals)


def _take_largest(table: DeviceTable, rules: Sequence[Largest], factor: Tensor) -> Taken:
    """Select the largest entries of each row.

    The first two digits of a row's key are computed from all its entries, the others from the entries that
    reach these digits.
    """
    wanted = table.host.per_row([r.number for r in rules], np.dtype(np.int32))
    left, kind = upload(wanted, table.device), _KEYS[factor.dtype]
    keys = torch.zeros(table.num_rows, dtype=kind, device=table.device)
    histogram = torch.zeros(table.num_rows * largest.DIGITS.value, dtype=torch.int32, device=table.device)
    above, equal = torch.empty_like(table.counts), torch.empty_like(table.counts)
    entries = (table.pieces, factor, keys, table.masks, table.counts)
    for number, (begin, end) in enumerate(pairwise([*range(8 * kind.itemsize - 1, 0, -8), 0])):
        if number == 2:
            _mark(table, factor, keys, blocks.AT_LEAST, add=False)
        options = {"SHIFT": end, "WIDTH": begin - end, "ADD": number == 0, "MARKED": number >= 2}
        largest.count_digits[(len(above),)](*entries, histogram, **options, **EIGHT_WARPS)
        largest.choose_digit[(len(wanted),)](histogram, keys, left, SHIFT=end)
    largest.compare[(len(above),)](*entries, above, equal, **EIGHT_WARPS)
    largest.share_ties[(len(wanted),)](table.row_pieces, left, above, equal, TILE=TILE)
    packed = _pack(table, factor, keys, above, equal)  # recomputes some sums
    return (*packed, _totals(table))


def _pack(
    table: DeviceTable, factor: Tensor, keys: Tensor, counts: Tensor, ties: Tensor | None = None
) -> Packed:
    """Pack all marked entries or, given ``ties``, the selected ``counts`` of them."""
    ends = counts.cumsum(0)
    up_to = ends[table.part_ends].cpu().numpy()  # the only wait of the host
    sent = table.host.per_segment(np.diff(up_to, prepend=0))
    values = factor.new_empty(up_to[-1])
    indices = torch.empty(len(values), dtype=torch.int32, device=table.device)
    found = (
        table.pieces,
        factor,
        keys,
        table.masks,
        table.sums,
        table.counts,
        counts if ties is None else ties,
    )
    exact = ties is not None
    blocks.pack[(len(counts),)](*found, counts, ends, values, indices, EXACT=exact, **NO_FUSED_MULTIPLY_ADD)
    sizes = [int(of_segment.sum()) for of_segment in sent]
    return values.split(sizes), indices.split(sizes), sent


def _totals(table: DeviceTable) -> Sequence[Tensor]:
    """Sums of squares per layer, of remaining and of all entries, [sum of W L] each; consumes the block
    sums."""
    return _add_up(table.both, table.adding_both).chunk(2)


def _add_up(sums: Tensor, adding: Adding) -> Tensor:
    """Add ``sums`` (consumed) of every part by halves until one is left."""
    for jobs in adding.levels:
        blocks.halve[(len(jobs),)](jobs, sums, TILE=TILE)
    totals = sums.new_empty(len(adding.parts))
    blocks.total_up[(len(totals),)](adding.parts, sums, totals, TILE=TILE)
    return totals


def _take_drawn(table: DeviceTable, rules: Sequence[Drawn], factor: Tensor) -> Taken:
    draws, rotations, sizes = table.host.draws([rule.positions.shape for rule in rules])
    for rule, own in zip(rules, rotations, strict=True):
        own[:] = rule.rotations % max(1, rule.positions.shape[1])  # DEFT and MiCRO may choose no position
    drawn_from = np.concatenate([rule.positions.ravel() for rule in rules]).astype(np.int32)
    positions = upload(drawn_from, table.device)
    of_rows = (upload(draws, table.device), table.rows, positions)
    values = factor.new_empty(sum(sizes))
    tiles = -(-max(rule.positions.shape[1] for rule in rules) // TILE)
    grid = (table.num_rows * tiles,)
    drawn.set_bits[grid](*of_rows, table.masks.zero_(), tiles, TILE=TILE)
    _mark(table, factor, table.masks, blocks.GIVEN)
    drawn.take[grid](*of_rows, values, tiles, TILE=TILE)
    sent = [_per_layer(r, e, table.host.num_workers) for r, e in zip(rules, table.host.edges, strict=True)]
    return values.split(sizes), [None] * len(sizes), sent, _totals(table)


def _per_layer(rule: Drawn, edges: np.ndarray, num_workers: int) -> np.ndarray:
    """Number of positions in each layer, [W, L]."""
    counts = [np.diff(np.searchsorted(row, edges)) for row in rule.positions]
    return np.stack(counts).repeat(num_workers // len(counts), 0)
