"""torch's optimizers, with parameter groups that weight decay can leave out."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from compressors.core.checks import LARGEST, is_real, require
from trainers.parts import HasStepSize

NO_DECAY = ("batch_norm", "bias", "layer_norm")
Group = dict[str, Any]  # parameters and their settings, as torch's optimizers take them


def parameter_groups(model: nn.Module, weight_decay: float, no_decay: Sequence[str]) -> list[Group]:
    """Two groups of trainable parameters: decayed, and those that ``no_decay`` names.

    ``batch_norm`` and ``layer_norm`` name every parameter of such a norm, ``bias`` every parameter
    called bias.
    Raises ``ValueError`` for another word.
    """
    is_list = isinstance(no_decay, Sequence) and not isinstance(no_decay, str)
    known = is_list and all(word in NO_DECAY for word in no_decay)
    require(known, "optimizer.no_decay", f"a list of {', '.join(NO_DECAY)}", no_decay)
    decayed: list[nn.Parameter] = []
    spared: list[nn.Parameter] = []
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            is_spared = (
                ("batch_norm" in no_decay and isinstance(module, _NormBase))
                or ("layer_norm" in no_decay and isinstance(module, nn.LayerNorm))
                or ("bias" in no_decay and name == "bias")
            )
            if parameter.requires_grad and parameter not in seen:  # tied weights are met twice
                seen.add(parameter)
                (spared if is_spared else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


_LONGEST_VECTOR = 16  # entries that a processor's instruction takes at once

_update = inspect.unwrap(torch.optim.SGD.step)


class _SGD(torch.optim.SGD):
    """Without torch's hooks and profiler's record around ``step``: of a short update they are two thirds.

    On a GPU torch takes all parameters at once and changes Nesterov's gradients in place. These come from a
    reduction, in inference mode; so the update is in it, too.
    """

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # a trainer has no closures
        with torch.no_grad() if self.defaults["foreach"] is False else torch.inference_mode():
            _update(self)

    step.__dict__["hooked"] = True  # or torch would wrap it again


class _ReleasedNesterov(torch.optim.SGD):
    """SGD that moves by g + m with m = momentum m + g; torch's Nesterov moves by g + momentum m.

    The form of the code of Sahu et al., 2021, https://arxiv.org/abs/2108.00951. g includes weight
    decay; the state is torch's.
    """

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # as above
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(parameter, parameter.grad, group)

    step.__dict__["hooked"] = True  # as above

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: Group) -> None:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
        state = self.state[parameter]
        if "momentum_buffer" in state:
            state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
        else:
            state["momentum_buffer"] = gradient.clone()
        parameter.sub_(gradient.add_(state["momentum_buffer"]), alpha=group["lr"])


def sgd(
    model: nn.Module,
    *,
    lr: float | None,
    momentum: float = 0.0,
    nesterov: bool | str = False,
    weight_decay: float = 0.0,
    no_decay: Sequence[str] = (),
) -> torch.optim.SGD:
    """``torch.optim.SGD`` on the mean gradient; ``lr=None`` takes the model's own ``step_size``.

    ``nesterov`` is true or false as torch has it, or ``release``: g + m instead of g + momentum m, as
    in the code of Sahu et al.; with a momentum of 0.9 and equal gradients it moves 1.1 times as far.

    Raises ``ValueError`` for settings torch refuses, and without an lr for a model that has none.
    """
    if lr is None:
        lr = _own_rate(model)
    _require_rates(lr=lr, momentum=momentum, weight_decay=weight_decay)
    require(momentum < 1, "optimizer.momentum", "in [0, 1)", momentum)
    is_form = isinstance(nesterov, bool) or nesterov == "release"
    require(is_form, "optimizer.nesterov", "true, false or release", nesterov)
    if nesterov and momentum == 0:
        raise ValueError("optimizer.nesterov needs optimizer.momentum > 0, got 0")
    groups = parameter_groups(model, weight_decay, no_decay)
    if nesterov == "release":
        return _ReleasedNesterov(groups, lr=lr, momentum=momentum, nesterov=True)
    on_cpu = groups[0]["params"][0].device.type == "cpu"
    foreach = False if on_cpu else None  # what torch would choose, without asking in every step
    return _SGD(
        _with_fused(groups, on_cpu), lr=lr, momentum=momentum, nesterov=bool(nesterov), foreach=foreach
    )


def _own_rate(model: nn.Module) -> float:
    if not isinstance(model, HasStepSize):
        raise ValueError("optimizer.lr must be > 0: this model has no step size of its own, got None")
    return model.step_size


def _with_fused(groups: list[Group], on_cpu: bool) -> list[Group]:
    """The groups, of which those parameters have their own that one pass over memory can update.

    They are the same on a GPU, where torch chooses for itself: a checkpoint knows a parameter's moments by
    its place in the groups.

    torch's fused loop on the CPU rounds as its single operations do, but for the entries that are left over
    at the end of a tensor after whole vectors; and it takes entries as they lie, whatever the strides.
    """
    split = []
    for group in groups:
        for fused in (True, False):
            own = [p for p in group["params"] if _is_fusible(p) == fused]
            if own:
                split.append({**group, "params": own, "fused": fused if on_cpu else None})
    return split


def _is_fusible(parameter: nn.Parameter) -> bool:
    is_known = parameter.dtype in (torch.float32, torch.float64)
    return is_known and parameter.is_contiguous() and parameter.numel() % _LONGEST_VECTOR == 0


def adam(
    model: nn.Module,
    *,
    lr: float,
    betas: Sequence[float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    no_decay: Sequence[str] = (),
) -> torch.optim.Adam:
    """``torch.optim.Adam`` on the mean gradient. Raises ``ValueError`` for settings torch refuses."""
    _require_rates(lr=lr, eps=eps, weight_decay=weight_decay)
    _require_betas(betas)
    _require_first_step(lr, betas)
    groups = parameter_groups(model, weight_decay, no_decay)
    return torch.optim.Adam(groups, lr=lr, betas=(betas[0], betas[1]), eps=eps)


def adamw(
    model: nn.Module,
    *,
    lr: float,
    betas: Sequence[float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    no_decay: Sequence[str] = (),
) -> torch.optim.AdamW:
    """``torch.optim.AdamW`` on the mean gradient: decay that the moments do not see.

    Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101. Raises ``ValueError`` for
    settings torch refuses.
    """
    _require_rates(lr=lr, eps=eps, weight_decay=weight_decay)
    _require_betas(betas)
    _require_first_step(lr, betas)
    groups = parameter_groups(model, weight_decay, no_decay)
    return torch.optim.AdamW(groups, lr=lr, betas=(betas[0], betas[1]), eps=eps)


def _require_betas(betas: Sequence[float]) -> None:
    valid = isinstance(betas, Sequence) and len(betas) == 2 and all(is_real(b) and 0 <= b < 1 for b in betas)
    require(valid, "optimizer.betas", "two numbers in [0, 1)", betas)


def _require_first_step(lr: float, betas: Sequence[float]) -> None:
    """Raise for a first step, lr / (1 - beta1), that is not finite in fp32."""
    rule = f"at most {LARGEST:.2g} (1 - beta1)"
    require(lr / (1 - betas[0]) <= LARGEST, "optimizer.lr", rule, lr)


def _require_rates(**rates: float) -> None:
    for name, value in rates.items():
        require(is_real(value) and value >= 0, f"optimizer.{name}", "a finite number >= 0", value)
    require(rates["lr"] > 0, "optimizer.lr", "> 0", rates["lr"])
