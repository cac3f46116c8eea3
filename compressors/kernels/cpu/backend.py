"""Kernels for CPUs: compiled loops on all segments and workers of a step at once."""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Codec, Compressed
from compressors.core.randomness import hash_keys
from compressors.core.rules import Drawn
from compressors.core.segments import Input, Segment, Step
from compressors.kernels.conditions import DTYPES, can_add, is_plain
from compressors.kernels.cpu import (
    binning,
    guessing,
    magnitudes,
    measuring,
    quantising,
    rounding,
    searching,
    sums,
    surveying,
)
from compressors.kernels.cpu.table import PIECE, SIZE, PieceTable, PieceTables
from compressors.kernels.cpu.taking import MAGNITUDE, TAKE_BY_RULE, guess_thresholds, search, take_drawn
from compressors.kernels.cpu.threads import parallel_for
from compressors.kernels.reference import Backend, require_own, rules_of, step_of
from compressors.parts.bins import BinnedLayer, Message, layers_of, mean_of_bins
from compressors.parts.magnitudes import SCALES, Histogram
from compressors.parts.searches import narrowed, positions_of_largest
from compressors.parts.surveys import Survey

_NOTHING = Drawn(np.empty((1, 0), dtype=np.int64), np.zeros(1, dtype=np.int64), lambda *_: ())


