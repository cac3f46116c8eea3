"""Staleness: number of steps that entries wait in the residual, and shares of waiting entries.

Alistarh et al., 2018, https://arxiv.org/abs/1809.10505, treat Top-k as an asynchronous method with delayed
updates; a hard threshold bounds the size of waiting entries.

The *wait* of an entry is the number of steps that did not send it, since it was last sent or since the first
step. This is the age of the oldest gradient in it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from compressors.api import Reduced, Reducer, Segment
from compressors.core.checks import is_count, require
from compressors.kernels.choice import backend_of
from trainers.comm.communicator import Communicator


class Waits(NamedTuple):
    """State of the local workers' entries, in the form of a checkpoint: all tensors are [W, ...]."""

    steps: Tensor  # [W] int32, steps taken
    sent_at: Tensor  # [W, D] int32, last step in which each entry was sent, counted from 1; 0: never


class Waiting:
    """Updates waits. Sent positions of several steps are written together, which uses the cache better."""

    def __init__(self, segments: list[Segment]) -> None:
        workers, device = len(segments[0].rows), segments[0].rows.device
        size = sum(segment.rows.shape[1] for segment in segments)
        sent_at = torch.zeros(workers, size, dtype=torch.int32, device=device)
        self._waits = Waits(torch.zeros(workers, dtype=torch.int32), sent_at)
        self._later: list[tuple[int, Tensor]] = []  # step numbers and sent positions not yet written
        self._entries_later = 0

    @property
    @torch.inference_mode()  # as at creation; a checkpoint reads the tensors outside of it
    def waits(self) -> Waits:
        """The waits after the last step."""
        sent_at = self._waits.sent_at.view(-1)
        for step, where in self._later:
            if sent_at.device.type == "cpu":  # takes half the time of index_fill_
                sent_at.numpy()[where.numpy()] = step
            else:
                sent_at.index_fill_(0, where, step)
        self._later, self._entries_later = [], 0
        return self._waits

    def follow(self, segments: list[Segment], reduced: Reduced, is_due: bool) -> Tensor | None:
        """Record the positions sent in a step; return their waits [k] if ``is_due``, else None."""
        self._waits.steps.add_(1)
        step = int(self._waits.steps[0])
        where = _places(segments, reduced)
        held = step - 1 - self.waits.sent_at.view(-1)[where] if is_due else None
        self._later.append((step, where))
        self._entries_later += len(where)
        if self._entries_later > self._waits.sent_at.numel() // 4:  # positions of 2 W D bytes
            _ = self.waits
        return held


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """Shares of entries that waited at least each of ``ages``, over the entries of all n workers together.

    Cost: in each step one number is written per entry sent; in a measured step two passes over the residuals.
    Memory: n D numbers of 4 bytes, and half as much for positions that are written later. Raises
    ``ValueError`` unless ages are different integers >= 1.
    """

    ages: tuple[int, ...]  # steps

    def __post_init__(self) -> None:
        ages = self.ages
        valid = (
            isinstance(ages, (list, tuple)) and 0 < len(ages) == len(set(ages)) and all(map(is_count, ages))
        )
        require(valid, "diagnostics.staleness.ages", "a list of different integers >= 1", ages)
        object.__setattr__(self, "ages", tuple(sorted(ages)))

    def require_residual(self, reducer: Reducer) -> None:
        """Raise ``ValueError`` for a method without residual."""
        if not reducer.keeps_residual:
            raise ValueError(
                "diagnostics=staleness needs feedback=ef and a lossy compressor: without a residual no "
                "entry waits; selection_error works with all compressors"
            )
        if any(getattr(layer, "beta", 1) < 1 for layer in reducer.layers()):
            raise ValueError(
                "diagnostics=staleness needs feedback=ef: under low_pass an entry that is sent keeps a part "
                "of its residual"
            )

    def measure(
        self,
        waits: Waits,
        held: Tensor,
        segments: list[Segment],
        reduced: Reduced,
        communicator: Communicator,
    ) -> dict[str, float]:
        """Shares by age of the entries sent in this step, of all entries, of the residuals' squared norm."""
        num_workers, num_bins = len(waits.sent_at), len(self.ages) + 1
        backend = backend_of(waits.sent_at.device)
        counts = torch.zeros(num_workers, 3, num_bins, dtype=torch.float64)
        # sum and maximum of ``held``; longest wait of all entries
        others = torch.zeros(num_workers, 3, dtype=torch.float64)
        counts[0, 0] = self._binned(held.bincount())  # over all local workers
        others[0, :2] = torch.tensor([held.sum(), held.max()]) if len(held) else 0
        for row, sent_at in enumerate(waits.sent_at):
            rests = [reduced.residual[s.name][row] for s in segments]
            by_step, mass = backend.count_ages(int(waits.steps[row]), sent_at, rests)
            counts[row, 1], counts[row, 2] = self._binned(by_step), self._binned(mass)
            others[row, 2] = by_step.nonzero().max()
        everyones = communicator.collect(torch.cat([counts.flatten(1), others], 1))  # [n, 3 (A + 1) + 3]
        sent, unsent, mass, (total, *_) = everyones.sum(0).split([num_bins] * 3 + [3])
        found = {"diagnostics/unsent_longest": everyones[:, -1].max().item()}
        if sent.sum() > 0:
            found["diagnostics/waited_longest"] = everyones[:, -2].max().item()
            found["diagnostics/waited_mean"] = (total / sent.sum()).item()
        for name, of_ages in (("waited", sent), ("unsent", unsent), ("residual_unsent", mass)):
            if of_ages.sum() > 0:
                shares = (of_ages.flip(0).cumsum(0).flip(0) / of_ages.sum())[1:].tolist()
                found |= {f"diagnostics/{name}_{a}": s for a, s in zip(self.ages, shares, strict=True)}
        return found

    def _binned(self, by_step: Tensor) -> Tensor:
        """Sums over the intervals between the ages, [A + 1] float64, from sums per number of steps."""
        pieces = by_step.double().cpu().tensor_split(list(self.ages))
        return torch.stack([piece.sum() for piece in pieces])


def _places(segments: list[Segment], reduced: Reduced) -> Tensor:
    """Positions of the sent entries in the flattened [W, D], [k] int64."""
    positions = [reduced.compressed[s.name].positions(s.rows.shape[1]) for s in segments]
    counts = np.stack([reduced.compressed[segment.name].counts for segment in segments])  # [S, W]
    ends = np.array([segment.rows.shape[1] for segment in segments]).cumsum()  # [S]
    starts = np.concatenate([[0], ends[:-1]])[:, None] + np.arange(counts.shape[1]) * ends[-1]  # [S, W]
    where = torch.cat(positions) if len(positions) > 1 else positions[0]
    return where + torch.from_numpy(starts.ravel().repeat(counts.ravel())).to(where.device)
