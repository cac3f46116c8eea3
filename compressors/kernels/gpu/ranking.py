"""Selection by ranks on a GPU: the largest entries of each row, and those above a magnitude of a sample."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from compressors.core.rules import AtLeastSampled, Largest
from compressors.kernels.conditions import DTYPES
from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import largest as largest
from compressors.kernels.gpu.table import TILE, DeviceTable, upload
from compressors.kernels.gpu.taking import (
    KEYS,
    NO_FUSED_MULTIPLY_ADD,
    SIXTEEN_WARPS,
    Taken,
    begins_of,
    mark,
    numbers_sent,
    pack,
    totals_of,
)

EIGHT_WARPS = {"num_warps": 8}  # for kernels with a whole piece in registers
SAMPLE = 2**14  # entries of a row from which the key of its candidates is guessed
COUNTED = 2**12  # keys that a program counts at a time
MOST_PROGRAMS = 2**10  # that count the digits of all rows' keys


class Keys(NamedTuple):
    """Memory for searches of one key in each row, digit by digit."""

    found: Tensor  # [rounds + 1, R], after each round
    left: Tensor  # [rounds + 1, R] int32, equals of the key to take
    histograms: Tensor  # [rounds, R, DIGITS] int32
    missed: Tensor  # [R] int32, whether too few entries reach the guess, or too many

    @classmethod
    def empty(cls, rows: int, kind: torch.dtype, device: torch.device) -> Self:
        rounds, counts = len(_edges(kind)) - 1, torch.empty(0, dtype=torch.int32, device=device)
        return cls(
            torch.empty(rounds + 1, rows, dtype=kind, device=device),
            counts.new_empty(rounds + 1, rows),
            counts.new_empty(rounds, rows, largest.DIGITS.value),
            counts.new_empty(rows),
        )

    def begin(self, ranks: Tensor) -> None:
        """Prepare a search of the ``ranks``-th [R] largest keys; the kernel ``guess`` does the same."""
        self.found[0].zero_()
        self.left[0].copy_(ranks)
        self.histograms.zero_()

    def search(
        self,
        table: DeviceTable,
        ranks: Tensor,
        edges: Tensor,
        begins: Tensor,
        candidates: Tensor,
        longest: int,
    ) -> None:
        """Find the ``ranks``-th [R] int32 largest key of a row's candidates; in a missed row, of all entries.

        Row r has the candidates from ``begins[edges[r]]`` to ``begins[edges[r + 1]]``. ``longest`` is the
        largest number of keys of a row.
        """
        rows, kind, capacity = table.num_rows, candidates.dtype, len(candidates)
        own = (self.found, self.left, self.histograms)
        programs = max(1, min(MOST_PROGRAMS // rows, -(-longest // COUNTED)))
        counted = (table.rows, table.row_sizes, edges, ranks, begins, candidates, capacity)
        for number, (begin, end) in enumerate(pairwise(_edges(kind))):
            digit = {"ROUND": number, "SHIFT": end, "WIDTH": begin - end, "TILE": COUNTED}
            largest.count_digits[(rows * programs,)](*counted, *own, rows, programs, **digit, **EIGHT_WARPS)
        decided = (edges, ranks, begins, capacity, *own, self.missed, rows)
        largest.settle[(rows,)](*decided, ROUNDS=len(self.histograms))


class Search(NamedTuple):
    """Memory and numbers for the search of the largest entries of each row."""

    wanted: Tensor  # [R] int32
    first: Tensor  # [R] int64, places of the rows' first values
    sizes: list[int]  # values of each segment
    sent: list[np.ndarray] | None  # elements sent, [W, 1] each; None if there are several layers
    ranks: Tensor  # [R] int32, in the samples, of the guessed keys
    capacity: int  # of candidates
    guesses: Tensor  # [R], a key of each row
    keys: Keys


def take_largest(
    table: DeviceTable, rules: Sequence[Largest], factor: Tensor, room: int | None = None
) -> Taken:
    """Select the largest entries of each row, among candidates that reach a guess or among all entries.

    ``room`` is the number of candidates for which there is memory; by default one that is seldom exceeded.
    The host waits only for the counts of several layers.
    """
    numbers, kind = [r.number for r in rules], KEYS[factor.dtype]
    search = table.kept("search", (numbers, kind, SAMPLE), lambda: _search(table, numbers, kind))
    rows, own, rounds = table.num_rows, search.keys[:3], len(search.keys.histograms)
    options = {"SAMPLE": SAMPLE, "TOP": 8 * kind.itemsize - 2, **NO_FUSED_MULTIPLY_ADD, **SIXTEEN_WARPS}
    given = (table.rows, table.row_sizes, search.ranks, search.wanted, factor, search.guesses)
    largest.guess[(rows,)](*given, *own, rows, ROUNDS=rounds, **options)
    mark(table, factor, search.guesses, blocks.AT_LEAST)
    begins, capacity = begins_of(table), search.capacity if room is None else room
    wanted = (search.wanted, search.first, sum(search.sizes))
    values, indices = _take_marked_or_missed(
        table, factor, search.guesses, begins, *wanted, search.keys, capacity
    )
    totals = totals_of(table)  # after the sums of blocks with unsent candidates are known
    sent = numbers_sent(table, begins, len(values)) if search.sent is None else search.sent
    return values.split(search.sizes), indices.split(search.sizes), sent, totals


def _take_marked_or_missed(
    table: DeviceTable,
    factor: Tensor,
    marked: Tensor,
    begins: Tensor,
    wanted: Tensor,
    first: Tensor,
    number: int,
    keys: Keys,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    """Take the ``wanted`` [R] largest entries, those of a row from its place in ``first`` [R] on.

    Entries that reach the keys ``marked`` [R] are candidates, if there are enough and memory for them.
    ``number`` is that of all values, or more. ``begins`` becomes the places of the pieces' first values.
    """
    candidates = torch.empty(capacity, dtype=marked.dtype, device=table.device)
    entries = (table.pieces, factor, marked, table.masks, table.counts)
    largest.gather[(len(table.counts),)](*entries, begins, candidates, capacity)
    keys.search(table, wanted, table.row_pieces, begins, candidates, int(table.host.row_sizes.max()))
    exact, left = keys.found[-1], keys.left[-1]
    mark(table, factor, exact, blocks.AT_LEAST, again=keys.missed)
    above, equal = torch.empty_like(table.counts), torch.empty_like(table.counts)
    entries = (table.pieces, factor, exact, table.masks, table.counts)
    largest.compare[(len(above),)](*entries, above, equal)
    shared = (table.row_pieces, first, left, above, equal, begins)
    largest.share_ties[(table.num_rows,)](*shared, TILE=4 * TILE, **SIXTEEN_WARPS)
    return pack(table, factor, exact, begins, number, (above, equal))


def _search(table: DeviceTable, numbers: list[int], kind: torch.dtype) -> Search:
    device, rows, workers = table.device, table.num_rows, table.host.num_workers
    wanted = np.repeat(numbers, workers)
    ranks, capacity = _ranks(table.host.row_sizes, wanted)
    is_known = set(table.host.num_layers) == {1}
    return Search(
        wanted=upload(wanted.astype(np.int32), device),
        first=upload(wanted.cumsum() - wanted, device),
        sizes=[workers * number for number in numbers],
        sent=[np.full((workers, 1), number) for number in numbers] if is_known else None,
        ranks=upload(ranks, device),
        capacity=capacity,
        guesses=torch.empty(rows, dtype=kind, device=device),
        keys=Keys.empty(rows, kind, device),
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


class Sampled(NamedTuple):
    """Memory and numbers for a selection by the magnitudes of samples."""

    ranks: Tensor  # [R] int32, in the samples
    most: Tensor  # [R] int64
    number: Tensor  # [R] int64
    firsts: Tensor  # [R] int64, each row's first place among the given ones; -1 if it is its own sample
    begins: Tensor  # [R + 1] int64, of the rows' keys among those of all samples
    lengths: np.ndarray  # [R] int64, of the samples
    edges: Tensor  # [R + 1] int64, 0 to R
    room: int  # number of values, at most
    capacity: int  # of candidates
    keys: Keys


def take_sampled(
    table: DeviceTable, rules: Sequence[AtLeastSampled], factor: Tensor, room: int | None = None
) -> Taken:
    """Select the entries of at least a magnitude of each row's sample or, of too many, the largest.

    ``room`` as for ``take_largest``. The host waits once, for the counts.
    """
    dtype, kind = DTYPES[factor.dtype], KEYS[factor.dtype]
    facts = [(rule.places.shape, *rule[1:]) for rule in rules]
    own = table.kept("sampled", (facts, kind), lambda: _sampled(table, rules, kind))
    places = upload(np.concatenate([rule.places.ravel() for rule in rules]).astype(np.int32), table.device)
    keys = torch.empty(int(own.lengths.sum()), dtype=kind, device=table.device)
    longest = int(own.lengths.max())
    tiles = -(-longest // TILE)
    if tiles:
        given = (table.rows, places, own.firsts, own.begins, factor, keys, tiles)
        largest.gather_sampled[(table.num_rows * tiles,)](*given, TILE=TILE)
    own.keys.begin(own.ranks)
    own.keys.search(table, own.ranks, own.edges, own.begins, keys, longest)
    smallest, infinity = (
        np.array(x, dtype).view(f"i{kind.itemsize}").item() for x in (np.finfo(dtype).tiny, np.inf)
    )
    found = own.keys.found[-1]
    # No magnitude is below that of a NaN, so all entries reach it. The key for rank 0 is above it.
    limits = found.clamp(min=smallest).masked_fill_(found > infinity, 0)
    mark(table, factor, limits, blocks.AT_LEAST)
    begins, capacity = begins_of(table), own.capacity if room is None else room
    reached = begins[table.row_pieces].diff()
    wanted = torch.where(reached > own.most, own.number, reached).int()
    ends = wanted.cumsum(0)
    own.keys.begin(wanted)
    bounds = (limits, begins, wanted, ends - wanted, own.room)
    values, indices = _take_marked_or_missed(table, factor, *bounds, own.keys, capacity)
    begins[-1:].copy_(ends[-1:])
    totals = totals_of(table)  # before the host waits for the counts
    sent = numbers_sent(table, begins)
    sizes = [int(of_segment.sum()) for of_segment in sent]
    return values[: sum(sizes)].split(sizes), indices[: sum(sizes)].split(sizes), sent, totals


def _sampled(table: DeviceTable, rules: Sequence[AtLeastSampled], kind: torch.dtype) -> Sampled:
    device, sizes, workers = table.device, table.host.row_sizes, table.host.num_workers
    ranks, most, number, given = (
        np.repeat(own, workers)
        for own in zip(
            *((r.rank, math.floor(r.most), r.number, r.places.shape[1]) for r in rules), strict=True
        )
    )
    lengths = np.where(given > 0, given, np.where(ranks > 0, sizes, 0))
    # Twice as many as usual reach a magnitude that four standard deviations of its rank lowered.
    reached = 2 * (ranks + 4 * np.sqrt(ranks) + 4) * sizes / np.maximum(lengths, 1)
    return Sampled(
        ranks=upload(ranks.astype(np.int32), device),
        most=upload(most, device),
        number=upload(number, device),
        firsts=upload(np.where(given > 0, given.cumsum() - given, -1), device),
        begins=upload(np.append(0, lengths.cumsum()), device),
        lengths=lengths,
        edges=upload(np.arange(len(sizes) + 1), device),
        room=int(np.minimum(most, sizes).sum()),
        capacity=int(np.where(ranks > 0, np.minimum(sizes, reached), sizes).sum()),
        keys=Keys.empty(len(sizes), kind, device),
    )
