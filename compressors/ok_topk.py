"""Ok-Topk: the largest magnitudes of the sum of all workers' Top-k; each worker sums one region.

Li and Hoefler, 2022, https://arxiv.org/abs/2201.07598, algorithm 1. A worker keeps entries of at least its
threshold, about k, and sends each to the owner of its region. An owner adds the entries that it receives and
keeps sums of at least the global threshold; the owners together keep about k. These sums are gathered on all
workers. Every ``period`` steps the thresholds are computed again: the k-th largest magnitude of each worker,
and that of all sums, which are all gathered in such a step. Every ``partition_period`` steps the regions are
chosen such that each has equally many entries of an average worker.

Biased. If the sum at a position is not kept, the entries at this position return to the workers' residuals. A
worker sends at most 6 k (n - 1) / n values and indices if thresholds keep k entries and regions are even:
2 k (n - 1) / n of both to owners, and up to 4 k (n - 1) / n of both in even gathers of k sums. An fp32 value
with its index takes 8 bytes.

Deviations from the paper. If an owner has more than twice its share of a segment's sums, they are
redistributed evenly before the gather; otherwise the gather stays within the bound without this. Regions are
stored as the positions of 64 quantiles, for any number of workers, instead of n - 1 positions. Between two
searches the thresholds stay as they are. The authors' code (https://github.com/Shigangli/Ok-Topk) adapts them
after every step, and sends everything in the first 512 steps. Here growing residuals can lead to many more
than k entries and sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import (
    METADATA,
    Communicator,
    Input,
    Reduced,
    ReducerWithDensity,
    Segment,
    Shared,
    Step,
    Traits,
    backend_of,
    is_count,
    require,
)
from compressors.core.payloads import index_dtype
from compressors.parts.entries import (
    KINDS,
    Entries,
    contains,
    edges_between,
    entries_of,
    finish,
    gather,
    order_of,
    places_among,
    segments_of,
    sums_of,
)
from compressors.reused_threshold import ReusedThreshold, Thresholds

QUANTILES = 64


class Agreed(NamedTuple):
    """The part of the state that is equal on all workers, by segment; negative before the first step."""

    thresholds: dict[str, Tensor]  # of sums, [1] float64
    quantiles: dict[str, Tensor]  # mean positions of the workers' quantiles, [QUANTILES - 1] float64


class OkState(NamedTuple):
    """The state of Ok-Topk."""

    local: Thresholds
    agreed: Shared  # ``Agreed``


@dataclass(frozen=True, kw_only=True)
class OkTopk(ReducerWithDensity):
    """Averages about k = max(1, floor(density * d)) positions of every segment.

    An entry of a worker is sent if the final sum at its position contains it. A longer ``period`` takes less
    time and fewer bytes; the number of entries then differs more from k if magnitudes change within a period.
    Raises ``ValueError`` for a density outside (0, 1] and for periods below 1.
    """

    period: int = 32  # the paper's values
    partition_period: int = 64

    traits = Traits(ragged=True, lossless_at={"density": 1.0, "schedule": "constant", "period": 1})
    has_a_value_each = False  # owners send sums
    examples = ({"density": 0.1}, {"density": 0.1, "period": 2, "partition_period": 1})
    waits = ("4", "S W + 3 + G", "in a step that computes thresholds and regions")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("period", "partition_period"):
            value = getattr(self, name)
            require(is_count(value), f"OkTopk.{name}", "an integer >= 1", value)

    def init(self, segments: list[Segment]) -> OkState:
        found = {s.name: torch.full((1,), -1.0, dtype=torch.float64) for s in segments}
        quantiles = {s.name: torch.full((QUANTILES - 1,), -1.0, dtype=torch.float64) for s in segments}
        return OkState(self._search.init(segments), Shared(Agreed(found, quantiles)))

    def reduce(
        self, inputs: list[Input], state: OkState, step: Step, communicator: Communicator
    ) -> tuple[Reduced, OkState]:
        backend, agreed = backend_of(inputs[0].rows.device), state.agreed.state
        codecs, found = self._search.choose(inputs, state.local, step, communicator)
        local = backend.compress(codecs, inputs, step, communicator.local_workers)
        edges = edges_between(inputs)
        own = entries_of(local, edges, copy=True)
        unset = any(agreed.quantiles[given.name][0] < 0 for given in inputs)
        if unset or step.exchange % self.partition_period == 0:
            _partition(own, inputs, edges, agreed, communicator)
        sums = _reduce_regions(own, inputs, edges, agreed, communicator)
        if step.exchange % self.period == 0 or any(agreed.thresholds[given.name] < 0 for given in inputs):
            everyones = gather(sums, edges, communicator)
            for given, part in zip(inputs, everyones.parts(edges), strict=True):
                agreed.thresholds[given.name][0] = _threshold(part, self.elements_at(step, given.size), given)
            final = _at_least(everyones, inputs, edges, agreed)
        else:
            large = [_at_least(of_owner, inputs, edges, agreed) for of_owner in sums]
            final = gather(large, edges, communicator)
        wanted = [mine.where for mine in own]
        kept = contains(final.where, torch.cat(wanted)).split([len(where) for where in wanted])
        reduced = finish(final, own, kept, inputs, local, communicator.size)
        return reduced, OkState(found, state.agreed)

    @property
    def _search(self) -> ReusedThreshold:
        return ReusedThreshold(density=self.density, schedule=self.schedule, period=self.period)


def _partition(
    own: Sequence[Entries], inputs: list[Input], edges: np.ndarray, agreed: Agreed, communicator: Communicator
) -> None:
    """Set each segment's quantiles to the mean of those of all workers' entries."""
    rows = [mine.parts(edges) for mine in own]
    found = []
    for number, given in enumerate(inputs):
        of_workers = []
        for parts in rows:
            where = parts[number].where.cpu().numpy()
            even = np.linspace(0, given.size, QUANTILES + 1)[1:-1]
            ranks = np.arange(1, QUANTILES) * len(where) // QUANTILES
            of_workers.append(where[ranks] if len(where) else even)
        found.append(torch.from_numpy(np.array(of_workers, dtype=np.float64)))
    joined = torch.cat(found, 1).to(communicator.device, non_blocking=True)
    (mean,) = communicator.all_reduce_mean([joined], kind=METADATA)
    for given, quantiles in zip(inputs, mean.cpu().split(QUANTILES - 1), strict=True):
        agreed.quantiles[given.name].copy_(quantiles)


def _reduce_regions(
    own: Sequence[Entries], inputs: list[Input], edges: np.ndarray, agreed: Agreed, communicator: Communicator
) -> list[Entries]:
    """The sums of all workers' entries in the region of each local worker."""
    bounds, size = [], communicator.size
    shares = np.arange(QUANTILES + 1) / QUANTILES
    for given, first in zip(inputs, edges.tolist(), strict=False):
        known = [0.0, *agreed.quantiles[given.name].tolist(), float(given.size)]
        inner = np.interp(np.arange(1, size) / size, shares, known)
        bounds.append(first + np.ceil(inner).astype(np.int64))
    starts = torch.from_numpy(np.concatenate(bounds))  # of regions 1 to n - 1 in every segment
    lengths = [len(mine.where) for mine in own]
    values, where = (torch.cat(field) for field in zip(*own, strict=True))
    segment = segments_of(where, edges)
    owner = places_among(starts, where, right=True) - segment * (size - 1)
    owner += torch.arange(len(own)).repeat_interleave(torch.tensor(lengths)) * size  # of each worker's own n
    order = order_of(owner)
    counts = (owner * len(inputs) + segment).bincount(minlength=len(own) * size * len(inputs))
    sent = Entries(values, where.to(index_dtype(int(edges[-1])))).at(order)
    arrived, _ = communicator.all_to_all_ragged(
        [list(field.split(lengths)) for field in sent], counts.view(len(own), size, -1).numpy(), KINDS
    )
    return [sums_of(*of_owner) for of_owner in zip(*arrived, strict=True)]


def _threshold(part: Entries, k: int, given: Input) -> float:
    """The k-th largest magnitude, or the smallest if there are fewer than k; above 0 unless k is d."""
    if not len(part.values):
        return torch.finfo(part.values.dtype).smallest_normal
    found = part.values.abs().topk(min(k, len(part.values))).values[-1].item()
    return found if k == given.size else max(found, torch.finfo(part.values.dtype).smallest_normal)


def _at_least(found: Entries, inputs: list[Input], edges: np.ndarray, agreed: Agreed) -> Entries:
    """Entries on the CPU of at least their segment's threshold, and NaN."""
    limits = torch.tensor([agreed.thresholds[given.name].item() for given in inputs], dtype=torch.float64)
    own = limits.index_select(0, segments_of(found.where, edges))
    large = ~(found.values.double().abs() < own)
    return found.at(torch.from_numpy(np.flatnonzero(large.numpy())))
