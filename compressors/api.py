"""The words of the algebra: segments, payloads, codecs, reducers.

W is the number of workers that live in this process, n the number of all workers, d the number
of elements of one segment. A *codec* turns one worker's vector into a payload. A *reducer* turns
all workers' segments into the mean of what they sent, which is where bytes move. Wrappers such as
error feedback are reducers around a reducer.

Everything here works in place: what was not sent is left in the buffer that came in, so that no
further tensor of size n x D is needed.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from compressors.fields import Field
from compressors.randomness import derive_seed


class Segment(NamedTuple):
    """The elements that are compressed together: one layer, or the whole model.

    Between error feedback and a reducer that ``adds_gradient`` the sum p = rows + factor gradient is
    still to be formed, in ``rows``: a kernel does so on its way.
    """

    name: str
    rows: Tensor  # [W, d], one row per local worker
    edges: Tensor  # [L + 1] int64 on the CPU: where the segment's L layers begin and end; 0, ..., d
    gradient: Tensor | None = None  # [W, d], what is still to be added
    factor: float = 1.0
    own: Tensor | None = None  # [W, d], the gradient by itself, where rows are or will be more than that

    def added(self) -> Self:
        """The segment with its sum formed."""
        if self.gradient is None:
            return self
        self.rows.add_(self.gradient, alpha=self.factor)
        return self._replace(gradient=None, factor=1.0)


class Fault(NamedTuple):
    """Where entries are not finite."""

    row: int  # of the local workers
    segment: str
    layer: int  # of the segment's


class Context(NamedTuple):
    """What a reducer may know of the step beside the gradients; equal for every layout."""

    seed: int
    step: int
    learning_rate: float = 1.0
    segment: str = ""
    worker: int = 0
    epoch: float = 0.0  # epochs done before the step, fractional
    measure_input: bool = False  # whether this step's ||p||^2 is asked for
    tell_positions: bool = False  # whether it is asked which elements were sent
    # Told where p is not finite, or of no fault at all, once per reduction and before anything is packed or
    # sent; what it raises ends the reduction. Only for a reducer that ``checks_input``.
    refuse: Callable[[list[Fault]], None] | None = None

    @property
    def whole_epochs(self) -> int:
        """Epochs that were over before the step; a sum of steps that falls short by rounding counts."""
        return int(self.epoch + 1e-9)

    def derive_seed(self, *, shared: bool) -> int:
        """The seed of this step and segment, the same on all workers or this worker's own."""
        salt = (self.seed, self.step, self.segment)
        return derive_seed("shared", *salt) if shared else derive_seed("own", *salt, self.worker)


class Payload(Protocol):
    """A NamedTuple of tensors that a worker sends for one segment.

    An element is *sent* when the payload says something of it: k of d elements in k values and k indices,
    all d of them in d bits. The payload of a ``RowCodec`` may hold what several workers send, one worker
    after the other in each field; ``add_to`` then adds it all.

    Required attribute: ``FIELDS``, for every field the kind of its bytes and how long it is (``fields.py``).
    """

    FIELDS: Mapping[str, Field]

    def num_sent(self, size: int) -> int:
        """How many of ``size`` elements it informs, over all of its workers."""

    def add_to(self, out: Tensor) -> None:
        """Add what was sent to ``out`` [d] of the same or a wider float dtype, in place."""

    def positions(self, size: int) -> Tensor:
        """Positions [num_sent] int64 in ``range(size)`` of the elements sent, each once for a worker.

        Where each has an entry of its own in the field of values, in the order of these.
        """


class Codec(Protocol):
    """C: one worker's vector to a payload and, through the payload, back to a vector.

    A codec with a ``rule`` (``rules.py``) is run by a kernel where there is one; ``encode`` is
    its definition.

    Required attributes: ``payload``, the class of what ``encode`` returns; ``linear``, all workers choose
    the same coordinates, so that averaging their values averages their contributions; ``ragged``, the
    number of elements sent depends on the values; ``randomized``, ``error_bound`` holds in expectation over
    the codec's draws.
    """

    payload: type
    linear: bool
    ragged: bool
    randomized: bool

    def encode(self, x: Tensor, context: Context) -> Any:
        """Return the payload of ``x`` [d] and leave x - C(x) in ``x``."""

    def error_bound(self, x: Tensor) -> float:
        """What the method promises of ||x - C(x)||^2: an upper bound, for any ``x`` [d]."""


