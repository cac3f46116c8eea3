"""Kernels for GPUs: Triton's programs on all segments and workers of a step at once."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from compressors.api import Segment
from compressors.kernels import triton_blocks as blocks
from compressors.kernels import triton_drawn as drawn
from compressors.kernels import triton_largest as largest
from compressors.kernels.device_table import DeviceTable, upload
from compressors.kernels.selected import Selected
from compressors.kernels.table import Tables
from compressors.rules import AtLeast, Drawn, Largest, Rule

_TILE = 1024
_DTYPES = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
_KEYS = {torch.float32: torch.int32, torch.float64: torch.int64}  # magnitudes, without the sign's bit
# A product and a sum that the code writes as two operations round twice, as they do on the CPU.
APART = {"enable_fp_fusion": False}
WIDE = {"num_warps": 8}  # for kernels that hold a whole piece in registers


def why_not() -> str:
    """Why Triton's code cannot run on this machine's GPU, empty where it can.

    It is translated at the first call, by a C compiler among others, for GPUs that Triton knows.
    """
    if not torch.cuda.is_available():
        return ""
    try:
        GpuKernels().add_rows(torch.ones(2, 1, device="cuda"))
    except Exception as error:  # Triton, its compilers and the driver raise errors of many kinds
        return f"triton {triton.__version__} cannot compile here: {(str(error).splitlines() or [''])[0]}"
    return ""


class GpuKernels:
    """Triton's code for fp32 and fp64 entries that lie side by side.

    ``select`` waits for the device once, to learn how much was taken; drawn positions are known before.
    """

    name = f"triton {triton.__version__}"
    can_spread = False  # torch's own operations are as many launches
    can_count = False  # what is measured beside the training is left to torch

    def __init__(self) -> None:
        self._tables = Tables(DeviceTable)

    def can_run(self, segments: Sequence[Segment]) -> bool:
        """Whether dtypes, memory layout and sizes are ones that the kernels are made for."""
        return all(
            _is_plain(s.rows) and (s.gradient is None or _is_plain(s.gradient)) and s.rows.shape[1] < 2**31
            for s in segments
        )

    def select(
        self, segments: list[Segment], rules: Sequence[Rule], *, measure: bool = False
    ) -> list[Selected]:
        """rows + factor gradient, then take what each segment's rule keeps and leave the rest in ``rows``.

        ``measure`` asks for the squared norms of the sums: one more visit to them.
        """
        if measure:
            segments = [segment.added() for segment in segments]
            norms = self.squared_norms(segments)
            selected = self.select(segments, rules)
            return [s._replace(input_norm=norm) for s, norm in zip(selected, norms, strict=True)]
        rows = segments[0].rows
        with torch.cuda.device_of(rows):  # nothing to do for tensors of the CPU
            table = self._tables.of(segments)
            factor = rows.new_full((1,), segments[0].factor)
            if isinstance(rules[0], Drawn):
                return _select_drawn(table, rules, factor)
            if isinstance(rules[0], AtLeast):
                return _select(table, rules, factor)
            return _select_largest(table, rules, factor)

    def add_rows(self, rows: Tensor) -> Tensor:
        """[m, k] to [k], one row after the other."""
        rows = rows.contiguous()
        num_rows, size = rows.shape
        out = rows.new_empty(size)
        with torch.cuda.device_of(rows):
            drawn.add_rows[(-(-size // _TILE),)](rows, out, num_rows, size, TILE=_TILE)
        return out

    def can_average(self, payload: Any) -> bool:
        """Never: worker by worker, torch adds in an order that is the same each time."""
        return False

    def can_sum(self, rows: Tensor) -> bool:
        """Never: what is measured beside the training is left to torch."""
        return False

    def squared_norms(self, segments: list[Segment]) -> list[Tensor]:
        """``api.squared_norm`` of every layer of every segment's ``rows``, [W, L] each, bit for bit."""
        with torch.cuda.device_of(segments[0].rows):
            table = self._tables.of(segments)
            factor = segments[0].rows.new_ones(1)
            _mark(table, factor, table.masks, blocks.NOTHING, add=False)
            return _errors(table)


def _is_plain(rows: Tensor) -> bool:
    return rows.dtype in _DTYPES and (rows.stride(1) == 1 or rows.shape[1] == 1)


def _mark(table: DeviceTable, factor: Tensor, keys: Tensor, rule: Any, *, add: bool = True) -> None:
    found = (keys, table.rows, table.masks, table.sums, table.counts)
    blocks.mark[(len(table.counts),)](table.pieces, factor, *found, RULE=rule.value, ADD=add, **APART)


