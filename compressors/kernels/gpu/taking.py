"""Selection on a GPU: launches of the kernels for each rule, for all segments and workers at once."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.rules import AtLeast, Drawn, Largest
from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import drawn as drawn
from compressors.kernels.gpu import largest as largest
from compressors.kernels.gpu import packing as packing
from compressors.kernels.gpu import sums as sums
from compressors.kernels.gpu.table import TILE, Adding, DeviceTable, upload

DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
KEYS = {torch.float32: torch.int32, torch.float64: torch.int64}  # dtype of magnitudes, without the sign bit
# A product and a sum round twice, as on the CPU.
NO_FUSED_MULTIPLY_ADD = {"enable_fp_fusion": False}
# For kernels with a whole piece, or a whole sample, in registers
EIGHT_WARPS, SIXTEEN_WARPS = {"num_warps": 8}, {"num_warps": 16}
SAMPLE = 2**14  # entries of a row from which the key of its candidates is guessed
COUNTED = 2**12  # keys that a program counts at a time
MOST_PROGRAMS = 2**10  # that count the digits of all rows' keys

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
        return upload(np.abs(table.host.per_row(thresholds, dtype)), table.device).view(KEYS[factor.dtype])

    keys = table.kept("keys", (thresholds, dtype), keys_of)
    mark(table, factor, keys, blocks.AT_LEAST)
    begins = begins_of(table)
    totals = _totals(table)  # before the host waits for the counts
    sent = numbers_sent(table, begins)
    sizes = [int(of_segment.sum()) for of_segment in sent]
    values, indices = _pack(table, factor, keys, begins, sum(sizes))
    return values.split(sizes), indices.split(sizes), sent, totals


class Search(NamedTuple):
    """Memory and numbers for the search of the largest entries of each row."""

    wanted: Tensor  # [R] int32
    first: Tensor  # [R] int64, places of the rows' first values
    sizes: list[int]  # values of each segment
    sent: list[np.ndarray] | None  # elements sent, [W, 1] each; None if there are several layers
    ranks: Tensor  # [R] int32, in the samples, of the guessed keys
    capacity: int  # of candidates
    guesses: Tensor  # [R], a key of each row
    keys: Tensor  # [rounds + 1, R], after each round
    left: Tensor  # [rounds + 1, R] int32, equals of the key to take
    histograms: Tensor  # [rounds, R, DIGITS] int32
    missed: Tensor  # [R] int32, whether too few entries reach the guess, or too many


def take_largest(
    table: DeviceTable, rules: Sequence[Largest], factor: Tensor, room: int | None = None
) -> Taken:
    """Select the largest entries of each row, among candidates that reach a guess or among all entries.

    ``room`` is the number of candidates for which there is memory; by default one that is seldom exceeded.
    The host waits only for the counts of several layers.
    """
    numbers, kind = [r.number for r in rules], KEYS[factor.dtype]
    search = table.kept("search", (numbers, kind, SAMPLE), lambda: _search(table, numbers, kind))
    rows, own = table.num_rows, (search.keys, search.left, search.histograms)
    rounds = len(search.histograms)
    capacity = search.capacity if room is None else room
    options = {"SAMPLE": SAMPLE, "TOP": 8 * kind.itemsize - 2, **NO_FUSED_MULTIPLY_ADD, **SIXTEEN_WARPS}
    given = (table.rows, table.row_sizes, search.ranks, search.wanted, factor, search.guesses)
    largest.guess[(rows,)](*given, *own, rows, ROUNDS=rounds, **options)
    mark(table, factor, search.guesses, blocks.AT_LEAST)
    begins = begins_of(table)
    candidates = torch.empty(capacity, dtype=kind, device=table.device)
    entries = (table.pieces, factor, search.guesses, table.masks, table.counts)
    largest.gather[(len(table.counts),)](*entries, begins, candidates, capacity)
    programs = max(1, min(MOST_PROGRAMS // rows, -(-int(table.host.row_sizes.max()) // COUNTED)))
    counted = (table.rows, table.row_sizes, table.row_pieces, search.wanted, begins, candidates, capacity)
    digits = {"TILE": COUNTED, **EIGHT_WARPS}
    for number, (begin, end) in enumerate(pairwise(_edges(kind))):
        width = {"ROUND": number, "SHIFT": end, "WIDTH": begin - end}
        largest.count_digits[(rows * programs,)](*counted, *own, rows, programs, **width, **digits)
    decided = (table.row_pieces, search.wanted, begins, capacity, *own, search.missed, rows)
    largest.settle[(rows,)](*decided, ROUNDS=rounds)
    keys, left = search.keys[rounds], search.left[rounds]
    mark(table, factor, keys, blocks.AT_LEAST, again=search.missed)
    above, equal = torch.empty_like(table.counts), torch.empty_like(table.counts)
    entries = (table.pieces, factor, keys, table.masks, table.counts)
    largest.compare[(len(above),)](*entries, above, equal)
    shared = (table.row_pieces, search.first, left, above, equal, begins)
    largest.share_ties[(rows,)](*shared, TILE=4 * TILE, **SIXTEEN_WARPS)
    values, indices = _pack(table, factor, keys, begins, sum(search.sizes), (above, equal))
    totals = _totals(table)  # after the sums of blocks with unsent candidates are known
    sent = numbers_sent(table, begins, len(values)) if search.sent is None else search.sent
    return values.split(search.sizes), indices.split(search.sizes), sent, totals


def _search(table: DeviceTable, numbers: list[int], kind: torch.dtype) -> Search:
    device, rows, workers = table.device, table.num_rows, table.host.num_workers
    wanted = np.repeat(numbers, workers)
    ranks, capacity = _ranks(table.host.row_sizes, wanted)
    rounds = len(_edges(kind)) - 1
    is_known = set(table.host.num_layers) == {1}

    def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    return Search(
        wanted=upload(wanted.astype(np.int32), device),
        first=upload(wanted.cumsum() - wanted, device),
        sizes=[workers * number for number in numbers],
        sent=[np.full((workers, 1), number) for number in numbers] if is_known else None,
        ranks=upload(ranks, device),
        capacity=capacity,
        guesses=empty(rows, dtype=kind),
        keys=empty(rounds + 1, rows, dtype=kind),
        left=empty(rounds + 1, rows),
        histograms=empty(rounds, rows, largest.DIGITS.value),
        missed=empty(rows),
    )


def _edges(kind: torch.dtype) -> list[int]:
    """Positions between the digits of a key, the leading digit first."""
    return [*range(8 * kind.itemsize - 1, 0, -8), 0]


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


def _pack(
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


def _totals(table: DeviceTable) -> Sequence[Tensor]:
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
