"""Running average of the weights, evaluated in addition to the last weights.

Sahu et al., 2021, https://arxiv.org/abs/2108.00951, evaluate it for their networks, with a reset every 30
epochs.
"""

from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


class RunningAverage:
    """The mean of the weights and buffers after each step since the last reset.

    The average restarts at the first step of every ``reset_epochs`` epochs. The training does not use it.
    """

    def __init__(self, model: nn.Module, reset_epochs: float) -> None:
        self.averaged = AveragedModel(model, use_buffers=True)
        self.reset_epochs = reset_epochs
        self.period = 0  # of the last update, in units of reset_epochs

    @torch.no_grad()
    def update(self, model: nn.Module, epoch: float) -> None:
        """Add the weights after a step that began at this fractional ``epoch``."""
        period = int((epoch + 1e-9) // self.reset_epochs)
        if period != self.period:
            self.period = period
            self.averaged.n_averaged.zero_()
        # AveragedModel's own update divides integer buffers, such as BatchNorm's number of batches, which
        # fails on GPUs
        pairs = list(zip(_tensors(self.model), _tensors(model), strict=True))
        count = 1 + int(self.averaged.n_averaged)  # this counter is on the CPU, so no wait for a GPU
        for averaged, new in pairs:
            if count == 1:
                averaged.copy_(new)
            elif not averaged.is_floating_point():
                averaged.copy_(averaged + (new - averaged) / count)
        means = [averaged for averaged, _ in pairs if averaged.is_floating_point()]
        if count > 1:
            steps = torch._foreach_sub([new for _, new in pairs if new.is_floating_point()], means)
            torch._foreach_div_(steps, count)
            torch._foreach_add_(means, steps)
        self.averaged.n_averaged += 1

    @property
    def model(self) -> nn.Module:
        """The model with the averaged weights."""
        module: nn.Module = self.averaged.module
        return module


def _tensors(model: nn.Module) -> list[Tensor]:
    return list(chain(model.parameters(), model.buffers()))
