"""Selection on a GPU: launches of kernels for all segments and workers at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.rules import AtLeast, Drawn
from compressors.kernels.conditions import DTYPES
from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import drawn as drawn
from compressors.kernels.gpu import packing as packing
from compressors.kernels.gpu import sums as sums
from compressors.kernels.gpu.table import TILE, Adding, DeviceTable, upload

KEYS = {torch.float32: torch.int32, torch.float64: torch.int64}  # dtype of magnitudes, without the sign bit
# A product and a sum round twice, as on the CPU.
NO_FUSED_MULTIPLY_ADD = {"enable_fp_fusion": False}
SIXTEEN_WARPS = {"num_warps": 16}  # for kernels with a whole sample, or many counts, in registers

# Per segment the values, the indices and the elements sent [W, L]; sums of squares of remaining entries and
# of all entries, [sum of W L] each.
Taken = tuple[Sequence[Tensor], Sequence[Tensor | None], list[np.ndarray], Sequence[Tensor]]


def mark(table: DeviceTable, factor: Tensor, keys: Tensor, rule: Any, *, again: Tensor | None = None) -> None:
    """Form p and mark; or, given flags ``again`` [R], only mark the entries of the rows whose flag is set."""
    found = (keys, table.rows, table.masks, table.sums, table.sums_of_all, table.counts)
    add, launches = table.adds, table.launches
    if again is not None:
        add, launches = False, [(table.pieces, blocks.PARTIAL.value)]
    options = {"RULE": rule.value, "ADD": add, "AGAIN": again is not None, **NO_FUSED_MULTIPLY_ADD}
    for pieces, kind in launches:
        flags = table.counts if again is None else again
        blocks.mark[(len(pieces),)](pieces, factor, *found, flags, KIND=kind, **options)


def take_marked(table: DeviceTable, rules: Sequence[AtLeast], factor: Tensor) -> Taken:
    dtype = DTYPES[factor.dtype]
    thresholds = [r.threshold for r in rules]

    def keys_of() -> Tensor:
        given = np.abs(table.host.per_row(thresholds, dtype))
        given[np.isnan(given)] = 0  # no entry is below NaN: all are taken
        return upload(given, table.device).view(KEYS[factor.dtype])

    keys = table.kept("keys", (thresholds, dtype), keys_of)
    mark(table, factor, keys, blocks.AT_LEAST)
    begins = begins_of(table)
    totals = totals_of(table)  # before the host waits for the counts
    sent = numbers_sent(table, begins)
    sizes = [int(of_segment.sum()) for of_segment in sent]
    values, indices = pack(table, factor, keys, begins, sum(sizes))
    return values.split(sizes), indices.split(sizes), sent, totals


def begins_of(table: DeviceTable) -> Tensor:
    """The places of each piece's first marked entry, and the number of all, [P + 1] int64."""
    begins = torch.empty(len(table.counts) + 1, dtype=torch.int64, device=table.device)
    sums.add_counts[(1,)](table.counts, begins, len(table.counts), TILE=4 * TILE, **SIXTEEN_WARPS)
    return begins


def numbers_sent(table: DeviceTable, begins: Tensor, number: int | None = None) -> list[np.ndarray]:
    """Elements sent by segment [W, L], from the places of the pieces; the host waits.

    ``number`` is that of all of them, if it is not the last of ``begins``.
    """
    places = begins[table.part_edges].cpu().numpy()
    if number is not None:
        places[-1] = number
    return table.host.per_segment(np.diff(places))


def pack(
    table: DeviceTable,
    factor: Tensor,
    keys: Tensor,
    begins: Tensor,
    number: int,
    chosen: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Pack all marked entries or, given ``chosen``, as many of each piece, and of its ties."""
    counts, ties = chosen or (table.counts, table.counts)
    values = factor.new_empty(number)
    indices = torch.empty(number, dtype=torch.int32, device=table.device)
    found = (table.pieces, factor, keys, table.masks, table.sums, table.counts, ties, counts, begins)
    exact = chosen is not None
    packing.pack[(len(counts),)](*found, values, indices, EXACT=exact, **NO_FUSED_MULTIPLY_ADD)
    return values, indices


def totals_of(table: DeviceTable) -> Sequence[Tensor]:
    """Sums of squares per layer, of remaining and of all entries, [sum of W L] each; consumes the block
    sums."""
    return add_up(table.both, table.adding_both).chunk(2)


def add_up(of_blocks: Tensor, adding: Adding) -> Tensor:
    """Add ``of_blocks`` (consumed) of every part by halves until one is left."""
    for jobs in adding.levels:
        sums.halve[(len(jobs),)](jobs, of_blocks, TILE=TILE)
    totals = of_blocks.new_empty(len(adding.parts))
    sums.total_up[(len(totals),)](adding.parts, of_blocks, totals, TILE=TILE)
    return totals


def take_drawn(table: DeviceTable, rules: Sequence[Drawn], factor: Tensor) -> Taken:
    draws, rotations, sizes = table.host.draws([rule.positions.shape for rule in rules])
    for rule, own in zip(rules, rotations, strict=True):
        own[:] = rule.rotations % max(1, rule.positions.shape[1])  # DEFT and MiCRO may choose no position
    positions = _joined([rule.positions.ravel() for rule in rules], table.device)
    of_rows = (upload(draws, table.device), table.rows, positions)
    values = factor.new_empty(sum(sizes))
    tiles = -(-max(rule.positions.shape[1] for rule in rules) // TILE)
    grid = (table.num_rows * tiles,)
    drawn.set_bits[grid](*of_rows, table.masks.zero_(), tiles, TILE=TILE)
    mark(table, factor, table.masks, blocks.GIVEN)
    drawn.take[grid](*of_rows, values, tiles, TILE=TILE)
    sent = [_per_layer(r, e, table.host.num_workers) for r, e in zip(rules, table.host.edges, strict=True)]
    return values.split(sizes), [None] * len(sizes), sent, totals_of(table)


def _joined(positions: list[Any], device: torch.device) -> Tensor:
    """Positions on the host, or on the device, as one tensor, int32."""
    if any(isinstance(own, Tensor) for own in positions):
        parts = (own if isinstance(own, Tensor) else upload(own, device) for own in positions)
        return torch.cat([own.int() for own in parts])
    return upload(np.concatenate(positions).astype(np.int32), device)


def _per_layer(rule: Drawn, edges: np.ndarray, num_workers: int) -> np.ndarray:
    """Number of positions in each layer, [W, L]; the host waits for those of several layers on the device."""
    if isinstance(rule.positions, Tensor):
        if len(edges) == 2:
            return np.full((num_workers, 1), rule.positions.shape[1])
        inner = upload(np.array(edges), rule.positions.device).repeat(len(rule.positions), 1)
        places = torch.searchsorted(rule.positions, inner).cpu().numpy()
        return np.diff(places).repeat(num_workers // len(places), 0)
    counts = [np.diff(np.searchsorted(row, edges)) for row in rule.positions]
    return np.stack(counts).repeat(num_workers // len(counts), 0)
