"""Selection on a GPU: launches of the kernels for each rule, for all segments and workers at once."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.rules import AtLeast, Drawn, Largest
from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import drawn as drawn
from compressors.kernels.gpu import largest as largest
from compressors.kernels.gpu.table import TILE, Adding, DeviceTable, upload

DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
_KEYS = {torch.float32: torch.int32, torch.float64: torch.int64}  # dtype of magnitudes, without the sign bit
# A product and a sum round twice, as on the CPU.
NO_FUSED_MULTIPLY_ADD = {"enable_fp_fusion": False}
# For kernels with a whole piece, or a whole sample, in registers
EIGHT_WARPS, SIXTEEN_WARPS = {"num_warps": 8}, {"num_warps": 16}
SAMPLE = 2**14  # entries of a row from which the key of its candidates is guessed
MOST_PROGRAMS = 2**10  # that count the digits of all rows' candidates

# Per segment the values, the indices and the elements sent [W, L]; sums of squares of remaining entries and
# of all entries, [sum of W L] each.
Taken = tuple[Sequence[Tensor], Sequence[Tensor | None], list[np.ndarray], Sequence[Tensor]]
Packed = tuple[Sequence[Tensor], Sequence[Tensor], list[np.ndarray]]


def mark(table: DeviceTable, factor: Tensor, keys: Tensor, rule: Any, *, add: bool = True) -> None:
    found = (keys, table.rows, table.masks, table.sums, table.sums_of_all, table.counts)
    blocks.mark[(len(table.counts),)](
        table.pieces, factor, *found, RULE=rule.value, ADD=add, **NO_FUSED_MULTIPLY_ADD
    )


def take_marked(table: DeviceTable, rules: Sequence[AtLeast], factor: Tensor) -> Taken:
    own = table.host.per_row([r.threshold for r in rules], DTYPES[factor.dtype])
    keys = upload(np.abs(own), table.device).view(_KEYS[factor.dtype])
    mark(table, factor, keys, blocks.AT_LEAST)
    totals = _totals(table)  # before the host waits for the counts
    return (*_pack(table, factor, keys, table.counts, *_counted(table, table.counts)), totals)


def take_largest(table: DeviceTable, rules: Sequence[Largest], factor: Tensor) -> Taken:
    """Select the largest entries of each row, among candidates that reach a guess or among all entries."""
    wanted = table.host.per_row([r.number for r in rules], np.dtype(np.int32))
    keys = torch.zeros(table.num_rows, dtype=_KEYS[factor.dtype], device=table.device)
    ranks, capacity = _ranks(table.host.row_sizes, wanted)
    top_bit = 8 * keys.itemsize - 2
    of_rows = (table.row_pieces, table.row_sizes, upload(ranks, table.device))
    options = {"SAMPLE": SAMPLE, "TOP": top_bit, **NO_FUSED_MULTIPLY_ADD, **SIXTEEN_WARPS}
    largest.guess[(table.num_rows,)](table.pieces, *of_rows, factor, keys, **options)
    mark(table, factor, keys, blocks.AT_LEAST)
    keys, left = _key_of_candidates(table, factor, keys, wanted, capacity)
    counts, ties = _share(table, factor, keys, left)
    ends, up_to, sent = _counted(table, counts)
    # All marked entries above a key are selected, and the first of its equals: if their number is the wanted
    # one, they are the largest, whatever the key. It is another one if a row has too few candidates, or so
    # many that they do not fit.
    if not np.array_equal(np.concatenate([own.sum(1) for own in sent]), wanted):
        keys, left = _key_of_all(table, factor, wanted)
        mark(table, factor, keys, blocks.AT_LEAST, add=False)
        counts, ties = _share(table, factor, keys, left)
        ends, up_to, sent = _counted(table, counts)
    packed = _pack(table, factor, keys, counts, ends, up_to, sent, ties)  # recomputes some sums
    return (*packed, _totals(table))


def _ranks(sizes: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, int]:
    """Ranks in the samples [R] of the guessed keys, and a number of candidates that is seldom exceeded.

    A guess is too high if ``rank`` or more of the ``wanted`` largest are in the sample: their number is about
    Poisson's, and the rank is four standard deviations above its mean. A row that is its own sample has the
    rank itself.
    """
    sampled = np.minimum(sizes, SAMPLE)
    expected = wanted * sampled / np.maximum(sizes, 1)
    ranks = np.where(sizes <= SAMPLE, wanted, np.ceil(expected + 4 * np.sqrt(expected) + 4)).astype(np.int32)
    reached = np.minimum(sizes, 2 * ranks * sizes / np.maximum(sampled, 1) + SAMPLE)
    return ranks, int(reached.sum())


def _key_of_candidates(
    table: DeviceTable, factor: Tensor, guessed: Tensor, wanted: np.ndarray, capacity: int
) -> tuple[Tensor, Tensor]:
    """Per row the key of its ``wanted``-th largest candidate, and the number of its equals to select."""
    ends = table.counts.cumsum(0)
    candidates = torch.empty(capacity, dtype=guessed.dtype, device=table.device)
    entries = (table.pieces, factor, guessed, table.masks, table.counts, ends)
    largest.gather[(len(table.counts),)](*entries, candidates, capacity)
    programs = max(1, min(MOST_PROGRAMS // table.num_rows, -(-capacity // (table.num_rows * TILE))))
    grid = (table.num_rows * programs,)

    def count(keys: Tensor, histogram: Tensor, **digit: int) -> None:
        of_rows = (table.row_pieces, ends, keys, histogram, programs)
        largest.count_candidates[grid](candidates, capacity, *of_rows, **digit, TILE=TILE)

    return _key_by_digits(table, torch.zeros_like(guessed), wanted, count)


def _key_of_all(table: DeviceTable, factor: Tensor, wanted: np.ndarray) -> tuple[Tensor, Tensor]:
    """As ``_key_of_candidates``, of all entries p."""
    zeros = torch.zeros(table.num_rows, dtype=_KEYS[factor.dtype], device=table.device)

    def count(keys: Tensor, histogram: Tensor, **digit: int) -> None:
        grid = (len(table.counts),)
        largest.count_digits[grid](table.pieces, factor, keys, histogram, **digit, **EIGHT_WARPS)

    return _key_by_digits(table, zeros, wanted, count)


def _key_by_digits(
    table: DeviceTable, keys: Tensor, wanted: np.ndarray, count: Callable[..., None]
) -> tuple[Tensor, Tensor]:
    """The keys, from zeros, digit by digit; ``count`` adds a digit's histograms."""
    left = upload(wanted, table.device)
    histogram = torch.zeros(table.num_rows * largest.DIGITS.value, dtype=torch.int32, device=table.device)
    for begin, end in pairwise([*range(8 * keys.itemsize - 1, 0, -8), 0]):
        count(keys, histogram, SHIFT=end, WIDTH=begin - end)
        largest.choose_digit[(table.num_rows,)](histogram, keys, left, SHIFT=end)
    return keys, left


