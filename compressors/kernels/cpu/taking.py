"""Selection by compiled loops: the payloads of every rule of ``compressors/core/rules.py``, from a table."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.payloads import Sparse
from compressors.core.rules import AtLeast, AtLeastSampled, Drawn, Largest, SignsAtLeast
from compressors.kernels.cpu import guessing, native, packing, searching, sums
from compressors.kernels.cpu.table import PieceTable
from compressors.kernels.cpu.threads import parallel_for

_INT64 = np.dtype(np.int64)
# Mask of all bits except the sign, in the dtype for comparing magnitudes
MAGNITUDE: dict[np.dtype[Any], np.ndarray] = {
    np.dtype(np.float32): np.array([2**31 - 1], dtype=np.uint32),
    np.dtype(np.float64): np.array([2**63 - 1], dtype=np.uint64),
}
Payloads = list[tuple[Tensor, ...]]  # of each segment, joined over the workers


def take_marked(table: PieceTable, rules: Sequence[AtLeast], factor: np.floating) -> Payloads:
    thresholds = table.per_row([rule.threshold for rule in rules], factor.dtype)
    _mark(table, factor, thresholds)
    values, indices, offsets = _outputs(table, thresholds.dtype)
    pieces, masks = table.pieces, table.masks

    def work(first: int, last: int) -> None:
        packing.pack(pieces, first, last, offsets, thresholds, masks, values, indices)

    parallel_for(work, len(pieces))
    return _sparse(table, values, indices, offsets)


def take_signs(table: PieceTable, rules: Sequence[SignsAtLeast], factor: np.floating) -> Payloads:
    thresholds = table.per_row([rule.threshold for rule in rules], factor.dtype)
    _mark(table, factor, thresholds)
    _, words, offsets = _outputs(table, thresholds.dtype)
    pieces, masks, squares = table.pieces, table.masks, table.sums

    def work(first: int, last: int) -> None:
        packing.pack_signs(pieces, first, last, offsets, thresholds, masks, words)
        native.square_marked(pieces, first, last, masks, factor, squares)

    parallel_for(work, len(pieces))
    parts = _split(torch.from_numpy(words), _sizes(table, offsets))
    return [rule.payload(own) for rule, own in zip(rules, parts, strict=True)]


def take_largest(table: PieceTable, rules: Sequence[Largest], factor: np.floating) -> Payloads:
    wanted = table.per_row([rule.number for rule in rules], _INT64)
    thresholds = guess_thresholds(table, wanted, factor)
    np.maximum(thresholds, np.finfo(factor.dtype).smallest_subnormal, out=thresholds)
    _mark(table, factor, thresholds)
    return _take_number(table, wanted, thresholds)


def take_sampled(table: PieceTable, rules: Sequence[AtLeastSampled], factor: np.floating) -> Payloads:
    pieces, row_pieces = table.pieces, table.row_pieces
    places = [rule.places for rule in rules]
    starts = np.cumsum([0] + [len(row) for own in places for row in own])
    drawn = np.concatenate([own.ravel() for own in places])
    ranks = table.per_row([rule.rank for rule in rules], _INT64)
    thresholds = np.empty(len(ranks), dtype=factor.dtype)
    smallest = np.finfo(factor.dtype).smallest_normal

    def find(first: int, last: int) -> None:
        magnitude = MAGNITUDE[factor.dtype]
        rows = (pieces, row_pieces, first, last, factor)
        guessing.thresholds_of_samples(*rows, drawn, starts, ranks, smallest, magnitude, thresholds)

    parallel_for(find, len(ranks))
    _mark(table, factor, thresholds)
    found = np.add.reduceat(table.counts, row_pieces[:-1])
    most, number = (
        np.repeat([rule[field] for rule in rules], table.num_workers)
        for field in (AtLeastSampled._fields.index("most"), AtLeastSampled._fields.index("number"))
    )
    return _take_number(table, np.where(found > most, number, found), thresholds)


def take_drawn(table: PieceTable, rules: Sequence[Drawn], factor: np.floating) -> Payloads:
    draws, rotations, sizes = table.draws([rule.positions.shape for rule in rules])
    for rule, own in zip(rules, rotations, strict=True):
        own[:] = rule.rotations
    drawn = rules[0].positions.ravel()
    if len(rules) > 1:
        drawn = np.concatenate([rule.positions.ravel() for rule in rules])
    values = np.empty(sum(sizes), dtype=factor.dtype)
    pieces, squares, counts = table.pieces, table.sums, table.counts
    sums_of_all, workers = table.sums_of_all, table.num_workers

    def work(first: int, last: int) -> None:
        found = (values, squares, counts, sums_of_all)
        native.take(pieces, first, last, workers, factor, drawn, draws, *found)

    parallel_for(work, len(pieces))
    parts = _split(torch.from_numpy(values), sizes)
    return [rule.payload(own, workers) for rule, own in zip(rules, parts, strict=True)]


TAKE_BY_RULE: dict[type, Callable[[PieceTable, Any, np.floating], Payloads]] = {
    AtLeast: take_marked,
    AtLeastSampled: take_sampled,
    SignsAtLeast: take_signs,
    Largest: take_largest,
    Drawn: take_drawn,
}


def guess_thresholds(table: PieceTable, wanted: np.ndarray, factor: np.floating) -> np.ndarray:
    """Per row a threshold that at least ``wanted`` [R] entries of p most likely reach."""
    pieces, row_pieces, magnitude = table.pieces, table.row_pieces, MAGNITUDE[factor.dtype]
    thresholds = np.empty(len(wanted), dtype=factor.dtype)

    def work(first: int, last: int) -> None:
        guessing.guess_thresholds(pieces, row_pieces, first, last, factor, wanted, magnitude, thresholds)

    parallel_for(work, len(wanted))
    return thresholds


def search(table: PieceTable, thresholds: np.ndarray, factor: np.floating) -> list[Tensor]:
    """Per row the ascending positions of |p| >= ``thresholds`` [R]; p is not computed in place."""
    pieces, masks, counts = table.pieces, table.masks, table.counts
    offsets = np.empty(len(pieces) + 1, dtype=np.int64)

    def mark(first: int, last: int) -> None:
        searching.search(pieces, first, last, factor, thresholds, masks, counts)

    def work(first: int, last: int) -> None:
        searching.positions(pieces, first, last, offsets, masks, found)

    parallel_for(mark, len(pieces))
    found = np.empty(sums.running_total(counts, offsets), dtype=np.int64)
    parallel_for(work, len(pieces))
    return list(torch.from_numpy(found).split(np.diff(offsets[table.row_pieces]).tolist()))


def _mark(table: PieceTable, factor: np.floating, thresholds: np.ndarray) -> None:
    pieces, masks, squares = table.pieces, table.masks, table.sums
    counts, sums_of_all, workers = table.counts, table.sums_of_all, table.num_workers

    def work(first: int, last: int) -> None:
        native.mark(pieces, first, last, workers, factor, thresholds, masks, squares, counts, sums_of_all)

    parallel_for(work, len(pieces))


def _take_number(table: PieceTable, wanted: np.ndarray, thresholds: np.ndarray) -> Payloads:
    """Take the ``wanted`` [R] largest magnitudes, which are most likely marked, apart from zeros."""
    pieces, row_pieces = table.pieces, table.row_pieces
    masks, squares, counts, sums_of_all = table.masks, table.sums, table.counts, table.sums_of_all
    magnitude = MAGNITUDE[thresholds.dtype]
    keys = np.empty(len(wanted), dtype=magnitude.dtype)
    ties = np.empty(len(pieces), dtype=np.int64)

    def choose(first: int, last: int) -> None:
        rows = (pieces, row_pieces, first, last, wanted, magnitude)
        native.refine_thresholds(*rows, thresholds, masks, squares, counts, sums_of_all, keys, ties)

    def work(first: int, last: int) -> None:
        chosen = (pieces, first, last, offsets, magnitude, thresholds, masks, squares, keys, ties)
        native.pack_largest(*chosen, values, indices)

    parallel_for(choose, len(wanted))
    values, indices, offsets = _outputs(table, thresholds.dtype)
    parallel_for(work, len(pieces))
    return _sparse(table, values, indices, offsets)


def _outputs(table: PieceTable, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Output memory for marked entries, and the start of each piece's part of it, [P + 1]."""
    offsets = np.empty(len(table.counts) + 1, dtype=np.int64)
    total = sums.running_total(table.counts, offsets)
    return np.empty(total, dtype=dtype), np.empty(total, dtype=np.int32), offsets


def _sparse(table: PieceTable, values: np.ndarray, indices: np.ndarray, offsets: np.ndarray) -> Payloads:
    sizes = _sizes(table, offsets)
    fields = [_split(torch.from_numpy(field), sizes) for field in (values, indices)]
    return [Sparse(*own) for own in zip(*fields, strict=True)]


def _sizes(table: PieceTable, offsets: np.ndarray) -> list[int]:
    """Number of selected entries of each segment."""
    ends = offsets[table.row_pieces[:: table.num_workers]]
    return (ends[1:] - ends[:-1]).tolist()


def _split(whole: Tensor, sizes: list[int]) -> Sequence[Tensor]:
    return whole.split(sizes) if len(sizes) > 1 else (whole,)
