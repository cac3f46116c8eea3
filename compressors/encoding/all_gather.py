"""Transport of encoded messages: an all-gather in which every worker decodes all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Codec, Compressed
from compressors.core.communicator import Communicator
from compressors.core.fields import payload_of, values_of
from compressors.core.payloads import divide, numpy_knows
from compressors.core.rules import Drawn
from compressors.core.segments import Input, Step
from compressors.core.transports import join
from compressors.encoding.index_codes import BadMessageError, IndexCodes
from compressors.encoding.messages import Format, largest_message, read, write
from compressors.encoding.settings import Encoding, EncodingError
from compressors.kernels.choice import backend_of
from compressors.kernels.reference import Backend

_CPU = torch.device("cpu")  # messages are written and read on the CPU for every device


def index_codes() -> IndexCodes:
    """Compiled codes if the CPU's backend is compiled; they write the same bytes."""
    if backend_of(_CPU).name == Backend.name:
        return IndexCodes()
    from compressors.kernels.cpu.index_codes import CompiledIndexCodes  # importing Numba takes half a second

    return CompiledIndexCodes()


@dataclass(frozen=True)
class EncodedAllGather:
    """Each worker sends all segments in one message; every process adds all messages in worker order.

    Messages are also written and read if all workers are in one process, so the result is the same. Raises
    ``EncodingError`` in a step whose message cannot be decoded.
    """

    encoding: Encoding

    @property
    def rounds(self) -> bool:
        return self.encoding.rounds

    def require_fit(self, codec: Codec) -> None:
        """Raise ``ValueError`` for a codec whose values or positions the encoding cannot express."""
        name = type(codec).__name__
        if not payload_of(codec).has_a_value_each:
            raise ValueError(f"wire must be plain with {name}: it does not send one value per element")
        if self.rounds and not codec.traits.exact:
            raise ValueError(f"wire.values must be fp32 with {name}: its values are not exact already")
        if codec.traits.drawn and self.encoding.indices != "auto":
            raise ValueError(
                f"wire.indices must be auto with {name}, got {self.encoding.indices!r}: its indices follow "
                "from the seed and are not sent"
            )
        if codec.traits.drawn and not isinstance(codec.rule(1, Step(0, 0), range(1)), Drawn):
            raise ValueError(f"wire must be plain with {name}: it has no rule for the drawn positions")

    def mean(
        self, inputs: list[Input], compressed: list[Compressed], step: Step, communicator: Communicator
    ) -> list[Tensor]:
        concatenation = _Concatenation(inputs)
        form = Format(self.encoding, concatenation.layers, inputs[0].rows.dtype, index_codes())
        messages = []
        codec, _ = compressed[0].origin
        drawn = codec.traits.drawn
        where, values = concatenation.positions_and_values(inputs, compressed)
        for row in range(len(communicator.local_workers)):
            positions, own = np.concatenate(where[row]), _as_tensor(np.concatenate(values[row]), form.dtype)
            if (positions[1:] < positions[:-1]).any():  # for example of a block that wraps around
                order = positions.argsort()
                positions, own = positions[order], own[torch.from_numpy(order)]
            parts, arrived = write(form, positions, own, drawn)
            messages.append(parts)
            if self.encoding.rounds:
                concatenation.write_errors(inputs, row, positions, own - arrived)
        everyones = communicator.all_gather_messages(messages, largest_message(form))
        all_drawn = _draw(inputs, compressed, communicator.size) if drawn else [None] * communicator.size
        total = _MessageSum(form, concatenation, inputs[0].rows.device)
        for worker, (message, known) in enumerate(zip(everyones, all_drawn, strict=True)):
            try:
                total.add(*read(form, message, known))
            except BadMessageError as error:
                raise EncodingError(worker, step.number + 1, str(error)) from error
        return total.mean(communicator.size)