def _share(table: DeviceTable, factor: Tensor, keys: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Per piece the number of entries to select, and how many of them equal their row's key."""
    above, equal = torch.empty_like(table.counts), torch.empty_like(table.counts)
    entries = (table.pieces, factor, keys, table.masks, table.counts)
    largest.compare[(len(above),)](*entries, above, equal)
    largest.share_ties[(table.num_rows,)](table.row_pieces, left, above, equal, TILE=4 * TILE, **EIGHT_WARPS)
    return above, equal


def _counted(table: DeviceTable, counts: Tensor) -> tuple[Tensor, np.ndarray, list[np.ndarray]]:
    """Running totals of ``counts`` [P], those at the ends of parts, and the counts by segment [W, L]."""
    ends = counts.cumsum(0)
    up_to = ends[table.part_ends].cpu().numpy()  # the host waits
    return ends, up_to, table.host.per_segment(np.diff(up_to, prepend=0))


def _pack(
    table: DeviceTable,
    factor: Tensor,
    keys: Tensor,
    counts: Tensor,
    ends: Tensor,
    up_to: np.ndarray,
    sent: list[np.ndarray],
    ties: Tensor | None = None,
) -> Packed:
    """Pack all marked entries or, given ``ties``, the selected ``counts`` of them."""
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
    return add_up(table.both, table.adding_both).chunk(2)


def add_up(sums: Tensor, adding: Adding) -> Tensor:
    """Add ``sums`` (consumed) of every part by halves until one is left."""
    for jobs in adding.levels:
        blocks.halve[(len(jobs),)](jobs, sums, TILE=TILE)
    totals = sums.new_empty(len(adding.parts))
    blocks.total_up[(len(totals),)](adding.parts, sums, totals, TILE=TILE)
    return totals


def take_drawn(table: DeviceTable, rules: Sequence[Drawn], factor: Tensor) -> Taken:
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
    mark(table, factor, table.masks, blocks.GIVEN)
    drawn.take[grid](*of_rows, values, tiles, TILE=TILE)
    sent = [_per_layer(r, e, table.host.num_workers) for r, e in zip(rules, table.host.edges, strict=True)]
    return values.split(sizes), [None] * len(sizes), sent, _totals(table)


def _per_layer(rule: Drawn, edges: np.ndarray, num_workers: int) -> np.ndarray:
    """Number of positions in each layer, [W, L]."""
    counts = [np.diff(np.searchsorted(row, edges)) for row in rule.positions]
    return np.stack(counts).repeat(num_workers // len(counts), 0)
