"""Optimizers: parameters without weight decay, Nesterov's forms, refusals."""

import copy
import math
from collections.abc import Callable, Sequence
from itertools import product

import pytest
import torch
from torch import nn

from trainers.optimizer import adam, adamw, parameter_groups, sgd, sign_sgd


class Mixed(nn.Module):
    """BatchNorm1d and 2d, LayerNorm, biases at two depths, bare parameters, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.LayerNorm(3), nn.Linear(3, 2))
        self.bias = nn.Parameter(torch.ones(2))
        self.scale = nn.Parameter(torch.ones(1))
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)


BATCH_NORM = {"norm.weight", "norm.bias", "head.1.weight", "head.1.bias"}
LAYER_NORM = {"head.2.weight", "head.2.bias"}
BIAS = {"convolution.bias", "norm.bias", "head.0.bias", "head.1.bias", "head.2.bias", "head.3.bias", "bias"}
CHOICES = [
    ([], set()),
    (["batch_norm"], BATCH_NORM),
    (["bias"], BIAS),
    (["bias", "layer_norm", "batch_norm"], BATCH_NORM | BIAS | LAYER_NORM),
    (("bias",), BIAS),
]


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def filled(model: nn.Module) -> nn.Module:
    """Every parameter 2, every gradient 0."""
    for parameter in trainable(model).values():
        nn.init.constant_(parameter, 2.0)
        parameter.grad = torch.zeros_like(parameter)
    return model


@pytest.mark.parametrize(("no_decay", "expected"), CHOICES)
def test_groups(no_decay: list[str], expected: set[str]) -> None:
    """Every trainable parameter once: named ones without decay, all others with decay."""
    model = Mixed()
    groups = parameter_groups(model, 0.5, no_decay)
    names = {id(p): name for name, p in model.named_parameters()}
    by_decay = {group["weight_decay"]: [names[id(p)] for p in group["params"]] for group in groups}
    assert len(by_decay) == len(groups)
    assert sorted(by_decay.get(0.0, [])) == sorted(expected)
    assert sorted(by_decay[0.5]) == sorted(trainable(model).keys() - expected)


@pytest.mark.parametrize(
    ("optimizer", "reached"), [(sgd, 1.75), (sign_sgd, 1.75), (adam, 1.5), (adamw, 1.75)]
)
def test_without_gradient_only_what_decays_moves(optimizer: Callable, reached: float) -> None:
    """w - lr * weight_decay * w = 2 - 0.5 * 0.25 * 2; Adam's first step is lr times the sign of the decay."""
    model = filled(Mixed())
    optimizer(model, lr=0.5, weight_decay=0.25, no_decay=["batch_norm", "bias"]).step()
    for name, parameter in trainable(model).items():
        target = torch.full_like(parameter, 2.0 if name in BATCH_NORM | BIAS else reached)
        torch.testing.assert_close(parameter.data, target, atol=1e-6, rtol=0)
    assert model.frozen == 1


