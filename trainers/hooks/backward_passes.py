"""Backward passes of an FSDP2 model, in which groups of parameters are reduced one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from trainers.hooks.buckets import at_end_of_backward
from trainers.hooks.group import together
from trainers.hooks.saved_state import Tensors
from trainers.hooks.shards import Group
from trainers.hooks.state import CompressionState


@dataclass(eq=False)
class BackwardPasses:
    """Backward passes of a model: a step each, from the first reduction to the end of the pass.

    ``parameters`` are those whose updates are watched, and whose gradients a skipped step makes infinite.
    """

    state: CompressionState
    parameters: Sequence[DTensor]
    _reduced: set[int] = field(default_factory=set)  # groups, in this pass
    _before: Tensors | None = None  # the state before this pass, with a scaler
    _is_skipped: bool = False  # because a gradient is not finite
    _ends_with_outputs: bool = False  # whether the backward pass of the model's outputs ends this pass

    def watch(self, model: nn.Module) -> None:
        """End a pass with the backward pass of the outputs of ``model``.

        An activation checkpoint with ``use_reentrant=True`` has a backward pass of its own inside of it.
        """
        model.register_forward_hook(self._on_forward)

    def _on_forward(self, model: nn.Module, inputs: object, outputs: object) -> None:
        for output in tree_leaves(outputs):
            if isinstance(output, Tensor) and output.requires_grad:
                output.register_hook(self._begin)

    def _begin(self, gradient: Tensor) -> None:
        self._ends_with_outputs = at_end_of_backward(self._end)

    def reduce(self, group: Group, gradients: dict[str, Tensor]) -> None:
        """Replace the gradients [D] of ``group``, by name, by their means, as far as these are known."""
        state, buffers = self.state, list(gradients.values())
        if id(group) in self._reduced:  # for the second time: the last pass has failed, or had two calls
            self._close_step()
        needs_check = state.preparation.needs_whole_gradient
        if not self._reduced:
            if not self._ends_with_outputs:  # the script has called modules below the model
                at_end_of_backward(self._end)
            self._before = state.state_dict() if needs_check else None
        self._reduced.add(id(group))
        with together(f"step {state.step + 1} of the compression"):
            if needs_check:
                finite = not self._is_skipped and state.preparation.begin(
                    buffers, buffers, state.communicator
                )
                self._is_skipped = not finite
            if self._is_skipped:
                return
            state.reduce(gradients, last=False)
            if needs_check:
                state.preparation.end(buffers)

    def _end(self) -> None:
        self._ends_with_outputs = False
        self._close_step()

    def _close_step(self) -> None:
        if not self._reduced:
            return
        self._reduced.clear()
        state, before, is_skipped = self.state, self._before, self._is_skipped
        self._before, self._is_skipped = None, False
        if before is None or not is_skipped:
            state.close_step()
            if state.communicator.rank == 0:
                state.updates.look(state.step, self.parameters)
            return
        for parameter in self.parameters:  # also those that were reduced before the fault was found
            if isinstance(parameter.grad, DTensor):
                parameter.grad.to_local().fill_(torch.inf)
        state.undo_step(before)