def _draw(inputs: list[Input], compressed: list[Compressed], num_workers: int) -> list[np.ndarray]:
    """The positions of every worker in the concatenation, from the seed: n arrays, [k] int64 each."""
    found, start = [], 0
    for given, own in zip(inputs, compressed, strict=True):
        codec, of_segment = own.origin
        rule = codec.rule(given.size, of_segment, range(num_workers))
        assert isinstance(rule, Drawn)
        found.append(rule.positions + start)
        start += given.size
    return list(np.concatenate(found, 1))


class _Concatenation:
    """The concatenation of some segments; positions count from its first element."""

    def __init__(self, inputs: list[Input]) -> None:
        self.starts = np.cumsum([0, *(given.size for given in inputs)])  # [S + 1] int64
        edges = [x.segment.edges[:-1] + start for x, start in zip(inputs, self.starts, strict=False)]
        self.layers = np.concatenate([*edges, self.starts[-1:]])  # [sum of L + 1] int64

    def positions_and_values(
        self, inputs: list[Input], compressed: list[Compressed]
    ) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
        """Per local worker and segment: positions in the concatenation, int64, and values."""
        where: list[list[np.ndarray]] = [[] for _ in compressed[0].counts]
        values: list[list[np.ndarray]] = [[] for _ in compressed[0].counts]
        every = [join([values_of(payload) for payload in own.payloads]) for own in compressed]
        places = [own.positions(given.size) for given, own in zip(inputs, compressed, strict=True)]
        for start, taken, positions, own in zip(
            self.starts, map(_as_numpy, _on_cpu(every)), _on_cpu(places), compressed, strict=False
        ):
            positions = positions.numpy() + start
            end = 0
            for row, count in enumerate(own.counts.tolist()):
                where[row].append(positions[end : end + count])
                values[row].append(taken[end : end + count])
                end += count
        return where, values

    def write_errors(self, inputs: list[Input], row: int, positions: np.ndarray, errors: Tensor) -> None:
        """Write a worker's rounding errors to its residual, at the positions of its values."""
        cuts = np.searchsorted(positions, self.starts).tolist()
        for number, given in enumerate(inputs):
            begin, end = cuts[number], cuts[number + 1]
            if begin == end:
                continue
            own, lost, rows = positions[begin:end] - self.starts[number], errors[begin:end], given.rows
            if numpy_knows(rows):
                rows.numpy()[row, own] = lost.numpy()
            else:
                rows[row, _sent_to(rows.device, torch.from_numpy(own))] = _sent_to(rows.device, lost)


class _MessageSum:
    """The sum of messages in worker order; half precision is summed in fp32.

    There is one buffer per segment: the allocation of a buffer for the whole model in every step would take
    longer than all other work.
    """

    def __init__(self, form: Format, concatenation: "_Concatenation", device: torch.device) -> None:
        self.codes, self.dtype, self.starts = form.codes, form.dtype, concatenation.starts
        wide = torch.promote_types(form.dtype, torch.float32)
        sizes = np.diff(concatenation.starts).tolist()
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
                device = total.device
                total.index_add_(0, _sent_to(device, torch.from_numpy(where)), _sent_to(device, own))

    def mean(self, num_workers: int) -> list[Tensor]:
        return [divide(total, num_workers).to(self.dtype) for total in self.totals]


def _on_cpu(tensors: list[Tensor]) -> Sequence[Tensor]:
    """Tensors [k] of one dtype on the CPU, from a GPU in one copy."""
    if tensors[0].device.type == "cpu":
        return tensors
    return torch.cat(tensors).cpu().split([len(tensor) for tensor in tensors])


def _sent_to(device: torch.device, tensor: Tensor) -> Tensor:
    """A CPU tensor copied to a GPU without waiting."""
    return tensor.to(device, non_blocking=True)


def _as_numpy(values: Tensor) -> np.ndarray:
    """Entries on the CPU; as integers for dtypes that NumPy lacks."""
    return values.view(torch.int16).numpy() if values.dtype == torch.bfloat16 else values.numpy()


def _as_tensor(entries: np.ndarray, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(entries).view(dtype)