def moved(nesterov: object, gradients: Sequence[float], **settings: float) -> float:
    """Distance of a weight from 0 after steps against ``gradients``, one per step, at a rate of 1."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = sgd(model, lr=1.0, momentum=0.9, nesterov=nesterov, **settings)
    for gradient in gradients:
        model.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
    return -model.weight.item()


def test_the_releases_nesterov_by_hand() -> None:
    """Gradients 1 and 3: m = 1, 3.9, and each step is g + m; then with weight decay, which is in g and m."""
    assert moved("release", [1.0, 3.0]) == pytest.approx((1 + 1) + (3 + 3.9), rel=1e-6)
    second = 3 - 0.1 * 2  # the weight is then -2
    expected = 2 + second + (0.9 + second)
    assert moved("release", [1.0, 3.0], weight_decay=0.1) == pytest.approx(expected, rel=1e-6)


def test_the_releases_nesterov_goes_on_from_a_checkpoint() -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
        optimizer.step()

    settings = {"lr": 0.1, "momentum": 0.9, "nesterov": "release", "weight_decay": 0.01}
    whole = Mixed()
    optimizer = sgd(whole, **settings, no_decay=["batch_norm"])
    for number in range(2):
        step(whole, optimizer, number)
    resumed = copy.deepcopy(whole)
    again = sgd(resumed, **settings, no_decay=["batch_norm"])
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for number in range(2, 4):
        step(whole, optimizer, number)
        step(resumed, again, number)
    assert all(map(torch.equal, whole.parameters(), resumed.parameters()))
    assert (whole.frozen == 1).all()


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.9, True), (0.9, False), (0.0, False)])
def test_sgd_in_one_pass_is_torchs_plain_sgd_bit_for_bit(momentum: float, nesterov: bool) -> None:
    """Sizes that fill whole vector registers are updated in one pass; others, and other layouts, are not."""
    settings = {"lr": 0.1, "momentum": momentum, "nesterov": nesterov}
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Linear(16, 5)).to(memory_format=torch.channels_last)
    model.append(nn.Linear(64, 32))
    plain = copy.deepcopy(model)
    ours = sgd(model, **settings, weight_decay=0.01)
    theirs = torch.optim.SGD(plain.parameters(), **settings, weight_decay=0.01, foreach=False, fused=False)
    names = {id(p): name for name, p in model.named_parameters()}
    fused = {names[id(p)] for group in ours.param_groups if group["fused"] for p in group["params"]}
    assert fused == {"0.bias", "1.weight", "2.weight", "2.bias"}
    for _ in range(3):
        for own, other in zip(model.parameters(), plain.parameters(), strict=True):
            own.grad = torch.randn(own.shape)
            other.grad = own.grad.clone()
        ours.step()
        theirs.step()
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(own, other)


def test_gradients_with_momentum_and_decay_with_momentum_are_sgd_with_momentum() -> None:
    settings = {"lr": 0.1, "weight_decay": 0.05, "no_decay": ["bias"]}
    model = Mixed()
    usual = copy.deepcopy(model)
    ours, theirs = sgd(model, **settings, decay_momentum=0.9), sgd(usual, **settings, momentum=0.9)
    velocity = {name: torch.zeros_like(p) for name, p in trainable(model).items()}
    for number in range(6):
        if number == 3:  # as after a checkpoint
            state = copy.deepcopy(ours.state_dict())
            ours = sgd(model, **settings, decay_momentum=0.9)
            ours.load_state_dict(state)
        for name, parameter in trainable(usual).items():
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            velocity[name] = 0.9 * velocity[name] + parameter.grad
            model.get_parameter(name).grad = velocity[name].clone()
        ours.step()
        theirs.step()
    for own, other in zip(model.parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(own, other)
    assert (model.frozen == 1).all()


@pytest.mark.parametrize("factory", [adam, adamw])
def test_adam_settings_arrive(factory: Callable) -> None:
    optimizer = factory(nn.Linear(1, 1), lr=0.1, betas=[0.25, 0.5], eps=0.5, weight_decay=0.125)
    for group in optimizer.param_groups:
        found = tuple(group[key] for key in ("lr", "betas", "eps", "weight_decay"))
        assert found == (0.1, (0.25, 0.5), 0.5, 0.125)
    factory(nn.Linear(1, 1), lr=0.1, betas=[0, 0.5])  # an integer, as in betas=[0,0.5]


def test_sign_sgd_decays_and_then_moves_by_signs() -> None:
    """w - lr * weight_decay * w - lr sign(g), in the second step too: it keeps no state."""
    model, gradient = filled(Mixed()), torch.tensor([3.0, -1e-20])
    optimizer = sign_sgd(model, lr=0.5, weight_decay=0.25)
    for expected in ([1.25, 2.25], [0.59375, 2.46875]):
        model.bias.grad = gradient
        optimizer.step()
        assert model.bias.tolist() == expected
    assert not optimizer.state and torch.equal(gradient, torch.tensor([3.0, -1e-20]))


EVERY = (sgd, sign_sgd, adam, adamw)


@pytest.mark.parametrize(
    ("optimizers", "key", "values", "rule"),
    [
        (EVERY, "lr", (-0.1, 0, math.nan, "0.1", None), "be .*"),
        (EVERY, "weight_decay", (-0.1, math.inf, True), "be a finite number >= 0"),
        (EVERY, "no_decay", (["bias", "norm"], "bias", None), "be a list of batch_norm, bias, layer_norm"),
        (EVERY[:1], "momentum", (-0.1, "0.1"), "be a finite number >= 0"),
        (EVERY[:1], "decay_momentum", (-0.1, 1, None), r"be in \[0, 1\)"),
        (EVERY[2:], "eps", (-0.1, math.nan), "be a finite number >= 0"),
        (EVERY[2:], "betas", ((1, 0.9), (0.9,), "ab", None), r"be two numbers in \[0, 1\)"),
        # On the command line, nesterov=no arrives as a string
        (EVERY[:1], "nesterov", ("no", 1, None), "be true, false or release"),
        (EVERY[:1], "nesterov", (True, "release"), r"needs? optimizer\.momentum > 0"),
    ],
)
def test_bad_settings_are_refused(optimizers: tuple, key: str, values: tuple, rule: str) -> None:
    for optimizer, value in product(optimizers, values):
        with pytest.raises(ValueError, match=rf"optimizer\.{key} (must )?{rule}, got"):
            optimizer(nn.Linear(1, 1), **{"lr": 0.1, key: value})


def test_two_momenta_are_refused() -> None:
    with pytest.raises(ValueError, match=r"optimizer\.decay_momentum needs optimizer\.momentum=0, got 0\.5"):
        sgd(nn.Linear(1, 1), lr=0.1, momentum=0.5, decay_momentum=0.9)
