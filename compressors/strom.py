"""Strom's method: plus or minus lambda for every entry of magnitude at least lambda.

Strom, 2015, "Scalable distributed DNN training using commodity GPU cloud computing",
https://www.isca-archive.org/interspeech_2015/strom15_interspeech.html. C(x)_i = sign(x_i) lambda if
|x_i| >= lambda, else 0; the rest, |x_i| - lambda of a sent entry, stays in the residual and is sent in later
steps. Biased; ||x - C(x)|| <= ||x||. 4 bytes per sent element, one word for its index and its sign as in the
paper, and one 4-byte count per segment. ``hard_threshold.py`` sends the exact values of the same entries.
Deviation from the paper: the words are not entropy-coded.
"""

from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Self

import torch
from torch import Tensor

from compressors.api import INDICES, Codec, Field, Step, Traits, at_least, is_real, require, squared_norm
from compressors.core.checks import require_density
from compressors.core.payloads import index_dtype
from compressors.core.rules import SignsAtLeast
from compressors.hard_threshold import known_threshold
from compressors.parts.knob import THRESHOLD


class Signed(NamedTuple):
    """Positions and signs of the selected entries."""

    words: Annotated[Tensor, Field(INDICES, 1)]  # [k] int32 (int64 beyond 2^30 elements): 2 index + (x < 0)

    def num_sent(self, size: int) -> int:
        return len(self.words)

    def positions(self, size: int) -> Tensor:
        return self.words.long() >> 1


@dataclass(frozen=True, kw_only=True)
class Strom(Codec):
    """Sends the sign of x_i iff |x_i| >= threshold or x_i is NaN; it is decoded as sign times threshold.

    A higher threshold sends less. With ``threshold=None``, ``for_model`` sets the rule of
    ``hard_threshold.py``. An entry much larger than the threshold is sent over many steps. Raises
    ``ValueError`` for a threshold that is not positive and finite, and if neither it nor a density is given.
    """

    threshold: float | None = None
    density: float | None = None

    payload = Signed
    traits = Traits(ragged=True, exact=False)
    knob = THRESHOLD
    examples = ({"threshold": 1.0},)
    waits = ("1", "S W + G", "")

    def __post_init__(self) -> None:
        if self.threshold is None:
            require_density("Strom", self.density)
        else:
            valid = is_real(self.threshold) and self.threshold > 0
            require(valid, "Strom.threshold", "a finite number > 0", self.threshold)

    def for_model(self, num_parameters: int) -> Self:
        """The same method; without a threshold, it gets that of the rule for ``num_parameters``."""
        threshold = known_threshold(self.threshold, self.density, num_parameters)
        return replace(self, threshold=threshold, density=None)

    def rule(self, size: int, step: Step, workers: range) -> SignsAtLeast | None:
        fits = index_dtype(2 * size) == torch.int32
        return SignsAtLeast(self._known_threshold, Signed) if fits else None

    def encode(self, x: Tensor, step: Step) -> Signed:
        positions = at_least(self._known_threshold, x)
        negative = x.index_select(0, positions) < 0
        payload = Signed((2 * positions + negative).to(index_dtype(2 * x.numel())))
        self.subtract(payload, x, step)
        return payload

    def add(self, payload: Signed, out: Tensor, step: Step) -> None:
        out.index_add_(0, payload.words >> 1, self._signed(payload, out.dtype))

    def subtract(self, payload: Signed, x: Tensor, step: Step) -> None:
        x.index_add_(0, payload.words >> 1, self._signed(payload, x.dtype), alpha=-1)

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()

    def _signed(self, payload: Signed, dtype: torch.dtype) -> Tensor:
        """sign(x_i) lambda of the entries sent, [k]."""
        return (1 - 2 * (payload.words & 1)).to(dtype) * self._known_threshold

    @property
    def _known_threshold(self) -> float:
        if self.threshold is None:
            raise ValueError("Strom.threshold must be set, by for_model(), got None")
        return self.threshold
