"""torch's optimizers, with parameter groups without weight decay."""

import copy
import inspect
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from compressors.core.checks import LARGEST, is_real, require
from trainers.parts import HasStepSize

NO_DECAY = ("batch_norm", "bias", "layer_norm")
Group = dict[str, Any]  # parameters and their settings, for torch's optimizers


def parameter_groups(model: nn.Module, weight_decay: float, no_decay: Sequence[str]) -> list[Group]:
    """Two groups of trainable parameters: with weight decay, and without it (``no_decay``).

    In ``no_decay``, ``batch_norm`` and ``layer_norm`` mean all parameters of such a norm, and ``bias`` all
    parameters with this word in their name, such as ``in_proj_bias`` and ``bias_ih_l0``. Raises
    ``ValueError`` for another word.
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
                or ("layer_norm" in no_decay and isinstance(module, (nn.LayerNorm, nn.RMSNorm)))
                or ("bias" in no_decay and "bias" in name.split("_"))
            )
            if parameter.requires_grad and parameter not in seen:  # tied weights appear twice
                seen.add(parameter)
                (spared if is_spared else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": spared, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


_LONGEST_VECTOR = 16  # entries per SIMD instruction

_update = inspect.unwrap(torch.optim.SGD.step)


class _SGD(torch.optim.SGD):
    """SGD without torch's hooks and profiler record around ``step``, which take two thirds of a short update.

    Gradients are tensors of inference mode, and torch's Nesterov on a GPU changes them in place, so the
    update also runs in inference mode.
    """

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # a trainer has no closures
        with torch.no_grad() if self.defaults["foreach"] is False else torch.inference_mode():
            _update(self)

    step.__dict__["hooked"] = True  # prevents torch from wrapping it again


class _OneByOne(torch.optim.SGD):
    """SGD with an update of its own, for one parameter at a time. The state is that of torch's SGD."""

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # as above
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(parameter, parameter.grad, group)

    step.__dict__["hooked"] = True  # as above

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: Group) -> None:
        """Move ``parameter`` by its ``gradient``; subclasses define how."""
        raise NotImplementedError


class _ReleasedNesterov(_OneByOne):
    """SGD that moves by g + m with m = momentum m + g; torch's Nesterov moves by g + momentum m.

    This is the form in the code of Sahu et al., 2021, https://arxiv.org/abs/2108.00951. g includes weight
    decay.
    """

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: Group) -> None:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
        state = self.state[parameter]
        if "momentum_buffer" in state:
            state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
        else:
            state["momentum_buffer"] = gradient.clone()
        parameter.sub_(gradient.add_(state["momentum_buffer"]), alpha=group["lr"])


class _DecayWithMomentum(_OneByOne):
    """SGD that moves by g + v with v = m v + weight decay: only the weight decay has momentum.

    This is the form in the authors' code of deep gradient compression (Lin et al., 2018,
    https://github.com/synxlin/deep-gradient-compression): there g has its momentum already, and the weight
    decay of usual SGD has it too.
    """

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: Group) -> None:
        if group["weight_decay"]:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            decay = state["momentum_buffer"].mul_(group["decay_momentum"])
            gradient = gradient.add(decay.add_(parameter, alpha=group["weight_decay"]))
        parameter.sub_(gradient, alpha=group["lr"])


class _SignSGD(_OneByOne):
    """SGD that moves by the sign of the gradient, after weight decay that is not part of the gradient."""

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: Group) -> None:
        if group["weight_decay"]:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(gradient.sign(), alpha=group["lr"])


