"""Base class of sparsifiers that estimate a threshold per worker and segment, and helpers for estimates."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from compressors.core.codec import Codec, Traits
from compressors.core.communicator import Communicator
from compressors.core.norms import layer_sums, squared_norm
from compressors.core.payloads import Sparse
from compressors.core.segments import Input, Step
from compressors.kernels.choice import backend_of
from compressors.parts.above import Above
from compressors.parts.surveys import Survey
from compressors.parts.with_density import CodecWithDensity


class Rows:
    """The vectors p of R rows, which are read by surveys and not changed.

    Row s W + w is that of worker w in segment s. ``wanted`` [R] are the numbers of elements to send.
    """

    def __init__(self, inputs: list[Input], wanted: list[int]) -> None:
        num_workers = len(inputs[0].rows)
        self.inputs, self.wanted = inputs, np.repeat(np.array(wanted), num_workers)
        self.sizes = np.repeat(np.array([given.size for given in inputs]), num_workers)
        self._backend = backend_of(inputs[0].rows.device)
        self._survey: Survey | None = None

    def survey(self, levels: np.ndarray | None = None, *, tail: np.ndarray, squares: bool = True) -> Survey:
        """The survey at ``levels`` [R], 0 by default, most likely with tails of ``tail`` [R] entries or more.

        If all levels are above the last survey's floors, only its tails are read. Totals and squares may be
        NaN if ``squares`` is false. Tails of earlier surveys become invalid.
        """
        levels = np.zeros(len(self.sizes)) if levels is None else self._rounded(levels)
        if self._survey is not None and (levels > self._survey.floors).all():
            self._survey = self._backend.survey_tails(self._survey, levels, squares)
        else:
            tail = np.minimum(tail, self.sizes)
            self._survey = self._backend.survey(self.inputs, levels, tail, squares)
        return self._survey

    def tail_for(self, share: float) -> np.ndarray:
        """Lengths [R] of tails for later levels that about ``share`` of the entries reach, or 0.

        A fifth and five standard deviations of a sampled number are added, because a fitted level does not
        match ``share`` exactly. 0 is for a backend on which a second survey takes less time than long tails.
        """
        if not self._backend.collects_tails:
            return 0 * self.sizes
        expected = share * self.sizes
        return np.ceil(1.2 * expected + 5 * np.sqrt(expected)).astype(np.int64)

    def _rounded(self, levels: np.ndarray) -> np.ndarray:
        """Levels rounded to the dtype of the entries, as a comparison with entries rounds them."""
        return torch.from_numpy(levels).to(self.inputs[0].rows.dtype).double().numpy()

    def count(self, thresholds: np.ndarray, enough: np.ndarray) -> np.ndarray:
        """Number of entries with |p| >= ``thresholds`` [R], after a survey; [R] int64.

        Counting stops at ``enough`` [R]: a result of this size or more may be too small.
        """
        tails = self._tails(thresholds, np.minimum(enough, self.sizes))
        pairs = zip(tails, thresholds.tolist(), strict=True)
        return np.array([np.count_nonzero(~(tail < threshold)) for tail, threshold in pairs])

    def largest_wanted(self) -> np.ndarray:
        """The magnitude of the ``wanted``-th largest entry of each row, [R]."""
        self.survey(tail=self.wanted)
        tails = self._tails(np.zeros(len(self.sizes)), self.wanted)
        pairs = zip(tails, self.wanted.tolist(), strict=True)
        return np.array([np.partition(tail, -k)[-k] for tail, k in pairs], dtype=np.float64)

    def mean_logarithms(self, scale: np.ndarray) -> np.ndarray:
        """The mean of log(|p| / scale + 2^-52) over each row, for positive ``scale`` [R]; [R] float64."""
        scales = np.where(scale > 0, scale, 1).reshape(len(self.inputs), -1, 1)
        means = []
        for given, own in zip(self.inputs, torch.from_numpy(scales), strict=True):
            magnitudes = given.seen().rows.double().abs_()
            shares = magnitudes.div_(own.to(magnitudes.device, non_blocking=True)).add_(2.0**-52)
            means.append(layer_sums(shares.log_(), np.array([0, given.size]), lambda x: x))
        return torch.cat(means).cpu().numpy()[:, 0] / self.sizes

    def _tails(self, thresholds: np.ndarray, enough: np.ndarray) -> list[np.ndarray]:
        """Per row magnitudes that include all those of at least the threshold, or the ``enough`` largest."""
        assert self._survey is not None, "survey() must come before"
        lengths = np.array([len(tail) for tail in self._survey.tails])
        short = (self._rounded(thresholds) <= self._survey.floors) & (lengths < enough)
        if short.any():  # the sampled floors were too high
            return self.survey(tail=np.where(short, self.sizes, lengths)).tails
        return self._survey.tails


@dataclass(frozen=True, kw_only=True)
class EstimatedThreshold(CodecWithDensity):
    """A method that defines ``estimate``: it keeps entries of at least the estimate in magnitude.

    k = max(1, floor(density * d)) elements of a segment are wanted; if k is d, all are sent. Otherwise zeros
    are never sent.
    """

    payload = Sparse
    traits = Traits(ragged=True, individual=True, lossless_at={"density": 1.0, "schedule": "constant"})
    waits = ("2", "S W + 1 + G", "2 more if the guess from a sample was wrong")

    def estimate(self, rows: Rows, state: Any) -> np.ndarray:
        """Thresholds [R] for ``rows``; may change tensors of ``state`` in place."""
        raise NotImplementedError

    def error_bound(self, x: Tensor, step: Step) -> float:
        return squared_norm(x).item()  # in the worst case nothing is sent

    def choose(
        self, inputs: list[Input], state: Any, step: Step, communicator: Communicator
    ) -> tuple[list[Codec], Any]:
        rows = Rows(inputs, [self.elements_at(step, given.size) for given in inputs])
        dtype = inputs[0].rows.dtype
        smallest = torch.finfo(dtype).smallest_normal
        thresholds = np.maximum(self.estimate(rows, state), smallest)
        thresholds[rows.wanted == rows.sizes] = 0
        first, per_segment = communicator.local_workers[0], len(inputs[0].rows)
        return [
            Above(thresholds=tuple(own.tolist()), first=first) for own in thresholds.reshape(-1, per_segment)
        ], state
