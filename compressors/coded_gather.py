"""Every worker's message to every worker: ``GatherMean`` on a wire that is coded."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.api import Codec, Context, Reduced, Segment
from compressors.encoding import Encoded, can_check, encode_all, errors_of, norms_of
from compressors.fields import values_of
from compressors.index_codes import BadMessageError, IndexCodes
from compressors.kernels.choice import kernels_for, require_choice
from compressors.messages import Format, largest_message, read, write
from compressors.payloads import divide, numpy_knows
from compressors.reducers import count_sent, join
from compressors.wire import Wire, WireError, draws


@dataclass(frozen=True)
class CodedGatherMean:
    """All segments of a worker travel in one message, which everybody reads and adds up, in worker order.

    Messages are written and read also where all workers live in one process, so that the result does not
    depend on it. What rounding takes from a value stays in ``rows``. Raises ``ValueError`` for a codec that
    ``wire`` does not fit, and ``WireError`` in a step whose message cannot be decoded.
    """

    codec: Codec
    wire: Wire
    kernels: str = field(default="auto", repr=False)  # which change no result

    adds_gradient = measures_input = True

    @property
    def checks_input(self) -> bool:
        return can_check(self.codec, self.kernels)

    def __post_init__(self) -> None:
        require_choice("CodedGatherMean.kernels", self.kernels)
        self.wire.require_fit(self.codec)

    @cached_property
    def _is_drawn(self) -> bool:
        return draws(self.codec)

    def init(self, segments: list[Segment]) -> tuple[()]:
        return ()

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        local = encode_all(self.codec, segments, context, communicator, self.kernels)
        line = _Line(segments)
        form = Format(self.wire, line.layers, segments[0].rows.dtype, _index_codes(self.kernels))
        messages = []
        drawn = self._is_drawn
        where, values = line.cut(self.codec, segments, local)
        for row in range(len(communicator.ranks)):
            positions, own = np.concatenate(where[row]), _as_tensor(np.concatenate(values[row]), form.dtype)
            if (positions[1:] < positions[:-1]).any():  # of a block that goes on at the beginning, say
                order = positions.argsort()
                positions, own = positions[order], own[torch.from_numpy(order)]
            parts, arrived = write(form, positions, own, drawn)
            messages.append(parts)
            if self.wire.rounds:
                line.put_back(segments, row, positions, own - arrived)
        everyones = communicator.gather_messages(messages, largest_message(form))
        told = self._draw(segments, context, communicator.size) if drawn else [None] * communicator.size
        mean = _Mean(form, line, segments[0].rows.device)
        for worker, (message, positions) in enumerate(zip(everyones, told, strict=True)):
            try:
                mean.add(*read(form, message, positions))
            except BadMessageError as error:
                raise WireError(worker, context.step + 1, str(error)) from error
        means = mean.over(communicator.size)
        sent = {
            s.name: own.sent if own.sent is not None else count_sent(own.parts, own.counts, s.edges)
            for s, own in zip(segments, local, strict=True)
        }
        positions = None
        if context.tell_positions:
            positions = {
                s.name: join([part.positions(s.rows.shape[1]) for part in own.parts])
                for s, own in zip(segments, local, strict=True)
            }
        reduced = Reduced(
            {s.name: m for s, m in zip(segments, means, strict=True)},
            {s.name: s.rows for s in segments},
            sent,
            norms_of(segments, local),
            # What rounding put back is not in the error of a kernel: it is measured on the rows.
            error=None if self.wire.rounds else errors_of(segments, local),
            positions=positions,
            drawn=drawn,
            has_a_value_each=True,
            exact=not self.wire.rounds,
        )
        return reduced, state

    def _draw(self, segments: list[Segment], context: Context, num_workers: int) -> list[np.ndarray]:
        """The positions of every worker in the line, which the seed tells, [n] arrays [k] int64."""
        found, start = [], 0
        for segment in segments:
            size, workers = segment.rows.shape[1], range(num_workers)
            rule = self.codec.rule(size, context._replace(segment=segment.name), workers)
            found.append(rule.positions + start)
            start += size
        return list(np.concatenate(found, 1))


class _Line:
    """All elements of some segments, one segment after the other."""

    def __init__(self, segments: list[Segment]) -> None:
        self.starts = np.cumsum([0, *(s.rows.shape[1] for s in segments)])  # [S + 1] int64
        edges = [s.edges.numpy()[:-1] + start for s, start in zip(segments, self.starts, strict=False)]
        self.layers = np.concatenate([*edges, self.starts[-1:]])  # [sum of L + 1] int64

    def cut(
        self, codec: Codec, segments: list[Segment], local: list[Encoded]
    ) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
        """Per local worker and segment: positions in the line, int64, and values."""
        where, values = ([[] for _ in local[0].counts] for _ in range(2))
        for start, segment, encoded in zip(self.starts, segments, local, strict=False):
            taken = _as_numpy(join([values_of(codec, part) for part in encoded.parts]))
            positions = join([part.positions(segment.rows.shape[1]) for part in encoded.parts])
            positions = positions.cpu().numpy() + start
            end = 0
            for row, count in enumerate(encoded.counts.tolist()):
                where[row].append(positions[end : end + count])
                values[row].append(taken[end : end + count])
                end += count
        return where, values

    def put_back(self, segments: list[Segment], row: int, positions: np.ndarray, errors: Tensor) -> None:
        """Write what rounding took off to where a worker's values came from."""
        cuts = np.searchsorted(positions, self.starts).tolist()
        for number, segment in enumerate(segments):
            begin, end = cuts[number], cuts[number + 1]
            if begin == end:
                continue
            own, lost, rows = positions[begin:end] - self.starts[number], errors[begin:end], segment.rows
            if numpy_knows(rows):
                rows.numpy()[row, own] = lost.numpy()
            else:
                rows[row, torch.from_numpy(own).to(rows.device)] = lost.to(rows.device)


