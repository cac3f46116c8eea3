"""Launches of kernels that read p of all segments and workers without computing it in place."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.core.payloads import on_host
from compressors.kernels.conditions import DTYPES
from compressors.kernels.cpu.table import BASE, ROW
from compressors.kernels.gpu import counting as counting
from compressors.kernels.gpu import searching as searching
from compressors.kernels.gpu import surveying as loops
from compressors.kernels.gpu.table import TILE, Adding, DeviceTable, upload
from compressors.kernels.gpu.taking import NO_FUSED_MULTIPLY_ADD, add_up
from compressors.parts import magnitudes
from compressors.parts.magnitudes import Histogram
from compressors.parts.surveys import Survey

SAMPLE = 2**12  # entries of a row from which a floor is guessed
GROUPS = 64  # of entries, whose words are in memory at a time: 2 MiB for each worker


def survey(
    table: DeviceTable, factor: Tensor, levels: np.ndarray, wanted: np.ndarray, squares: bool
) -> Survey:
    """The survey of all rows at ``levels`` [R]; the host waits once.

    Tails have most likely the ``wanted`` [R] largest magnitudes. One that does not fit into its memory is
    empty, and its floor is infinite.
    """
    dtype, device, sizes = DTYPES[factor.dtype], table.device, table.host.row_sizes
    ranks, room = _ranks(sizes, wanted)
    floors = _floors(table, factor, ranks, wanted == 0)
    starts = np.append(0, room.cumsum())
    facts = torch.zeros(3, table.num_rows, dtype=torch.int32, device=device)
    num_blocks, kinds = len(table.host.sums), 3 if squares else 1
    sums = torch.empty(kinds * num_blocks, dtype=torch.float64, device=device)
    tails = torch.empty(int(starts[-1]), dtype=factor.dtype, device=device)
    of_rows = (upload(levels.astype(dtype), device), floors, upload(starts, device))
    of_blocks = [sums[i * num_blocks :] if squares else sums for i in range(3)]
    words = (table.pieces, factor, *of_rows, *of_blocks, *facts, tails)
    loops.survey[(len(table.pieces),)](*words, ALL=squares, **NO_FUSED_MULTIPLY_ADD)
    added = add_up(sums, _adding(table, kinds))
    arrived = on_host([added, floors, tails, facts.flatten()])
    found, at, above = (own.numpy() for own in arrived[:3])
    counts, equal, kept = arrived[3].view(3, -1).numpy()
    per_row = [
        np.concatenate([own.sum(1).numpy() for own in table.host.per_segment(part)])
        for part in torch.from_numpy(found).chunk(kinds)
    ]
    floors_of = at.astype(np.float64)
    parts = [above[begin : begin + number] for begin, number in zip(starts, kept, strict=False)]
    for row in np.flatnonzero(kept > room):  # the guess was far too low
        parts[row], floors_of[row], equal[row] = above[:0], np.inf, 0
    ties = np.minimum(equal, np.maximum(wanted - kept, 0))  # the others change no count above the floor
    rows = zip(parts, at, ties.tolist(), strict=True)
    # In descending order, so that sums do not depend on the order of the programs
    ordered = [np.append(np.sort(own)[::-1], np.full(number, floor)) for own, floor, number in rows]
    return Survey.of(counts, per_row, ordered, floors_of)


def search(table: DeviceTable, factor: Tensor, thresholds: np.ndarray) -> list[Tensor]:
    """Per row the ascending positions of |p| >= ``thresholds`` [R], and of NaN; the host waits once."""
    limits = upload(thresholds.astype(DTYPES[factor.dtype]), table.device)
    counts = torch.empty_like(table.counts)
    grid = (len(counts),)
    searching.count_large[grid](table.pieces, factor, limits, counts)
    ends = counts.cumsum(0)
    up_to = ends[table.row_pieces[1:] - 1].cpu().numpy()
    found = torch.empty(int(up_to[-1]), dtype=torch.int64, device=table.device)
    searching.list_large[grid](table.pieces, factor, limits, counts, ends, found)
    return list(found.split(np.diff(up_to, prepend=0).tolist()))


class Places(NamedTuple):
    """The pieces of the reference in order, equal for all workers."""

    sizes: list[int]
    of_pieces: Tensor  # [P], the place in them of each piece of the table


def places_of(table: DeviceTable) -> Places:
    """The pieces of one worker's entries, as the reference cuts them, and those of which the table's are."""
    host, begin = table.host, 0
    starts, sizes, of_segments = list[int](), list[int](), list[int]()
    for edges in (edges.tolist() for edges in host.edges):
        of_segments.append(begin)
        for first, last in pairwise(edges):
            bases = range(first, last, magnitudes.PIECE)
            starts += [begin + base for base in bases]
            sizes += [min(magnitudes.PIECE, last - base) for base in bases]
        begin += edges[-1]
    row, base = host.pieces[:, ROW], host.pieces[:, BASE]
    at = np.array(of_segments)[row // host.num_workers] + base
    found = np.searchsorted(starts, at, side="right") - 1
    return Places(sizes, upload(found.clip(0), table.device))


def add_magnitudes(table: DeviceTable, factor: Tensor, histogram: Histogram) -> None:
    """Add every entry of p to its worker's histogram, as ``magnitudes.count_pieces``."""
    sizes, places = table.kept("magnitudes", magnitudes.PIECE, lambda: places_of(table))
    groups = magnitudes.groups_of(sizes, histogram)
    if not sizes:
        return
    number = groups[-1] + 1
    on_device = upload(np.array(groups), table.device)
    (counts, squares), last = histogram.flushed, histogram.words
    words = last.new_empty(min(number, GROUPS), *last.shape)
    for begin in range(0, number, GROUPS):
        end = min(number, begin + GROUPS)
        words.zero_()
        if begin == 0:
            words[0] = last  # entries of earlier steps
        launched = (table.pieces, factor, places, on_device, words, begin, end, len(last))
        counting.count[(len(table.pieces),)](*launched, **NO_FUSED_MULTIPLY_ADD)
        whole = end - begin - (end == number)
        flushed = (words, histogram.scales, counts, squares, whole, last.numel())
        counting.flush[(last.numel() // TILE,)](*flushed, TILE=TILE, **NO_FUSED_MULTIPLY_ADD)
    last.copy_(words[end - begin - 1])


def _ranks(sizes: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks in the samples [R] of the floors, and memory for the tails [R], which is seldom exceeded.

    Both allow for four and six standard deviations of a sampled number.
    """
    sampled = np.minimum(sizes, SAMPLE)
    expected = wanted * sampled / np.maximum(sizes, 1)
    is_whole = sizes <= SAMPLE
    ranks = np.where(is_whole, wanted, np.ceil(expected + 4 * np.sqrt(expected) + 4)).astype(np.int64)
    each = (ranks + 6 * np.sqrt(ranks)) * sizes / np.maximum(sampled, 1) + 64
    room = np.where(is_whole, wanted, np.ceil(each)).astype(np.int64)
    return ranks, np.where(wanted == 0, 0, np.minimum(sizes, room))


def _floors(table: DeviceTable, factor: Tensor, ranks: np.ndarray, is_empty: np.ndarray) -> Tensor:
    """The ``ranks``-th largest magnitude [R] of a sample of each row; 0 beyond it, infinite for no tail."""
    magnitudes = factor.new_empty(table.num_rows, SAMPLE)
    loops.sample[(table.num_rows,)](
        table.rows, table.row_sizes, factor, magnitudes, SAMPLE=SAMPLE, num_warps=8
    )
    places = upload(np.clip(ranks, 1, SAMPLE)[:, None] - 1, table.device)
    found = magnitudes.sort(descending=True).values.gather(1, places)[:, 0].clamp_(min=0)
    beyond = (ranks > SAMPLE) & (ranks > 0)
    found = found.masked_fill(upload(beyond, table.device), 0)
    return found.masked_fill(upload(is_empty, table.device), float("inf"))


def _adding(table: DeviceTable, kinds: int) -> Adding:
    if kinds == 1:
        return table.adding
    parts, num_blocks = table.host.parts, len(table.host.sums)
    return Adding(np.concatenate([parts + i * num_blocks for i in range(kinds)]), table.device)
