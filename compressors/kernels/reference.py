"""The reference of all kernels: torch and NumPy operations, one worker after another."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.checks import MethodError
from compressors.core.codec import Codec, Compressed
from compressors.core.fields import declared
from compressors.core.norms import layer_norms, squared_norm
from compressors.core.payloads import divide, require_sparse
from compressors.core.randomness import random_bits
from compressors.core.segments import Input, Segment, Step
from compressors.parts.bins import BinnedLayer, Message, add_layer, encode_bins
from compressors.parts.magnitudes import Histogram, count_pieces
from compressors.parts.searches import search_largest_rows, search_rows
from compressors.parts.surveys import Survey, survey_rows, survey_tails


class Backend:
    """The reference. Other backends extend it, with the same bits."""

    name = "reference"
    collects_tails = False  # whether collecting a long tail takes less time than a second survey

    def compress(
        self, codecs: Sequence[Codec], inputs: list[Input], step: Step, workers: range
    ) -> list[Compressed]:
        """Compress all segments of the local workers; p - C(p) replaces p.

        ``codecs`` has the codec of every segment, ``workers`` the local workers' ids. Raises ``MethodError``
        if a codec returns a payload of an undeclared class, or a ``Sparse`` that does not fit its vector.
        """
        segments, norms = self.form(inputs)
        found = []
        for codec, segment, norm in zip(codecs, segments, norms, strict=True):
            steps = [step_of(step, segment)._replace(worker=worker) for worker in workers]
            payloads = [self.encode(codec, row, own) for row, own in zip(segment.rows, steps, strict=True)]
            size = segment.rows.shape[1]
            for payload, row in zip(payloads, segment.rows, strict=True):
                require_own(codec, payload)
                require_sparse(type(codec).__name__, payload, row)
            counts = [
                codec.num_sent(payload, size, own) for payload, own in zip(payloads, steps, strict=True)
            ]
            compressed = Compressed(np.array(counts)[:, None], norm, norm, payloads, codec, steps[0])
            found.append(compressed._replace(sent=count_sent(compressed, segment.edges)))
        errors = self.squared_norms(segments)
        return [own._replace(error=error) for own, error in zip(found, errors, strict=True)]

    def form(self, inputs: list[Input]) -> tuple[list[Segment], list[Tensor]]:
        """The segments that hold p, and ``squared_norms`` of p."""
        segments = [given.formed() for given in inputs]
        return segments, self.squared_norms(segments)

    def encode(self, codec: Codec, x: Tensor, step: Step) -> Any:
        """``codec.encode`` of one worker's ``x`` [d]."""
        return codec.encode(x, step)

    def decode(self, codec: Codec, payload: Any, out: Tensor, step: Step) -> None:
        """``codec.add`` of one worker's payload to ``out`` [d]."""
        codec.add(payload, out, step)

    def encode_rows(self, codec: Codec, rows: Sequence[Tensor], steps: Sequence[Step]) -> list[Any]:
        """``encode`` of each of ``rows``, [d] each."""
        return [self.encode(codec, row, step) for row, step in zip(rows, steps, strict=True)]

    def decode_rows(
        self,
        codec: Codec,
        payloads: Sequence[Sequence[Any]],
        outs: Sequence[Tensor],
        steps: Sequence[Sequence[Step]],
    ) -> None:
        """Add ``payloads`` [R][n], encoded in ``steps`` [R][n], to the R ``outs`` [d], in order."""
        for row, out, of_row in zip(payloads, outs, steps, strict=True):
            for payload, step in zip(row, of_row, strict=True):
                self.decode(codec, payload, out, step)

    def random_bits(self, seed: int, size: int, device: torch.device) -> Tensor:
        """``randomness.random_bits`` on ``device``, as int32 [size]."""
        return torch.from_numpy(random_bits(seed, size).view(np.int32)).to(device, non_blocking=True)

    def squared_norms(self, segments: list[Segment]) -> list[Tensor]:
        """``norms.squared_norm`` of each layer of each segment's rows: [W, L] float64 per segment."""
        return [layer_norms(segment.rows, segment.edges) for segment in segments]

    def norms_of(self, inputs: list[Input]) -> list[Tensor]:
        """``squared_norms`` of p, without computing p in place."""
        return self.squared_norms([given.seen() for given in inputs])

    def copy_with_norms(self, rows: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """Copy every row to a contiguous target of its shape; ``squared_norm`` of each, [n] float64."""
        pairs = zip(rows, targets, strict=True)
        norms = [squared_norm(target.copy_(row).view(-1)) for row, target in pairs]
        return torch.stack(norms)

    def add_rows(self, rows: Tensor) -> Tensor:
        """The sum [k] of rows [m, k], one row after another; a library's sum may use another order."""
        first, *others = rows
        total = first.clone()
        for row in others:
            total += row
        return total

    def mean_in_order(self, parts: Sequence[Tensor], out: Tensor) -> bool:
        """The mean of all rows of ``parts``, [m, k] each, in ``out`` [k], which may be a row.

        The rows are added to 0, one after another. False if there is no loop for them: ``out`` is unchanged.
        """
        return False

    def add(self, payload: Any, out: Tensor, compressed: Compressed) -> None:
        """Add a payload of one worker, or of all workers, to ``out`` [d]. ``compressed`` has its codec and
        step."""
        codec, step = compressed.origin
        self.decode(codec, payload, out, step)

    def means(
        self, everyones: list[list[Any]], inputs: list[Input], local: list[Compressed], num_workers: int
    ) -> list[Tensor]:
        """Per segment the mean of all workers' payloads, added in worker order, [d] each."""
        of_segments = zip(everyones, inputs, local, strict=True)
        return [self._mean(payloads, x, own, num_workers) for payloads, x, own in of_segments]

    def _mean(self, payloads: list[Any], x: Input, compressed: Compressed, num_workers: int) -> Tensor:
        codec, step = compressed.origin
        wide = torch.promote_types(x.rows.dtype, torch.float32)  # half precision is summed in fp32
        total = compressed.out
        if total is None:
            total = torch.zeros(x.size, dtype=wide, device=x.rows.device)
        steps = [step._replace(worker=worker) for worker in range(len(payloads))]
        self.decode_rows(codec, [payloads], [total], [steps])
        return divide(total, num_workers).to(x.rows.dtype)

    def adds_joined(self, payload: Any, compressed: Compressed) -> bool:
        """Whether ``means_of_joined`` can add such payloads in worker order."""
        return declared(type(payload)).joins and compressed.error.device.type == "cpu"

    def means_of_joined(
        self,
        everyones: list[Any],
        counts: np.ndarray | None,
        inputs: list[Input],
        local: list[Compressed],
        num_workers: int,
    ) -> list[Tensor]:
        """``means`` for one joined payload per segment, with all workers' entries in worker order.

        ``counts`` [S, n] are the numbers of entries of each worker; None if they are equal.
        """
        return self.means([[payload] for payload in everyones], inputs, local, num_workers)

    def sum_wide(self, rows: Tensor) -> Tensor:
        """The sum of ``rows`` [W, d] in row order, float64 [d].

        The loop over rows takes a sixth of the time of torch 2.13's sum on a CPU.
        """
        first, *others = rows
        total = first.to(torch.float64, copy=True)
        for row in others:
            total += row
        return total

    def add_wide(self, parts: Sequence[Tensor], total: Tensor) -> None:
        """Add the rows of every part [W, d], in order, to the next d entries of ``total`` [D] float64."""
        for rows, own in zip(parts, total.split([rows.shape[1] for rows in parts]), strict=True):
            for row in rows:
                own += row

    def count_ages(self, steps: int, sent_at: Tensor, rests: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Number of one worker's entries, and the sum of their squares, per age of 0 to ``steps`` steps.

        ``sent_at`` [D] int32 counts steps from 1; ``rests`` are the residuals of the segments, in order.
        """
        unsent = steps - sent_at
        squares = torch.cat([rest.double().square_() for rest in rests])
        return unsent.bincount(), unsent.bincount(squares)  # a histogram function takes longer

    def count_magnitudes(self, inputs: list[Input], histogram: Histogram) -> None:
        """Add every entry of p to its worker's histogram, without computing p in place."""
        count_pieces(inputs, histogram)

    def survey(
        self, inputs: list[Input], levels: np.ndarray, wanted: np.ndarray, squares: bool = True
    ) -> Survey:
        """The survey of all rows at ``levels`` [R], without computing p in place.

        A tail has at least its number of ``wanted`` [R] entries with high probability, not with certainty.
        Totals and squares may be NaN if ``squares`` is false.
        """
        return survey_rows(inputs, levels, wanted, squares)

    def survey_tails(self, found: Survey, levels: np.ndarray, squares: bool = True) -> Survey:
        """The survey at ``levels`` [R], computed from the tails of ``found`` alone, which may be changed.

        Levels must be above the floors of ``found``. Squares may be NaN if ``squares`` is false.
        """
        return survey_tails(found, levels)

    def search(self, inputs: list[Input], thresholds: np.ndarray) -> list[Tensor]:
        """Per row the positions of entries with |p| >= ``thresholds`` [R], as ``search_rows``."""
        return search_rows(inputs, thresholds)

    def search_largest(self, inputs: list[Input], numbers: Sequence[int]) -> list[Tensor]:
        """Per row the positions of the ``numbers`` [R] largest magnitudes, as ``search_largest_rows``."""
        return search_largest_rows(inputs, numbers)

    def encode_bins(
        self, inputs: list[Input], layers: Sequence[Sequence[BinnedLayer]], factors: Sequence[float]
    ) -> list[list[list[Message]]]:
        """The local workers' messages for the layers of each segment's p, [S][W]; p - C(p) replaces p.

        An entry is sent if |p + factor g| is at least the largest |p| of its bin, with the factor of its
        segment and the gradient g, which may be p.
        """
        return encode_bins(inputs, layers, factors)

    def add_bins(self, message: Message, layer: BinnedLayer, total: Tensor) -> None:
        """Add a decoded message to ``total`` [d]."""
        add_layer(message, layer, total)


def require_own(codec: Codec, payload: object) -> None:
    """Raise ``MethodError`` unless ``payload`` is of ``codec``'s payload class and its fields are tensors."""
    if type(payload) is not codec.payload:
        rule = f"return {type(codec).__name__}.payload, which is {codec.payload.__name__}"
        raise MethodError(f"{type(codec).__name__}.encode must {rule}, got {type(payload).__name__}")
    for name in getattr(codec.payload, "_fields", ()):
        value = getattr(payload, name)
        if not isinstance(value, Tensor):
            found = f"{type(value).__name__} for {codec.payload.__name__}.{name}"
            raise MethodError(f"{type(codec).__name__}.encode must return tensors, got {found}")


def rules_of(
    codecs: Sequence[Codec], inputs: list[Input], steps: list[Step], workers: range
) -> list[Any] | None:
    """The rules of all segments, of one class; None if a codec has no rule, or one of another class."""
    rules = [
        codec.rule_on(given.rows.device, given.size, step, workers)
        for codec, given, step in zip(codecs, inputs, steps, strict=True)
    ]
    known = [rule for rule in rules if rule is not None]
    return known if len(known) == len(rules) and len(set(map(type, known))) == 1 else None


def step_of(step: Step, segment: Segment) -> Step:
    """The step that a codec gets for a segment."""
    return step._replace(segment=segment.name, shapes=segment.shapes, weights=segment.weights)


def count_sent(compressed: Compressed, edges: np.ndarray) -> np.ndarray:
    """Elements sent per worker and layer [W, L] int64, for layers between ``edges`` [L + 1]."""
    num_layers, counts = len(edges) - 1, compressed.counts
    if num_layers == 1:
        return compressed.sent
    size = int(edges[-1])
    if (counts == size).all():  # every element is sent once
        return np.diff(edges)[None].repeat(len(counts), 0)
    positions = compressed.positions(size).cpu().numpy()
    layers = np.searchsorted(edges[1:-1], positions, side="right")
    owners = np.arange(len(counts)).repeat(counts)
    sent = np.bincount(owners * num_layers + layers, minlength=len(counts) * num_layers)
    return sent.reshape(-1, num_layers)
