"""Local steps: every worker moves by its own optimizer between two synchronisations.

McMahan et al., 2017, https://arxiv.org/abs/1602.05629 (federated averaging); Stich, 2019,
https://arxiv.org/abs/1805.09767 (local SGD); Douillard et al., 2023, https://arxiv.org/abs/2311.08105
(DiLoCo).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from compressors.core.checks import is_count, is_real, require, require_flag

MOST_STEPS = 10**6


@dataclass(frozen=True, kw_only=True)
class Outer:
    """The outer optimizer: SGD on the mean of the workers' pseudo-gradients, start minus end of their steps.

    A rate of 1 without momentum sets the weights to the mean of the workers' weights. Raises ``ValueError``
    for settings that ``torch.optim.SGD`` refuses.
    """

    lr: float = 0.7
    momentum: float = 0.9
    nesterov: bool = True

    def __post_init__(self) -> None:
        require(is_real(self.lr) and self.lr > 0, "local.outer.lr", "> 0", self.lr)
        valid = is_real(self.momentum) and 0 <= self.momentum < 1
        require(valid, "local.outer.momentum", "in [0, 1)", self.momentum)
        require_flag("local.outer.nesterov", self.nesterov)
        if self.nesterov and self.momentum == 0:
            raise ValueError("local.outer.nesterov needs local.outer.momentum > 0, got 0")

    def make(self, parameters: Iterable[nn.Parameter]) -> torch.optim.SGD:
        """The optimizer of the outer weights ``parameters``."""
        return torch.optim.SGD(parameters, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)


@dataclass(frozen=True, kw_only=True)
class LocalSteps:
    """H local steps of every worker between two synchronisations of a parameter.

    The optimizer of the config is that of the local steps, and each worker keeps its moments. The workers'
    pseudo-gradients are compressed, ``outer`` updates the shared weights by their mean, and the workers take
    these over. A step of the run ends with one synchronisation.

    With ``fragments`` P > 1 (Streaming DiLoCo, https://arxiv.org/abs/2501.18512) a step has H / P local steps
    and synchronises one of P sets of layers, in turn. Workers take the result over ``delay`` local steps
    later, during which it would be sent; ``blend`` is the share of a worker's own weights that stays. Raises
    ``ValueError`` for values out of range and for an H that P does not divide.
    """

    steps: int = 50  # H
    fragments: int = 1  # P
    delay: int = 0
    blend: float = 0.0
    outer: Outer = field(default_factory=Outer)

    def __post_init__(self) -> None:
        valid = is_count(self.steps) and self.steps <= MOST_STEPS
        require(valid, "local.steps", f"an integer from 1 to {MOST_STEPS}", self.steps)
        valid = is_count(self.fragments) and self.steps % self.fragments == 0
        require(valid, "local.fragments", f"a divisor of local.steps ({self.steps})", self.fragments)
        valid = type(self.delay) is int and 0 <= self.delay < self.steps_at_once  # false is no number
        rule = f"an integer from 0 to {self.steps_at_once - 1}, below local.steps / local.fragments"
        require(valid, "local.delay", rule, self.delay)
        valid = is_real(self.blend) and 0 <= self.blend < 1
        require(valid, "local.blend", "in [0, 1)", self.blend)
        require(isinstance(self.outer, Outer), "local.outer", "settings of Outer", self.outer)

    @property
    def steps_at_once(self) -> int:
        """Local steps in a step of the run."""
        return self.steps // self.fragments

    @property
    def keeps_weights(self) -> bool:
        """Whether workers differ after a synchronisation, so each has weights of its own in a checkpoint."""
        return self.fragments > 1 or self.delay > 0 or self.blend > 0


def fragments_of(sizes: Sequence[int], num_fragments: int) -> list[list[int]]:
    """The layers of each fragment, in order: each layer, the largest first, joins the smallest fragment.

    Raises ``ValueError`` for more fragments than layers.
    """
    if num_fragments > len(sizes):
        raise ValueError(f"local.fragments must be at most the number of layers, {len(sizes)}")
    fragments: list[list[int]] = [[] for _ in range(num_fragments)]
    for layer in sorted(range(len(sizes)), key=lambda layer: -sizes[layer]):
        min(fragments, key=lambda own: sum(sizes[i] for i in own)).append(layer)
    return [sorted(own) for own in fragments]


def every_step() -> None:
    """No local steps: the workers exchange their gradients in every step."""
