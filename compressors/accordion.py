"""ACCORDION: Top-k that sends more while the gradient changes fast, layer by layer.

Agarwal, Wang, Lee, Venkataraman and Papailiopoulos, "ACCORDION: Adaptive gradient communication via critical
learning regime identification", MLSys 2021, https://arxiv.org/abs/2010.16248. Biased; 8 bytes per kept fp32
element, as Top-k.

g is what an epoch's gradients of a worker add up to, before compression; its norm is the root mean square
over all workers. The authors let one worker decide by its own; docs/papers/accordion.md has the details.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import Context, Reduced, Segment, Shared, squared_norm
from compressors.checks import is_count, is_real, require
from compressors.means import mean_of
from compressors.payloads import Sparse
from compressors.rules import Largest
from compressors.top_k import TopK
from compressors.wire import PLAIN, Wire


@dataclass(frozen=True, kw_only=True)
class Accordion:
    """k_low or k_high for every segment, chosen anew every ``period`` epochs.

    k_high where the norm of g has changed by more than ``detection_threshold`` of what it was at the last
    choice, in the first ``period`` epochs, and from an epoch that begins with a lower learning rate than the
    one before until the next choice; else k_low. Both are densities. With scope=global the whole model is one
    segment, with one choice. Raises ``ValueError`` for densities outside (0, 1], k_low above k_high, a
    threshold that is not positive and a period below 1.
    """

    k_low: float
    k_high: float
    detection_threshold: float = 0.5
    period: int = 10  # epochs

    linear = False

    def __post_init__(self) -> None:
        for name in ("k_low", "k_high"):
            value = getattr(self, name)
            require(is_real(value) and 0 < value <= 1, f"Accordion.{name}", "a density in (0, 1]", value)
        require(self.k_low <= self.k_high, "Accordion.k_low", f"at most k_high ({self.k_high})", self.k_low)
        valid = is_real(self.detection_threshold) and self.detection_threshold > 0
        require(valid, "Accordion.detection_threshold", "> 0", self.detection_threshold)
        require(is_count(self.period), "Accordion.period", "an integer >= 1", self.period)

    def reducer(self, kernels: str, wire: Wire) -> "AccordionMean":
        return AccordionMean(self, kernels, wire)

    def refuse_idle(self, rates: list[float]) -> None:
        """Raise ``ValueError`` where k_low can never come, for learning rates at the starts of the epochs."""
        first = max(self.period, 2)  # after one epoch there is nothing to compare with
        choices = range(first, len(rates), self.period)
        if not choices:
            raise ValueError(
                f"compressor=accordion would send k_high throughout: its first choice comes after "
                f"{first} epochs, and the run is over by then; lower compressor.period or train longer"
            )
        if all(rates[epoch] < rates[epoch - 1] for epoch in choices):
            raise ValueError(
                "compressor=accordion would send k_high throughout: the learning rate is falling at every "
                "choice; take one that falls in steps, or not at all (schedule=warmup_step, constant)"
            )


class Look(NamedTuple):
    """What a segment's choice rests on."""

    epoch: float = -1.0  # of the last step
    rate: float = math.inf  # the learning rate at its first step
    norm: float = math.nan  # of g, when there was a choice last; NaN: there is none to compare with
    is_high: float = 1.0


class Regimes(NamedTuple):
    """The state."""

    gradient: dict[str, Tensor]  # g of the epoch so far, [W, d] per segment
    looks: Shared  # ``Look``, [4] float64, of each segment


@dataclass(frozen=True)
class Levels:
    """C of one step: Top-k with the density that each segment has for now."""

    low: TopK
    high: TopK
    at_high: frozenset[str]  # names of segments

    payload = Sparse
    linear = False
    ragged = False
    randomized = False

    def of_segment(self, name: str) -> TopK:
        return self.high if name in self.at_high else self.low

    def rule(self, size: int, context: Context, workers: range) -> Largest:
        return self.of_segment(context.segment).rule(size, context, workers)

    def encode(self, x: Tensor, context: Context) -> Sparse:
        return self.of_segment(context.segment).encode(x, context)

    def encode_rows(self, rows: Tensor, context: Context, workers: range) -> tuple[Sparse, np.ndarray]:
        return self.of_segment(context.segment).encode_rows(rows, context, workers)

    def error_bound(self, x: Tensor) -> float:
        return self.low.error_bound(x)  # which holds for both


@lru_cache(maxsize=8)
def _mean_at(low: TopK, high: TopK, at_high: frozenset[str], kernels: str, wire: Wire) -> Any:
    return mean_of(Levels(low, high, at_high), kernels, wire)