def sgd(
    model: nn.Module,
    *,
    lr: float | None,
    momentum: float = 0.0,
    nesterov: bool | str = False,
    weight_decay: float = 0.0,
    no_decay: Sequence[str] = (),
    decay_momentum: float = 0.0,
) -> torch.optim.SGD:
    """``torch.optim.SGD`` on the mean gradient; ``lr=None`` uses the model's ``step_size``.

    ``decay_momentum`` is a momentum of the weight decay alone, for gradients that have a momentum already;
    ``momentum`` is 0 then.

    ``nesterov`` is true or false as in torch, or ``release``: g + m instead of g + momentum m, as in the code
    of Sahu et al.; with a momentum of 0.9 and equal gradients its steps are 1.1 times as long.

    Raises ``ValueError`` for settings that torch refuses, and for ``lr=None`` with a model without step size.
    """
    if lr is None:
        if not isinstance(model, HasStepSize):
            raise ValueError("optimizer.lr must be > 0: this model has no step size of its own, got None")
        lr = model.step_size
    _require_rates(lr=lr, momentum=momentum, weight_decay=weight_decay)
    require(momentum < 1, "optimizer.momentum", "in [0, 1)", momentum)
    is_form = isinstance(nesterov, bool) or nesterov == "release"
    require(is_form, "optimizer.nesterov", "true, false or release", nesterov)
    if nesterov and momentum == 0:
        raise ValueError("optimizer.nesterov needs optimizer.momentum > 0, got 0")
    require(
        is_real(decay_momentum) and 0 <= decay_momentum < 1,
        "optimizer.decay_momentum",
        "in [0, 1)",
        decay_momentum,
    )
    if decay_momentum and momentum:
        raise ValueError(f"optimizer.decay_momentum needs optimizer.momentum=0, got {momentum}")
    groups = parameter_groups(model, weight_decay, no_decay)
    if decay_momentum and weight_decay:
        return _DecayWithMomentum([group | {"decay_momentum": decay_momentum} for group in groups], lr=lr)
    if nesterov == "release":
        return _ReleasedNesterov(groups, lr=lr, momentum=momentum, nesterov=True)
    on_cpu = groups[0]["params"][0].device.type == "cpu"
    foreach = False if on_cpu else None  # torch's choice, without a check in every step
    return _SGD(
        _with_fused(groups, on_cpu), lr=lr, momentum=momentum, nesterov=bool(nesterov), foreach=foreach
    )


def _with_fused(groups: list[Group], on_cpu: bool) -> list[Group]:
    """The groups, each split into parameters that torch's fused loop updates with the same bits, and others.

    torch's fused loop on the CPU rounds like its single operations, except for the entries after the last
    whole SIMD vector of a tensor, and it ignores strides. On a GPU the groups are the same, because a
    checkpoint identifies a parameter's moments by its position in the groups; there torch chooses the loop.
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


def sign_sgd(
    model: nn.Module, *, lr: float, weight_decay: float = 0.0, no_decay: Sequence[str] = ()
) -> torch.optim.SGD:
    """Decoupled weight decay, then a step of size ``lr`` in every weight, along the mean gradient's sign.

    The update of Peng et al., 2024, "DeMo", https://arxiv.org/abs/2411.19870. An entry of the mean that is 0
    does not move its weight. Raises ``ValueError`` for settings torch refuses.
    """
    _require_rates(lr=lr, weight_decay=weight_decay)
    return _SignSGD(parameter_groups(model, weight_decay, no_decay), lr=lr)


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
    return torch.optim.Adam(groups, lr=lr, betas=(float(betas[0]), float(betas[1])), eps=eps)


def adamw(
    model: nn.Module,
    *,
    lr: float,
    betas: Sequence[float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    no_decay: Sequence[str] = (),
) -> torch.optim.AdamW:
    """``torch.optim.AdamW`` on the mean gradient; its weight decay is not part of the moments.

    Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101. Raises ``ValueError`` for
    settings torch refuses.
    """
    _require_rates(lr=lr, eps=eps, weight_decay=weight_decay)
    _require_betas(betas)
    _require_first_step(lr, betas)
    groups = parameter_groups(model, weight_decay, no_decay)
    return torch.optim.AdamW(groups, lr=lr, betas=(float(betas[0]), float(betas[1])), eps=eps)


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


def moments_like(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, object]]:
    """The state of ``optimizer`` for each parameter after a step, as meta tensors.

    It is found by a step of a copy with one parameter in each group.
    """
    found: dict[int, dict[str, object]] = {}
    number = 0
    for group in optimizer.param_groups:
        sample = torch.zeros(2, 3, dtype=group["params"][0].dtype, requires_grad=True)
        sample.grad = torch.zeros_like(sample)
        twin = copy.copy(optimizer)
        twin.state, twin.param_groups = defaultdict(dict), [{**group, "params": [sample]}]
        twin.step()
        for parameter in group["params"]:
            kept = {name: _like(value, sample, parameter) for name, value in twin.state[sample].items()}
            if kept:
                found[number] = kept
            number += 1
    return found


def _like(value: object, sample: Tensor, parameter: Tensor) -> object:
    if not isinstance(value, Tensor):
        return value
    shape = parameter.shape if value.shape == sample.shape else value.shape
    return torch.empty(shape, dtype=value.dtype, device="meta")