def _select(table: DeviceTable, rules: Sequence[AtLeast], factor: Tensor) -> list[Selected]:
    own = table.host.per_row([r.threshold for r in rules], _DTYPES[factor.dtype])
    keys = upload(np.abs(own), table.device).view(_KEYS[factor.dtype])
    _mark(table, factor, keys, blocks.AT_LEAST)
    return _pack(table, factor, keys, table.counts)


def _select_largest(table: DeviceTable, rules: Sequence[Largest], factor: Tensor) -> list[Selected]:
    """Two digits of each row's key by visits to all entries, the rest by visits to what reaches these two."""
    wanted = table.host.per_row([r.count for r in rules], np.dtype(np.int32))
    left, kind = upload(wanted, table.device), _KEYS[factor.dtype]
    keys = torch.zeros(table.num_rows, dtype=kind, device=table.device)
    histogram = torch.zeros(table.num_rows * largest.DIGITS.value, dtype=torch.int32, device=table.device)
    above, equal = torch.empty_like(table.counts), torch.empty_like(table.counts)
    entries = (table.pieces, factor, keys, table.masks, table.counts)
    for number, (begin, end) in enumerate(pairwise([*range(8 * kind.itemsize - 1, 0, -8), 0])):
        if number == 2:
            _mark(table, factor, keys, blocks.AT_LEAST, add=False)
        options = {"SHIFT": end, "WIDTH": begin - end, "ADD": number == 0, "MARKED": number >= 2}
        largest.count_digits[(len(above),)](*entries, histogram, **options, **WIDE)
        largest.choose_digit[(len(wanted),)](histogram, keys, left, SHIFT=end)
    largest.compare[(len(above),)](*entries, above, equal, **WIDE)
    largest.share_ties[(len(wanted),)](table.row_pieces, left, above, equal, TILE=_TILE)
    return _pack(table, factor, keys, above, equal)


def _pack(
    table: DeviceTable, factor: Tensor, keys: Tensor, counts: Tensor, ties: Tensor | None = None
) -> list[Selected]:
    """What is marked or, given ``ties``, the ``counts`` of it that are to be taken."""
    ends = counts.cumsum(0)
    up_to = ends[table.part_ends].cpu().numpy()  # the one time that the host waits
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
    blocks.pack[(len(counts),)](*found, counts, ends, values, indices, EXACT=exact, **APART, **WIDE)
    sizes = [int(of_segment.sum()) for of_segment in sent]
    return list(map(Selected, values.split(sizes), indices.split(sizes), sent, _errors(table)))


def _errors(table: DeviceTable) -> list[Tensor]:
    totals = table.sums.new_empty(len(table.parts))
    blocks.total_up[(len(totals),)](table.parts, table.sums, totals, TILE=_TILE)
    return table.host.per_segment(totals)


def _select_drawn(table: DeviceTable, rules: Sequence[Drawn], factor: Tensor) -> list[Selected]:
    draws, sizes = table.host.draws(tuple([rule.positions.shape for rule in rules]))
    for rule, own in zip(rules, draws, strict=True):
        own[:, 3] = rule.rotations % rule.positions.shape[1]
    drawn_from = np.concatenate([rule.positions.ravel() for rule in rules]).astype(np.int32)
    positions = upload(drawn_from, table.device)
    of_rows = (upload(draws.reshape(-1, 4), table.device), table.rows, positions)
    values = factor.new_empty(sum(sizes))
    tiles = -(-max(rule.positions.shape[1] for rule in rules) // _TILE)
    grid = (table.num_rows * tiles,)
    drawn.set_bits[grid](*of_rows, table.masks.zero_(), tiles, TILE=_TILE)
    _mark(table, factor, table.masks, blocks.GIVEN)
    drawn.take[grid](*of_rows, values, tiles, TILE=_TILE)
    sent = [_per_layer(r, e, table.host.num_workers) for r, e in zip(rules, table.host.edges, strict=True)]
    return list(map(Selected, values.split(sizes), [None] * len(sizes), sent, _errors(table)))


def _per_layer(rule: Drawn, edges: Tensor, num_workers: int) -> np.ndarray:
    """How many positions lie in each layer, [W, L]."""
    counts = [np.diff(np.searchsorted(row, edges.numpy())) for row in rule.positions]
    return np.stack(counts).repeat(num_workers // len(counts), 0)
