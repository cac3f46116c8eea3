"""Kernels for CPUs: the loops of ``native.py`` on all segments and workers of a step at once."""

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from compressors.api import Fault, Segment
from compressors.kernels import guessing, magnitudes, measuring, native, packing, sums
from compressors.kernels.index_codes import CompiledIndexCodes
from compressors.kernels.selected import Selected
from compressors.kernels.table import Table, Tables
from compressors.kernels.threads import share_out
from compressors.magnitudes import SCALES
from compressors.payloads import Sparse
from compressors.rules import AtLeast, Drawn, Largest, Rule

_DTYPES = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
_INT64 = np.dtype(np.int64)
_MAGNITUDE = {  # all bits but the sign, in the type that magnitudes are compared by
    np.dtype(np.float32): np.array([2**31 - 1], dtype=np.uint32),
    np.dtype(np.float64): np.array([2**63 - 1], dtype=np.uint64),
}


class CpuKernels:
    """Numba's code for fp32 and fp64 entries that lie side by side."""

    name = f"numba {numba.__version__}"
    index_codes = CompiledIndexCodes()
    can_spread = can_count = True

    def __init__(self) -> None:
        self._tables = Tables()

    def can_run(self, segments: Sequence[Segment]) -> bool:
        """Whether dtypes, memory layout and sizes are ones that the loops are made for."""
        return all(
            _is_plain(s.rows) and (s.gradient is None or _is_plain(s.gradient)) and s.rows.shape[1] < 2**31
            for s in segments
        )

    def select(
        self,
        segments: list[Segment],
        rules: Sequence[Rule],
        *,
        measure: bool = False,
        refuse: Callable[[list[Fault]], None] | None = None,
    ) -> list[Selected]:
        """rows + factor gradient, then take what each segment's rule keeps and leave the rest in ``rows``.

        ``measure`` asks for the squared norms of the sums; ``refuse`` is told where these are not finite. The
        first worker's gradient becomes zeros: where it has just been read they cost next to nothing, unlike a
        buffer of zeros for the mean.
        """
        table = self._tables.of(segments)
        like = _DTYPES[segments[0].rows.dtype]
        factor = like.type(segments[0].factor)

        def check() -> None:
            if refuse is not None:
                layers = map(table.layer_of, table.faulty.nonzero()[0])
                refuse([Fault(worker, segments[number].name, layer) for worker, number, layer in layers])

        if isinstance(rules[0], Drawn):
            selected = _select_drawn(table, rules, factor, measure, check)
        elif isinstance(rules[0], AtLeast):
            thresholds = table.per_row([r.threshold for r in rules], like)
            selected = _select(table, thresholds, factor, measure, check)
        else:
            selected = _select_largest(table, rules, factor, measure, check)
        if segments[0].gradient is None:
            return selected
        return [s._replace(room=of.gradient[0]) for s, of in zip(selected, segments, strict=True)]

    def add_rows(self, rows: Tensor) -> Tensor:
        """[m, k] to [k], one row after the other."""
        entries = rows.numpy()
        out = np.zeros(entries.shape[1], dtype=entries.dtype)
        sums.add_rows(entries.reshape(-1), out)
        return torch.from_numpy(out)

    def spread(self, rule: Drawn, size: int, room: Tensor | None, values: Tensor) -> Tensor:
        """``values`` [k] at the positions that all workers drew, [size]; in ``room`` if there is some."""
        entries = values.numpy()
        out = room if room is not None else values.new_zeros(size)
        sums.spread(rule.positions[0], rule.rotations[0], entries, out.numpy())
        return out

    def can_average(self, payload: Any) -> bool:
        is_known = isinstance(payload, Sparse) and payload.values.dtype in _DTYPES
        return is_known and payload.indices.dtype == torch.int32

    def write_means(self, payloads: Sequence[Sparse], num_workers: int, outs: Sequence[Tensor]) -> None:
        """What ``num_workers`` sent per segment, added up in their order and divided by their number.

        ``outs`` are zeros [d] that lie side by side.
        """
        divisor = _DTYPES[outs[0].dtype].type(num_workers)
        if len(outs) == 1:  # of a short vector a table would take as long as the sum
            values, indices = payloads[0]
            sums.mean_of(values.numpy(), indices.numpy(), divisor, outs[0].numpy())
            return
        sent = [(payload.values.contiguous(), payload.indices.contiguous()) for payload in payloads]
        rows = [
            (values.data_ptr(), indices.data_ptr(), out.data_ptr(), len(values), len(out))
            for (values, indices), out in zip(sent, outs, strict=True)
        ]
        sums.means_of(np.array(rows, dtype=np.int64), divisor, np.int32(0))

    def can_sum(self, rows: Tensor) -> bool:
        """Whether ``rows`` [W, d] or a row [d] are of dtype and layout that the loops are made for."""
        return rows.dtype in _DTYPES and (rows.stride(-1) == 1 or rows.shape[-1] == 1)

    def sum_wide(self, rows: Tensor) -> Tensor:
        """The sum of ``rows`` [W, d], one after the other, in float64 [d]."""
        total = np.empty(rows.shape[1])
        for number, row in enumerate(rows):
            measuring.add_wide(row.numpy(), number == 0, total)
        return torch.from_numpy(total)

    def add_wide(self, parts: Sequence[Tensor], total: Tensor) -> None:
        """Rows of every part [W, d], one after the other, added to the next d of ``total`` [D] float64."""
        table = [
            (rows.data_ptr(), rows.stride(0) * rows.itemsize, rows.shape[0], rows.shape[1]) for rows in parts
        ]
        like = _DTYPES[parts[0].dtype].type(0)
        measuring.add_wide_rows(np.array(table, dtype=np.int64), like, total.numpy())

    def count_ages(self, steps: int, sent_at: Tensor, rests: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """One worker's entries by number of steps, 0 to ``steps``: how many, and the sum of their squares.

        ``sent_at`` [D] int32 counts steps from 1; ``rests`` are the entries of one segment after the other.
        """
        counts, masses = np.zeros(steps + 1, dtype=np.int64), np.zeros(steps + 1)
        begin = 0
        for rest in rests:
            own = sent_at[begin : begin + len(rest)]
            measuring.count_ages(steps, own.numpy(), rest.numpy(), counts, masses)
            begin += len(rest)
        return torch.from_numpy(counts), torch.from_numpy(masses)

    def count_magnitudes(
        self, segments: list[Segment], words: Tensor, filled: np.ndarray, counts: Tensor, squares: Tensor
    ) -> None:
        """Add every entry of rows + factor gradient to the histogram of its worker."""
        table = self._tables.of(segments)
        factor = _DTYPES[segments[0].rows.dtype].type(segments[0].factor)
        pieces, rows = table.pieces, table.row_pieces
        totals = (counts.numpy(), squares.numpy())
        words = words.numpy()

        def work(first: int, last: int) -> None:
            magnitudes.count(pieces, rows, first, last, factor, words, filled, SCALES, *totals)

        share_out(work, len(words))

    def squared_norms(self, segments: list[Segment]) -> list[Tensor]:
        """``api.squared_norm`` of every layer of every segment's ``rows``, [W, L] each, bit for bit."""
        table = self._tables.of(segments)
        pieces, squares, like = table.pieces, table.sums, _DTYPES[segments[0].rows.dtype].type(0)

        def work(first: int, last: int) -> None:
            native.square(pieces, first, last, like, squares)

        share_out(work, len(pieces))
        return _norms(table, table.sums)


def _is_plain(rows: Tensor) -> bool:
    return rows.dtype in _DTYPES and (rows.stride(1) == 1 or rows.shape[1] == 1)


def _mark(table: Table, factor: np.floating, thresholds: np.ndarray, measure: bool) -> None:
    pieces, masks, squares = table.pieces, table.masks, table.sums
    counts, faulty, wholes, workers = table.counts, table.faulty, table.wholes(measure), table.num_workers

    def work(first: int, last: int) -> None:
        found = (masks, squares, counts, faulty, wholes)
        native.mark(pieces, first, last, workers, factor, thresholds, *found)

    share_out(work, len(pieces))


def _select(
    table: Table,
    thresholds: np.ndarray,
    factor: np.floating,
    measure: bool,
    check: Callable[[], None],
) -> list[Selected]:
    _mark(table, factor, thresholds, measure)
    check()
    values, indices, offsets = _outputs(table, thresholds.dtype)
    pieces, masks = table.pieces, table.masks

    def work(first: int, last: int) -> None:
        packing.pack(pieces, first, last, offsets, thresholds, masks, values, indices)

    share_out(work, len(pieces))
    return _selected(table, values, indices, offsets, measure)


def _select_largest(
    table: Table,
    rules: Sequence[Largest],
    factor: np.floating,
    measure: bool,
    check: Callable[[], None],
) -> list[Selected]:
    pieces, row_pieces = table.pieces, table.row_pieces
    masks, squares, counts, faulty = table.masks, table.sums, table.counts, table.faulty
    wanted = table.per_row([r.count for r in rules], _INT64)
    magnitude = _MAGNITUDE[factor.dtype]
    thresholds = np.empty(len(wanted), dtype=factor.dtype)
    keys = np.empty(len(wanted), dtype=magnitude.dtype)
    ties = np.empty(len(pieces), dtype=np.int64)

    def find(first: int, last: int) -> None:
        guessing.guess(pieces, row_pieces, first, last, factor, wanted, magnitude, thresholds)

    def choose(first: int, last: int) -> None:
        rows = (pieces, row_pieces, first, last, wanted, magnitude)
        native.refine(*rows, thresholds, masks, squares, counts, faulty, keys, ties)

    def work(first: int, last: int) -> None:
        chosen = (pieces, first, last, offsets, magnitude, thresholds, masks, squares, keys, ties)
        native.pack_largest(*chosen, values, indices)

    share_out(find, len(wanted))
    _mark(table, factor, thresholds, measure)
    check()
    share_out(choose, len(wanted))
    values, indices, offsets = _outputs(table, factor.dtype)
    share_out(work, len(pieces))
    return _selected(table, values, indices, offsets, measure)


def _outputs(table: Table, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Room for what is marked, and where each piece's begins, [P + 1]."""
    offsets = np.empty(len(table.counts) + 1, dtype=np.int64)
    total = sums.running_total(table.counts, offsets)
    return np.empty(total, dtype=dtype), np.empty(total, dtype=np.int32), offsets


def _norms(table: Table, of_blocks: np.ndarray) -> list[Tensor]:
    """Sums ``of_blocks`` (consumed) added up per layer, [W, L] for each segment."""
    totals = np.empty(len(table.parts))
    sums.total_up(table.parts, 0, len(totals), of_blocks, totals)
    return [torch.from_numpy(norm) for norm in table.per_segment(totals)]


def _measured(table: Table, measure: bool) -> tuple[list[np.ndarray], list[Tensor], list[Tensor | None]]:
    """Per segment what was taken [W, L], the error and, if asked for, the norm of what there was."""
    sent = table.per_segment(table.per_part(table.counts.copy()))
    norms = _norms(table, table.wholes(True)) if measure else [None] * len(sent)
    return sent, _norms(table, table.sums), norms


def _selected(
    table: Table, values: np.ndarray, indices: np.ndarray, offsets: np.ndarray, measure: bool
) -> list[Selected]:
    measured = _measured(table, measure)
    taken, where = torch.from_numpy(values), torch.from_numpy(indices)
    if len(table.edges) == 1:
        return list(map(Selected, [taken], [where], *measured))
    sizes = np.diff(offsets[table.row_pieces[:: table.num_workers]]).tolist()
    return list(map(Selected, taken.split(sizes), where.split(sizes), *measured))


def _select_drawn(
    table: Table,
    rules: Sequence[Drawn],
    factor: np.floating,
    measure: bool,
    check: Callable[[], None],
) -> list[Selected]:
    draws, sizes = table.draws(tuple([rule.positions.shape for rule in rules]))
    for rule, own in zip(rules, draws, strict=True):
        own[:, 3] = rule.rotations
    positions = [rule.positions.ravel() for rule in rules]
    drawn = np.concatenate(positions) if len(positions) > 1 else positions[0]
    values = np.empty(sum(sizes), dtype=factor.dtype)
    _take(table, factor, drawn, draws.reshape(-1, 4), values, measure)
    check()
    everything = torch.from_numpy(values)
    taken = everything.split(sizes) if len(sizes) > 1 else (everything,)
    return list(map(Selected, taken, [None] * len(sizes), *_measured(table, measure)))


def _take(
    table: Table,
    factor: np.floating,
    drawn: np.ndarray,
    draws: np.ndarray,
    values: np.ndarray,
    measure: bool,
) -> None:
    pieces, squares, counts, faulty = table.pieces, table.sums, table.counts, table.faulty
    wholes, workers = table.wholes(measure), table.num_workers

    def work(first: int, last: int) -> None:
        found = (values, squares, counts, faulty, wholes)
        native.take(pieces, first, last, workers, factor, drawn, draws, *found)

    share_out(work, len(pieces))
