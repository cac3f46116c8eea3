"""SIDCo: a threshold from sparsity-inducing distributions, fitted to the magnitudes in stages.

Abdelmoniem, Elzanaty, Alouini and Canini, MLSys 2021, https://arxiv.org/abs/2101.10761. The threshold that a
share delta of the entries exceeds is estimated by a quantile of a distribution with the magnitudes' moments:

  exponential        -mean log(delta)
  generalised Pareto scale (delta^-shape - 1) / shape, shape = (1 - r) / 2, scale = mean (1 + r) / 2,
                     where r is the squared mean over the variance
  gamma              beta x with Q(alpha, x) = delta, beta = mean / alpha, alpha =
                     (3 - s + sqrt((s - 3)^2 + 24 s)) / 12 s, s = log(mean) - mean log

Q is the regularised upper incomplete gamma function. ``gamma_quantile="exact"`` inverts it, as the authors'
code for error feedback does (https://github.com/sands-lab/SIDCo). ``"approximate"`` is the paper's formula,
x = -log(delta) - log Gamma(alpha), which their code without error feedback has. One stage sends 0.87 k and
1.52 k of normal entries for k = d / 10.

The first of M stages fits all magnitudes for delta = ``first_ratio``. Each further stage fits the excesses of
magnitudes over the last threshold, for delta = (k / (d first_ratio))^(1 / (M - 1)), and adds the quantile to
that threshold. ``distribution`` is SIDCo-E, exponential in all stages; SIDCo-P, generalised Pareto in all; or
SIDCo-GP, gamma in the first stage and generalised Pareto in the others. M starts at 1 and changes after every
``period`` steps: one stage less if the mean number sent is above (1 + ``tolerance``) k, one more if it is
below (1 - ``tolerance``) k, between 1 and log2(d / k) stages, rounded up.

M stays at 1 if one stage already sends too many entries, as published. For normal entries and k = d / 1000,
the Pareto fit sends 7 k; the number of the exponential fit is within 20 % of k.

Biased; the number of elements sent is not bounded. 8 bytes per sent fp32 element and one 4-byte count per
segment. Deviations from the paper: M is separate for every worker and segment. s takes the logarithms of
|p| / mean + 2^-52, because entries may be 0 (the authors' code takes |p| / norm + 2^-52).

On a CPU, one pass over p collects the largest magnitudes, 1.2 ``first_ratio`` of all, and later stages read
these alone, unless more reach the first stage's threshold. Their memory is kept between steps.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import EstimatedThreshold, Rows, Segment, is_count, is_real, require, require_choice

DISTRIBUTIONS = ("exponential", "gamma_pareto", "pareto")
HALVINGS = 100  # of an interval in which a quantile is searched; the last is shorter than fp64 resolves


class Stages(NamedTuple):
    """The state: M, the sum of sent / k since its last change, and the number of steps since then."""

    by_segment: dict[str, Tensor]  # [W, 3] float64 on the CPU


@dataclass(frozen=True, kw_only=True)
class SIDCo(EstimatedThreshold):
    """Keeps entries of at least an estimate of the k-th largest magnitude, k = max(1, floor(density * d)).

    A lower ``tolerance`` or ``period`` changes the number of stages more often. ``gamma_quantile`` is read
    with ``distribution="gamma_pareto"`` alone. ``schedule`` varies the density over the epochs. Raises
    ``ValueError`` for a density outside (0, 1] and other settings out of range.
    """

    distribution: str = "exponential"
    gamma_quantile: str = "exact"
    first_ratio: float = 0.25
    period: int = 5  # steps
    tolerance: float = 0.2

    examples = ({"density": 0.1}, {"density": 0.02, "distribution": "gamma_pareto", "period": 1})
    waits = ("2", "S W + 1 + G", "with one stage, 1 more for each further stage")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("SIDCo.distribution", DISTRIBUTIONS, self.distribution)
        valid = self.gamma_quantile in ("exact", "approximate")
        require(valid, "SIDCo.gamma_quantile", "'exact' or 'approximate'", self.gamma_quantile)
        valid = is_real(self.first_ratio) and 0 < self.first_ratio < 1
        require(valid, "SIDCo.first_ratio", "in (0, 1)", self.first_ratio)
        require(is_count(self.period), "SIDCo.period", "an integer >= 1", self.period)
        valid = is_real(self.tolerance) and self.tolerance > 0
        require(valid, "SIDCo.tolerance", "> 0", self.tolerance)

    def init(self, segments: list[Segment]) -> Stages:
        beginning = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
        return Stages({s.name: beginning.repeat(len(s.rows), 1) for s in segments})

    def estimate(self, rows: Rows, state: Stages) -> np.ndarray:
        own = [state.by_segment[given.name] for given in rows.inputs]
        adapted = np.concatenate([part.numpy() for part in own])
        adapted[:, 0] = np.rint(adapted[:, 0])  # a new worker has a mean of old workers' stages
        with np.errstate(invalid="ignore", over="ignore"):  # no fit of entries that are not finite
            thresholds = self._thresholds(rows, adapted[:, 0])
        adapted[:, 1] += rows.count(thresholds, rows.sizes) / rows.wanted
        adapted[:, 2] += 1
        self._adapt(adapted, np.ceil(np.log2(rows.sizes / rows.wanted)))
        for part, rows_of in zip(own, np.split(adapted, len(own)), strict=True):
            part.copy_(torch.from_numpy(rows_of))
        return thresholds

    def _thresholds(self, rows: Rows, stages: np.ndarray) -> np.ndarray:
        """The thresholds [R] of each row after its number of ``stages`` [R]."""
        share = rows.wanted / rows.sizes
        stages = np.where(share >= self.first_ratio, 1, stages)
        ratio = np.where(stages == 1, share, self.first_ratio)
        further = np.minimum(1, share / self.first_ratio) ** (1 / np.maximum(1, stages - 1))
        thresholds = np.zeros(len(share))
        needs_squares = self.distribution != "exponential"
        for stage in range(1, int(stages.max()) + 1):
            is_last = stage == stages.max()
            tail = 2 * rows.wanted if is_last else rows.tail_for(self.first_ratio if stage == 1 else 0)
            found = rows.survey(thresholds, tail=tail, squares=needs_squares)
            counts = np.maximum(1, found.counts)
            mean = found.excesses / counts
            if stage == 1 and self.distribution == "gamma_pareto":
                added = self._gamma(mean, rows.mean_logarithms(mean), ratio)
            elif self.distribution == "exponential":
                added = -mean * np.log(ratio)
            else:
                added = _pareto(mean, found.squares / counts - mean**2, ratio)
            thresholds = thresholds + np.where((stage <= stages) & (found.counts > 0), added, 0)
            ratio = further
        return thresholds

    def _gamma(self, mean: np.ndarray, logarithms: np.ndarray, ratio: np.ndarray) -> np.ndarray:
        """The quantile of gamma distributions; ``logarithms`` are the means of log(|p| / mean)."""
        s = np.maximum(-logarithms, 1e-9)
        alpha = (3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
        if self.gamma_quantile == "exact":
            return mean / alpha * upper_gamma_inverse(alpha, ratio)
        log_gamma = np.array([math.lgamma(a) for a in alpha.tolist()])
        return np.maximum(0, -mean / alpha * (np.log(ratio) + log_gamma))

    def _adapt(self, adapted: np.ndarray, most: np.ndarray) -> None:
        """Change the stages of rows whose period ends; ``adapted`` [R, 3] as in ``Stages``."""
        ends = adapted[:, 2] >= self.period
        sent = adapted[:, 1] / np.maximum(1, adapted[:, 2])
        change = np.where(sent > 1 + self.tolerance, -1, np.where(sent < 1 - self.tolerance, 1, 0))
        stages = np.clip(adapted[:, 0] + change, 1, np.maximum(1, most))
        adapted[ends] = np.stack([stages, 0 * stages, 0 * stages], 1)[ends]


def _pareto(mean: np.ndarray, variance: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """The quantile of generalised Pareto distributions with these moments that a share ``ratio`` exceeds."""
    smallest = np.finfo(np.float64).tiny
    r = mean**2 / np.maximum(variance, np.maximum(1e-9 * mean**2, smallest))
    shape, scale = (1 - r) / 2, mean * (1 + r) / 2
    near_0 = np.abs(shape) < 1e-9  # exponential in the limit
    shape = np.where(near_0, 1, shape)
    return np.where(near_0, -scale * np.log(ratio), scale * np.expm1(-shape * np.log(ratio)) / shape)


def upper_gamma_inverse(alpha: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """x with Q(alpha, x) = ``ratio``, [R], by bisection; SciPy, which has this function, is optional."""
    logarithms = -np.log(ratio)
    low, high = 0 * alpha, alpha + np.sqrt(2 * alpha * logarithms) + logarithms  # Chernoff's bound
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_low = torch.special.gammaincc(torch.from_numpy(alpha), torch.from_numpy(middle)).numpy() > ratio
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return low