@dataclass(frozen=True)
class AccordionMean:
    """Top-k of all segments in one go, with k as ``settings`` choose it for each."""

    settings: Accordion
    kernels: str = field(default="auto", repr=False)  # which change no result
    wire: Wire = PLAIN

    adds_gradient = measures_input = True

    @property
    def codec(self) -> TopK:
        """What is sent at least."""
        return TopK(density=self.settings.k_low)

    def refuse_idle(self, rates: list[float]) -> None:
        self.settings.refuse_idle(rates)

    def init(self, segments: list[Segment]) -> Regimes:
        gradient, looks = {}, {}
        for segment in segments:
            wide = torch.promote_types(segment.rows.dtype, torch.float32)
            shape, device = segment.rows.shape, segment.rows.device
            gradient[segment.name] = torch.zeros(shape, dtype=wide, device=device)
            looks[segment.name] = torch.tensor(Look(), dtype=torch.float64)
        return Regimes(gradient, Shared(looks))

    def reduce(
        self, segments: list[Segment], state: Regimes, context: Context, communicator: Any
    ) -> tuple[Reduced, Regimes]:
        looks = self._looks(segments, state, context, communicator, charged=True)
        for segment in segments:
            before, gradient = state.looks.state[segment.name], state.gradient[segment.name]
            if before[0].item() != context.whole_epochs:
                before.copy_(torch.tensor(looks[segment.name], dtype=torch.float64))
                gradient.zero_()
            gradient.add_(segment.rows if segment.own is None else segment.own)
        reduced, _ = self._at(looks).reduce(segments, (), context, communicator)
        return reduced, state

    def codec_of_step(
        self, segments: list[Segment], state: Regimes, context: Context, communicator: Any
    ) -> Levels:
        """C of the step that ``context`` names, which is about to come."""
        return self._at(self._looks(segments, state, context, communicator, charged=False)).codec

    def _at(self, looks: dict[str, Look]) -> Any:
        low, high = TopK(density=self.settings.k_low), TopK(density=self.settings.k_high)
        at_high = frozenset(name for name, look in looks.items() if look.is_high)
        return _mean_at(low, high, at_high, self.kernels, self.wire)

    def _looks(
        self, segments: list[Segment], state: Regimes, context: Context, communicator: Any, *, charged: bool
    ) -> dict[str, Look]:
        """What holds in this step; in the first one of an epoch it is looked at anew."""
        epoch = context.whole_epochs
        looks = {s.name: Look(*state.looks.state[s.name].tolist()) for s in segments}
        over = [name for name, look in looks.items() if look.epoch != epoch]
        if not over:
            return looks
        norms = dict.fromkeys(over, math.nan)
        asked = [name for name in over if is_asked(self.settings, looks[name], epoch)]
        if asked:  # a number of 8 bytes for every segment travels
            squares = torch.stack([squared_norm(state.gradient[name]) for name in asked], 1)  # [W, S]
            everyones = communicator.gather(squares, "metadata") if charged else communicator.collect(squares)
            norms |= zip(asked, everyones.mean(0).sqrt().tolist(), strict=True)
        for name, norm in norms.items():
            looks[name] = next_look(self.settings, looks[name], epoch, context.learning_rate, norm)
        return looks


def is_asked(settings: Accordion, last: Look, epoch: int) -> bool:
    """Whether the norm of the epoch before matters at the first step of ``epoch``."""
    if last.epoch < 0:
        return False
    return math.isnan(last.norm) or epoch // settings.period > last.epoch // settings.period


def next_look(settings: Accordion, last: Look, epoch: int, rate: float, norm: float) -> Look:
    """At the first step of ``epoch``, with its learning rate; ``norm`` is that of g in the epoch before."""
    if last.epoch < 0:  # nothing has been sent yet
        return Look(epoch, rate)
    is_high = last.is_high
    reference = last.norm
    if epoch // settings.period > last.epoch // settings.period:
        is_high = has_changed(last.norm, norm, settings.detection_threshold)
        reference = norm
    elif math.isnan(reference):  # the first epoch, which the first choice compares with
        reference = norm
    if rate < last.rate:
        is_high = True
    return Look(epoch, rate, reference, float(is_high))


def has_changed(before: float, now: float, threshold: float) -> bool:
    """Whether a norm differs from what it was by more than that share of it; from 0 or NaN it does."""
    if math.isnan(before) or before == 0:
        return True
    return abs(before - now) / before > threshold