class CpuKernels(Backend):
    """Numba loops for contiguous fp32 and fp64 entries; the reference for all other cases."""

    name = f"numba {numba.__version__}"
    collects_tails = True

    def __init__(self) -> None:
        self._tables = PieceTables()

    def compress(
        self, codecs: Sequence[Codec], inputs: list[Input], step: Step, workers: range
    ) -> list[Compressed]:
        """Compress by the codecs' rules, if they have any.

        The first worker's gradient is set to zero as memory for the mean. This costs almost nothing while the
        gradient is in the cache, unlike a new buffer of zeros.
        """
        steps = [step_of(step, x.segment) for x in inputs]
        rules = rules_of(codecs, inputs, steps, workers) if _can_run(inputs) else None
        if rules is None:
            found = super().compress(codecs, inputs, step, workers)
            if not _can_clear(inputs):
                return found
            outs = [x.segment.rows[0] for x in inputs]
            return [own._replace(out=out) for own, out in zip(found, outs, strict=True)]
        table = self._tables.of(inputs)
        payloads = TAKE_BY_RULE[type(rules[0])](table, rules, _factor(inputs))
        sent = table.per_segment(table.per_part(table.counts.copy()))
        errors, norms = _norms(table, table.squares)
        found = []
        for codec, x, own, payload, counts, error, norm in zip(
            codecs, inputs, steps, payloads, sent, errors, norms, strict=True
        ):
            require_own(codec, payload)
            out = x.segment.rows[0] if x.memory is not None else None
            found.append(Compressed(counts, error, norm, [payload], codec, own, out))
        return found

    def form(self, inputs: list[Input]) -> tuple[list[Segment], list[Tensor]]:
        """In one pass over memory, which also sets the first worker's gradient to zero, as ``compress``."""
        if not _can_clear(inputs):
            return super().form(inputs)
        table = self._tables.of(inputs)
        take_drawn(table, [_NOTHING] * len(inputs), _factor(inputs))
        (norms,) = _norms(table, table.squares[1:])
        return [x.segment._replace(rows=x.rows) for x in inputs], norms

    def encode(self, codec: Codec, x: Tensor, step: Step) -> Any:
        rounding_of_x = codec.rounding(len(x), step) if _is_plain_row(x) else None
        if rounding_of_x is None:
            return super().encode(codec, x, step)
        return codec.payload(*rounding.encode(rounding_of_x, x.numpy()))

    def decode(self, codec: Codec, payload: Any, out: Tensor, step: Step) -> None:
        rounding_of_out = codec.rounding(len(out), step) if _is_plain_row(out) else None
        if rounding_of_out is None:
            super().decode(codec, payload, out, step)
        else:
            rounding.decode(rounding_of_out, payload, out.numpy())

    def random_bits(self, seed: int, size: int, device: torch.device) -> Tensor:
        words = np.empty(size, dtype=np.uint32)
        quantising.draw(words, *hash_keys(seed))
        return torch.from_numpy(words.view(np.int32))

    def squared_norms(self, segments: list[Segment]) -> list[Tensor]:
        inputs = [Input(segment) for segment in segments]
        return self.norms_of(inputs) if _can_run(inputs) else super().squared_norms(segments)

    def norms_of(self, inputs: list[Input]) -> list[Tensor]:
        if not _can_run(inputs):
            return super().norms_of(inputs)
        table = self._tables.of(inputs)
        pieces, squares, factor = table.pieces, table.sums, _factor(inputs)

        def work(first: int, last: int) -> None:
            block = np.zeros(256, dtype=factor.dtype)
            searching.square(pieces, first, last, factor, block, squares)

        parallel_for(work, len(pieces))
        (norms,) = _norms(table, table.squares[:1])
        return norms

    def copy_with_norms(self, rows: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        dtype = targets[0].dtype
        if dtype not in DTYPES or not all(x.dtype == dtype and x.is_contiguous() for x in rows):
            return super().copy_with_norms(rows, targets)
        pieces, parts, block = [], [], 0
        for x, to in zip(rows, targets, strict=True):
            first, source, target, size = block, x.data_ptr(), to.data_ptr(), x.numel()
            for start in range(0, size, PIECE):
                length, offset = min(PIECE, size - start), start * x.itemsize
                pieces.append((source + offset, target + offset, length, block))
                block += -(-length // 256)
            parts.append((first, block))
        table = np.array(pieces, dtype=np.int64).reshape(-1, 4)
        squares, norms = np.empty((1, block)), np.empty((1, len(parts)))

        def work(first: int, last: int) -> None:
            sums.copy_and_square(table, first, last, np.empty(256, dtype=DTYPES[dtype]), squares[0])

        if pieces:  # a bucket may have no entries
            parallel_for(work, len(table))
        sums.total_up(np.array(parts), squares, norms)
        return torch.from_numpy(norms[0])

    def add_rows(self, rows: Tensor) -> Tensor:
        if rows.dtype not in DTYPES or rows.numel() == 0:  # a segment of which nothing is sent
            return super().add_rows(rows)
        entries = rows.numpy()
        out = np.zeros(entries.shape[1], dtype=entries.dtype)
        sums.add_rows(entries.reshape(-1), out)
        return torch.from_numpy(out)

    def mean_in_order(self, parts: Sequence[Tensor], out: Tensor) -> bool:
        if not all(map(is_plain, [*parts, out])):
            return False
        steps = ((part.data_ptr(), part.stride(0) * part.itemsize, len(part)) for part in parts)
        rows = np.concatenate([first + step * np.arange(count) for first, step, count in steps])
        entries = out.numpy()
        sums.mean_of_rows(rows, entries.dtype.type(len(rows)), entries)
        return True

    def add(self, payload: Any, out: Tensor, compressed: Compressed) -> None:
        if not can_add(payload, compressed) or out.dtype != payload.values.dtype:
            super().add(payload, out, compressed)
        else:
            sums.add_at(payload.values.numpy(), payload.indices.numpy(), out.numpy())

    def means(
        self, everyones: list[list[Any]], inputs: list[Input], local: list[Compressed], num_workers: int
    ) -> list[Tensor]:
        if not all(
            len(payloads) == 1 and can_add(payloads[0], own)
            for payloads, own in zip(everyones, local, strict=True)
        ):
            return super().means(everyones, inputs, local, num_workers)
        outs = [
            own.out if own.out is not None else x.rows.new_zeros(x.size)
            for own, x in zip(local, inputs, strict=True)
        ]
        divisor = DTYPES[outs[0].dtype].type(num_workers)
        if len(outs) == 1:  # for a short vector, a table takes as long as the sum
            values, indices = everyones[0][0]
            sums.mean_of(values.numpy(), indices.numpy(), divisor, outs[0].numpy())
            return outs
        sent = [(payload.values.contiguous(), payload.indices.contiguous()) for (payload,) in everyones]
        rows = [
            (values.data_ptr(), indices.data_ptr(), out.data_ptr(), len(values), len(out))
            for (values, indices), out in zip(sent, outs, strict=True)
        ]
        sums.means_of(np.array(rows, dtype=np.int64), divisor, np.int32(0))
        return outs

    def sum_wide(self, rows: Tensor) -> Tensor:
        if not is_plain(rows):
            return super().sum_wide(rows)
        total = np.empty(rows.shape[1])
        for number, row in enumerate(rows):
            measuring.add_wide(row.numpy(), number == 0, total)
        return torch.from_numpy(total)

    def add_wide(self, parts: Sequence[Tensor], total: Tensor) -> None:
        if not all(map(is_plain, parts)):
            super().add_wide(parts, total)
            return
        table = [
            (rows.data_ptr(), rows.stride(0) * rows.itemsize, rows.shape[0], rows.shape[1]) for rows in parts
        ]
        like = DTYPES[parts[0].dtype].type(0)
        measuring.add_wide_rows(np.array(table, dtype=np.int64), like, total.numpy())

    def count_ages(self, steps: int, sent_at: Tensor, rests: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        if not all(map(is_plain, rests)):
            return super().count_ages(steps, sent_at, rests)
        counts, squares = np.zeros(steps + 1, dtype=np.int64), np.zeros(steps + 1)
        begin = 0
        for rest in rests:
            own = sent_at[begin : begin + len(rest)]
            measuring.count_ages(steps, own.numpy(), rest.numpy(), counts, squares)
            begin += len(rest)
        return torch.from_numpy(counts), torch.from_numpy(squares)

    def count_magnitudes(self, inputs: list[Input], histogram: Histogram) -> None:
        if not _can_run(inputs):
            super().count_magnitudes(inputs, histogram)
            return
        table = self._tables.of(inputs)
        factor = _factor(inputs)
        pieces, rows = table.pieces, table.row_pieces
        counts, squares = (tensor.numpy() for tensor in histogram.flushed)
        words, filled = histogram.words.numpy(), histogram.filled

        def work(first: int, last: int) -> None:
            magnitudes.count(pieces, rows, first, last, factor, words, filled, SCALES, counts, squares)

        parallel_for(work, len(words))

    def survey(
        self, inputs: list[Input], levels: np.ndarray, wanted: np.ndarray, squares: bool = True
    ) -> Survey:
        if not _can_run(inputs):
            return super().survey(inputs, levels, wanted, squares)
        table = self._tables.of(inputs)
        factor = _factor(inputs)
        magnitude, floors = MAGNITUDE[factor.dtype], np.empty(len(wanted), dtype=factor.dtype)
        pieces, row_pieces, kept = table.pieces, table.row_pieces, table.counts
        found, counts = np.empty((3 if squares else 1, len(table.sums))), np.empty_like(kept)
        levels, offsets = levels.astype(factor.dtype), np.empty(len(pieces) + 1, dtype=np.int64)
        tail = table.tail(factor.dtype)
        sums.running_total(pieces[:, SIZE], offsets)

        def guess(first: int, last: int) -> None:
            guessing.guess_thresholds(pieces, row_pieces, first, last, factor, wanted, magnitude, floors)

        def add_up(first: int, last: int) -> None:
            facts = (found, counts, kept, offsets, tail)
            surveying.survey(pieces, first, last, factor, levels, floors, *facts)

        if wanted.any():
            parallel_for(guess, len(wanted))
        else:
            floors.fill(np.inf)
        parallel_for(add_up, len(pieces))
        per_row = [
            np.concatenate([of_segment.sum(1).numpy() for of_segment in own]) for own in _norms(table, found)
        ]
        number = np.add.reduceat(counts, row_pieces[:-1])
        tails = surveying.tails_of(tail, offsets, kept, row_pieces)
        return Survey.of(number, per_row, tails, floors.astype(np.float64))

    def survey_tails(self, found: Survey, levels: np.ndarray, squares: bool = True) -> Survey:
        rows = zip(found.tails, levels.tolist(), strict=True)
        facts = [surveying.survey_tail(tail, tail.dtype.type(level), squares) for tail, level in rows]
        number, used = np.array([own[:2] for own in facts]).T
        excesses, of_squares = np.array([own[2:] for own in facts]).T
        tails = [tail[:length] for tail, length in zip(found.tails, used.tolist(), strict=True)]
        shorter = used < np.array([len(tail) for tail in found.tails])
        floors = np.where(shorter, np.nextafter(levels, 0), found.floors)
        return Survey(number, excesses, found.totals, of_squares, tails, floors)

    def search(self, inputs: list[Input], thresholds: np.ndarray) -> list[Tensor]:
        if not _can_run(inputs):
            return super().search(inputs, thresholds)
        return search(self._tables.of(inputs), thresholds.astype(_factor(inputs).dtype), _factor(inputs))

    def search_largest(self, inputs: list[Input], numbers: Sequence[int]) -> list[Tensor]:
        if not _can_run(inputs):
            return super().search_largest(inputs, numbers)
        table, factor = self._tables.of(inputs), _factor(inputs)
        found = search(table, guess_thresholds(table, np.array(numbers), factor), factor)
        rows = [(given, row) for given in inputs for row in range(table.num_workers)]
        for place, ((given, row), number) in enumerate(zip(rows, numbers, strict=True)):
            if len(found[place]) < number:  # the guess was too high
                (found[place],) = super().search_largest([narrowed(given, row, 0, given.size)], [number])
            elif len(found[place]) > number:
                entries = given.entries(row, found[place])
                found[place] = found[place][positions_of_largest(entries, number)]
        return found

    def encode_bins(
        self, inputs: list[Input], layers: Sequence[Sequence[BinnedLayer]], factors: Sequence[float]
    ) -> list[list[list[Message]]]:
        found = []
        for given, own, factor in zip(inputs, layers, factors, strict=True):
            if _is_plain_row(given.rows[0]) and _is_plain_row(given.segment.rows[0]):
                rows = layers_of(given, own)
                found.append([[_encode_layer(p, g, factor, layer) for p, g, layer in row] for row in rows])
            else:
                found += super().encode_bins([given], [own], [factor])
        return found

    def add_bins(self, message: Message, layer: BinnedLayer, total: Tensor) -> None:
        if total.dtype != torch.float32:
            super().add_bins(message, layer, total)
        else:
            magnitude, counts, codes = (field.numpy() for field in message)
            binning.add(magnitude[0], counts, codes, layer.bin_size, total.numpy())


def _encode_layer(p: Tensor, g: Tensor, gradient_factor: float, layer: BinnedLayer) -> Message:
    largest = np.empty(layer.num_bins, dtype=np.float32)
    binning.largest_of_bins(p.numpy(), layer.bin_size, largest)
    magnitude = mean_of_bins(torch.from_numpy(largest)).reshape(1)
    counts = torch.empty(layer.num_bins, dtype=layer.count_type)
    codes = torch.empty(layer.size, dtype=layer.code_type)
    sent = binning.encode(
        p.numpy(),
        g.numpy(),
        np.float32(gradient_factor),
        layer.bin_size,
        largest,
        magnitude.numpy()[0],
        counts.numpy(),
        codes.numpy(),
    )
    return Message(magnitude, counts, codes[:sent])


def _factor(inputs: Sequence[Input]) -> np.floating:
    """The factor on gradients, in the dtype of the entries."""
    return DTYPES[inputs[0].rows.dtype].type(inputs[0].scale)


def _can_run(inputs: Sequence[Input]) -> bool:
    """Whether the loops support dtypes, memory layout and sizes."""
    return all(
        is_plain(x.rows) and (x.memory is None or is_plain(x.segment.rows)) and x.size < 2**31 for x in inputs
    )


def _can_clear(inputs: Sequence[Input]) -> bool:
    """Whether ``form`` adds gradients to a memory by a loop, so they may be cleared."""
    return _can_run(inputs) and all(x.memory is not None for x in inputs)


def _is_plain_row(x: Tensor) -> bool:
    """Whether the loops of quantisers support ``x`` [d]."""
    return x.dtype == torch.float32 and x.is_contiguous() and 0 < len(x) < 2**31


def _norms(table: PieceTable, of_blocks: np.ndarray) -> list[list[Tensor]]:
    """Sums ``of_blocks`` (consumed) added per layer, [W, L] for each segment."""
    totals = np.empty((len(of_blocks), len(table.parts)))
    sums.total_up(table.parts, of_blocks, totals)
    return [[torch.from_numpy(norm) for norm in table.per_segment(row)] for row in totals]