class _Mean:
    """Adds up what workers sent, one worker after the other; half precision in fp32.

    One buffer per segment: the system hands one of the whole model's size out anew, page by page, in every
    step, which takes longer than all the rest.
    """

    def __init__(self, form: Format, line: "_Line", device: torch.device) -> None:
        self.codes, self.dtype, self.starts = form.codes, form.dtype, line.starts
        wide = torch.promote_types(form.dtype, torch.float32)
        sizes = np.diff(line.starts).tolist()
        if device.type == "cpu":
            like = torch.empty(0, dtype=wide).numpy().dtype
            self.totals = [torch.from_numpy(np.zeros(size, dtype=like)) for size in sizes]
        else:
            self.totals = [torch.zeros(size, dtype=wide, device=device) for size in sizes]

    def add(self, positions: np.ndarray, values: Tensor) -> None:
        values = values.to(self.totals[0].dtype)
        cuts = np.searchsorted(positions, self.starts).tolist()
        for number, total in enumerate(self.totals):
            begin, end = cuts[number], cuts[number + 1]
            if begin == end:
                continue
            own, where = values[begin:end], positions[begin:end] - self.starts[number]
            if total.device.type == "cpu":
                self.codes.add_at(own.numpy(), where, total.numpy())
            else:
                total.index_add_(0, torch.from_numpy(where).to(total.device), own.to(total.device))

    def over(self, num_workers: int) -> list[Tensor]:
        return [divide(total, num_workers).to(self.dtype) for total in self.totals]


def _index_codes(kernels: str) -> IndexCodes:
    """Messages are written and read by the processor, wherever the segments lie."""
    compiled = kernels_for(kernels, "cpu")
    return IndexCodes() if compiled is None else compiled.index_codes


def _as_numpy(values: Tensor) -> np.ndarray:
    """The entries on the CPU; as integers where numpy does not know their dtype."""
    values = values.cpu()
    return values.view(torch.int16).numpy() if values.dtype == torch.bfloat16 else values.numpy()


def _as_tensor(entries: np.ndarray, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(entries).view(dtype)