class RowCodec(Codec, Protocol):
    """A codec that also encodes several workers at once.

    Short vectors spend more time between tensor operations than in them; there one call for all
    local workers is many times as fast.
    """

    def encode_rows(self, rows: Tensor, context: Context, workers: range) -> tuple[Any, np.ndarray]:
        """Encode contiguous ``rows`` [R, d] of the R ``workers``; leave x - C(x) in every row.

        Returns what ``encode`` gives for each row, bit for bit, one after the other in one payload,
        and how many elements each worker sends, [R] int64.
        """


class Reduced(NamedTuple):
    """One step's outcome; all dicts are keyed by segment name."""

    mean: dict[str, Tensor]  # [d] mean over all n workers of C(p), equal everywhere
    remainder: dict[str, Tensor]  # [W, d] p - C(p), in the buffer that held p if anything is left
    sent: dict[str, np.ndarray]  # [W, L] int64, elements sent per layer of the segment
    input_norm: dict[str, Tensor] | None = None  # [W, L] ||p||^2 per layer, in steps that ask for it
    error: dict[str, Tensor] | None = None  # [W, L] ||remainder||^2 per layer, if a kernel has it
    positions: dict[str, Tensor] | None = None  # [sum of sent] int64, workers in order, if asked for
    drawn: bool = False  # whether the seed tells what was sent, so that no index needs to travel
    has_a_value_each: bool = False  # whether each element sent travels as one value of its own
    exact: bool = False  # whether these values are as they were, in the gradient's dtype


class Shared(NamedTuple):
    """A part of a state that is no worker's own: equal in all processes, saved once and not dealt out."""

    state: Any  # NamedTuples and dicts of tensors [...]


class Reducer(Protocol):
    """All workers' segments to the mean of what they send. State is passed in and out."""

    def init(self, segments: list[Segment]) -> Any:
        """The state before the first step: NamedTuples and dicts of tensors [W, ...], ``Shared``, or ().

        A checkpoint is these tensors, row by row: later states have the same names and shapes.
        """

    def reduce(
        self, segments: list[Segment], state: Any, context: Context, communicator: Any
    ) -> tuple[Reduced, Any]:
        """Reduce these segments, all of those given to ``init`` or some of them.

        ``segments`` and ``state`` are consumed: their tensors are reused for the result.
        """


class SizedForModel(Protocol):
    """A method whose settings depend on the model's number of parameters D."""

    def for_model(self, num_parameters: int) -> Self:
        """The same method with everything that D decides filled in."""


def elements_of(density: float, size: int) -> int:
    """k = max(1, floor(density * d)); the tolerance keeps 0.07 * 100 from becoming 6."""
    return max(1, min(size, int(density * size + 1e-9 * max(1.0, density * size))))


def unsent_share(density: float, size: int) -> float:
    """1 - k / d, what a contraction that keeps k = ``elements_of(density, size)`` leaves behind."""
    return 1 - elements_of(density, size) / size


def squared_norm(x: Tensor) -> Tensor:
    """||row||^2 over the last dimension: ``[..., d]`` to float64 ``[...]``.

    Squares are float64. A block of 256 entries, the last one filled up with zeros, has 32 partial sums, of
    every 32nd entry; these are added up in halves, and the blocks' sums in halves again. The order is part of
    the definition: the bits are the same for every number of threads and of rows, and in the kernels.
    """
    size, blocks_at_once = x.shape[-1], 2**10  # squares stay in cache
    sums = [
        _sums_of_blocks(x[..., start : start + 256 * blocks_at_once])
        for start in range(0, max(1, size), 256 * blocks_at_once)
    ]
    return _add_halves(torch.cat(sums, -1) if len(sums) > 1 else sums[0])


def _sums_of_blocks(x: Tensor) -> Tensor:
    squares = torch.nn.functional.pad(x.double(), (0, -x.shape[-1] % 256)).square_()
    lines = squares.unflatten(-1, (-1, 8, 32)).unbind(-2)  # [..., blocks, 32] each
    total = lines[0].clone()
    for line in lines[1:]:
        total += line
    return _add_halves(total)


def _add_halves(sums: Tensor) -> Tensor:
    """The sum over the last dimension; ``sums`` is consumed."""
    if sums.shape[-1] == 0:
        return sums.sum(-1)
    while sums.shape[-1] > 1:
        half = (sums.shape[-1] + 1) // 2
        sums[..., : sums.shape[-1] - half] += sums[..., half:]
        sums = sums[..., :half]
    return sums[..., 0]
