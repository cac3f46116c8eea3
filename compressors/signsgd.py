"""signSGD with majority vote: workers send the signs of their entries, and receive the sign of the majority.

Bernstein et al., 2018, https://arxiv.org/abs/1802.04434, algorithm 2, and 2019,
https://arxiv.org/abs/1810.05291. Biased, without a bound. Only signs are sent, so a step of an optimizer
without momentum changes every entry by the learning rate; usual rates are 1e-4 to 1e-3. Momentum of the
optimizer acts on the majority's signs, after their reduction; the paper's Signum has a momentum of every
worker before the sign. 1 bit per element to the servers, and 1 bit back. Worker w is the server of the w-th
part of every segment, as in ``two_way.py``. Deviations from the paper, where sign(0) is 0: 0 counts as
positive, and ties are broken at random, so that a sign takes one bit.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from compressors.api import (
    Communicator,
    Input,
    Plan,
    Reduced,
    Reducer,
    State,
    Step,
    Traits,
    backend_of,
    require,
    require_choice,
)
from compressors.encoding.packing import pack, unpack
from compressors.parts.rounds import begin, end

SIGNS, TIES = "signs", ("random", "positive")
HIGHEST_RATE = 0.01  # the largest usual base learning rate
_IN_CACHE = 2**16  # entries


@dataclass(frozen=True, kw_only=True)
class SignSGD(Reducer):
    """The sign of the sum of all workers' signs, +1 or -1 per entry.

    With an even number of workers there are ties. ``ties`` breaks them at random or as positive; the latter
    moves all tied entries in the same direction. Raises ``ValueError`` for another setting.
    """

    ties: str = "random"

    traits = Traits(exact=False, dense=True, relays=True, signs_only=True)
    usual_feedback = "none"
    kinds = (SIGNS,)

    def __post_init__(self) -> None:
        require_choice("SignSGD.ties", TIES, self.ties)

    def check(self, plan: Plan) -> None:
        rule = "none with signsgd, whose signs have no magnitude to subtract (compressor=ef_sign sends one)"
        require(not plan.feedback, "feedback", rule, plan.feedback)

    def note(self, learning_rate: float) -> str:
        if learning_rate <= HIGHEST_RATE:
            return ""
        return (
            f"signsgd moves every weight by the whole rate in every step: optimizer.lr={learning_rate:g} "
            "is likely too high, rates of 1e-4 to 1e-3 are usual"
        )

    def reduce(
        self, inputs: list[Input], state: State, step: Step, communicator: Communicator
    ) -> tuple[Reduced, State]:
        segments, norms = begin(inputs)
        n = communicator.size
        widths = [-(-segment.rows.shape[1] // (8 * n)) for segment in segments]  # bytes of a part
        parts = [_in_parts(s.rows, n, width) for s, width in zip(segments, widths, strict=True)]
        arrived = communicator.all_to_all(torch.cat(parts, 2), SIGNS)  # [W, n, sum of widths]
        own = [
            torch.cat(
                [
                    self._vote(part, step._replace(segment=segment.name, worker=server))
                    for part, segment in zip(ballots.split(widths, 1), segments, strict=True)
                ]
            )
            for server, ballots in zip(communicator.local_workers, arrived, strict=True)
        ]
        majorities = communicator.all_gather(torch.stack(own), SIGNS)  # [n, sum of widths]
        means = {}
        for segment, votes in zip(segments, majorities.split(widths, 1), strict=True):
            size = segment.rows.shape[1]
            means[segment.name] = _signs(unpack(votes.flatten(), 1, size), segment.rows)
            for rows in segment.rows.split(_IN_CACHE, 1):
                rows.sub_(_signs(rows >= 0, rows))
        return end(segments, means, norms), state

    def _vote(self, ballots: Tensor, step: Step) -> Tensor:
        """The packed signs [m] of the majority of packed signs [n, m], for the server ``step.worker``."""
        workers, size = len(ballots), 8 * ballots.shape[1]
        counting = torch.uint8 if workers < 256 else torch.int32
        positive = torch.zeros(size, dtype=counting, device=ballots.device)
        for own in ballots:
            positive += unpack(own, 1, size)
        majority = positive > workers // 2
        if workers % 2 == 0:
            majority |= (positive == workers // 2) & self._drawn(step, size, ballots.device)
        return pack(majority.to(torch.uint8), 1)

    def _drawn(self, step: Step, size: int, device: torch.device) -> Tensor:
        """The signs [size] of ties, true for positive."""
        if self.ties == "positive":
            return torch.ones(size, dtype=torch.bool, device=device)
        return backend_of(device).random_bits(step.derive_seed(shared=False), size, device) < 0


def _in_parts(rows: Tensor, count: int, width: int) -> Tensor:
    """The packed signs of ``rows`` [W, d] in ``count`` parts of ``width`` bytes, [W, count, width]."""
    padded = pad((rows >= 0).to(torch.uint8), (0, 8 * count * width - rows.shape[1]))
    return pack(padded.flatten(), 1).view(len(rows), count, width)


def _signs(positive: Tensor, like: Tensor) -> Tensor:
    """+1 where ``positive``, else -1."""
    return positive.to(like.dtype).mul_(2).sub_(1)
