"""ACCORDION: Top-k with one of two densities per layer, the higher one while the gradient norm changes.

Agarwal, Wang, Lee, Venkataraman and Papailiopoulos, "ACCORDION: Adaptive gradient communication via critical
learning regime identification", MLSys 2021, https://arxiv.org/abs/2010.16248. Biased; 8 bytes per kept fp32
element, as Top-k.

g is the sum of a worker's gradients over an epoch, before compression. ||g|| is the root mean square of its
norm over all workers. The authors use the gradient of one worker; docs/papers/accordion.md has the details.
Under ef21 and ef21_sgdm, g is the sum of the differences to the shifts instead, and under momentum_correction
that of the velocities.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.api import (
    Codec,
    Communicator,
    Input,
    Knob,
    Plan,
    Segment,
    Shared,
    Sparse,
    Step,
    Traits,
    is_count,
    is_real,
    require,
    squared_norm,
)
from compressors.top_k import TopK


@dataclass(frozen=True, kw_only=True)
class Accordion(Codec):
    """Top-k with density k_low or k_high for every segment, chosen every ``period`` epochs.

    The density is k_high in three cases, and k_low otherwise:

    - in the first ``period`` epochs;
    - if, at a choice, the relative change of ||g|| since the last choice is above ``detection_threshold``;
    - if an epoch begins with a lower learning rate than the epoch before it, until the next choice.

    With scope=global the whole model is one segment, with one choice. Raises ``ValueError`` for densities
    outside (0, 1], k_low above k_high, a threshold that is not positive and a period below 1.
    """

    k_low: float
    k_high: float
    detection_threshold: float = 0.5
    period: int = 10  # epochs

    payload = Sparse
    traits = Traits(lossless_at={"k_low": 1.0, "k_high": 1.0})
    knob = Knob("k_low", {"k_high": 10.0}, dense_at=0.1, highest=0.1)
    examples = ({"k_low": 0.1, "k_high": 0.2, "period": 1},)
    waits = ("1 + G", "1 + G", "in the first step of an epoch")

    def __post_init__(self) -> None:
        for name in ("k_low", "k_high"):
            value = getattr(self, name)
            require(is_real(value) and 0 < value <= 1, f"Accordion.{name}", "a density in (0, 1]", value)
        require(self.k_low <= self.k_high, "Accordion.k_low", f"at most k_high ({self.k_high})", self.k_low)
        valid = is_real(self.detection_threshold) and self.detection_threshold > 0
        require(valid, "Accordion.detection_threshold", "> 0", self.detection_threshold)
        require(is_count(self.period), "Accordion.period", "an integer >= 1", self.period)

    @property
    def uses_learning_rate(self) -> bool:
        return True  # a lower rate leads to k_high

    def check(self, plan: Plan) -> None:
        """Raise ``ValueError`` if no choice can lead to k_low."""
        rates = plan.rates
        first = max(self.period, 2)  # there is no earlier norm to compare with after one epoch
        choices = range(first, len(rates), self.period)
        if not choices:
            raise ValueError(
                f"compressor=accordion would send k_high throughout: its first choice comes after "
                f"{first} epochs, but the run has {len(rates)}; lower compressor.period or train longer"
            )
        if all(rates[epoch] < rates[epoch - 1] for epoch in choices):
            raise ValueError(
                "compressor=accordion would send k_high throughout: the learning rate is falling at every "
                "choice; use one that falls in steps or stays constant (schedule=warmup_step, constant)"
            )

    def error_bound(self, x: Tensor, step: Step) -> float:
        return self._levels[0].error_bound(x, step)  # the bound of k_low also holds for k_high

    def init(self, segments: list[Segment]) -> "Regimes":
        gradient, choices = {}, {}
        for segment in segments:
            wide = torch.promote_types(segment.rows.dtype, torch.float32)
            shape, device = segment.rows.shape, segment.rows.device
            gradient[segment.name] = torch.zeros(shape, dtype=wide, device=device)
            choices[segment.name] = torch.tensor(DensityChoice(), dtype=torch.float64)
        return Regimes(gradient, Shared(choices))

    def choose(
        self, inputs: list[Input], state: "Regimes", step: Step, communicator: Communicator
    ) -> tuple[list[Codec], "Regimes"]:
        choices = self._choices([given.name for given in inputs], state, step, communicator)
        for given in inputs:
            before, gradient = state.looks.state[given.name], state.gradient[given.name]
            if before[0].item() != step.whole_epochs:
                before.copy_(torch.tensor(choices[given.name], dtype=torch.float64))
                gradient.zero_()
            gradient.add_(given.segment.rows)
        low, high = self._levels
        return [high if choices[given.name].is_high else low for given in inputs], state

    @property
    def _levels(self) -> tuple[TopK, TopK]:
        return TopK(density=self.k_low), TopK(density=self.k_high)

    def _choices(
        self, names: list[str], state: "Regimes", step: Step, communicator: Communicator
    ) -> dict[str, "DensityChoice"]:
        """The choices for this step. The first step of an epoch computes them again."""
        epoch = step.whole_epochs
        choices = {name: DensityChoice(*state.looks.state[name].tolist()) for name in names}
        outdated = [name for name, choice in choices.items() if choice.epoch != epoch]
        if not outdated:
            return choices
        norms = dict.fromkeys(outdated, math.nan)
        with_norm = [name for name in outdated if needs_norm(self, choices[name], epoch)]
        if with_norm:  # sends 8 bytes per segment
            squares = torch.stack([squared_norm(state.gradient[name]) for name in with_norm], 1)  # [W, S]
            everyones = communicator.all_gather(squares, "metadata")
            norms |= zip(with_norm, everyones.mean(0).sqrt().tolist(), strict=True)
        for name, norm in norms.items():
            choices[name] = next_choice(self, choices[name], epoch, step.worker_rate, norm)
        return choices


class DensityChoice(NamedTuple):
    """The state of the choice of a segment's density."""

    epoch: float = -1.0  # of the last step
    rate: float = math.inf  # the learning rate at its first step
    norm: float = math.nan  # ||g|| at the last choice; NaN: no norm to compare with
    is_high: float = 1.0


class Regimes(NamedTuple):
    """The state of ACCORDION."""

    gradient: dict[str, Tensor]  # g of the epoch so far, [W, d] per segment
    looks: Shared  # ``DensityChoice``, [4] float64, of each segment; the name is part of checkpoints


def needs_norm(settings: Accordion, last: DensityChoice, epoch: int) -> bool:
    """Whether the first step of ``epoch`` needs the norm of the epoch before it."""
    if last.epoch < 0:
        return False
    return math.isnan(last.norm) or epoch // settings.period > last.epoch // settings.period


def next_choice(
    settings: Accordion, last: DensityChoice, epoch: int, rate: float, norm: float
) -> DensityChoice:
    """The choice at the first step of ``epoch``.

    ``rate`` is the learning rate of this step, ``norm`` is ||g|| of the epoch before.
    """
    if last.epoch < 0:  # nothing has been sent yet
        return DensityChoice(epoch, rate)
    is_high = last.is_high
    reference = last.norm
    if epoch // settings.period > last.epoch // settings.period:
        is_high = has_changed(last.norm, norm, settings.detection_threshold)
        reference = norm
    elif math.isnan(reference):  # the first choice compares with the first epoch
        reference = norm
    if rate < last.rate:
        is_high = True
    return DensityChoice(epoch, rate, reference, float(is_high))


def has_changed(before: float, now: float, threshold: float) -> bool:
    """Whether ``now`` differs from ``before`` by more than ``threshold`` times ``before``; true if
    ``before`` is 0 or NaN."""
    if math.isnan(before) or before == 0:
        return True
    return abs(before - now) / before > threshold
