"""Scripts with parameters that are not contiguous, frozen, or not updated after a pass."""

import logging
from contextlib import nullcontext
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import total_error
from trainers.hooks.ddp import CompressionState, compression_hook

STEPS, HALF = 4, 2
METHODS: dict[str, dict[str, Any]] = {"top_k": {"density": 0.1}, "random_k": {"density": 0.1}, "powersgd": {}}


class Strided(nn.Module):
    """Parameters whose memory order is that of their indices, or another one; the gradients are equal."""

    def __init__(self, *, contiguous: bool, unused: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.flat = nn.Conv2d(4, 6, 3)
        self.solid = nn.Conv3d(4, 5, 3)
        self.transposed = nn.Parameter(torch.randn(5, 8))
        self.part = nn.Parameter(torch.randn(6, 7, 3))
        self.unused = nn.Parameter(torch.randn(3, 4), requires_grad=unused)
        if not contiguous:
            self.flat.to(memory_format=torch.channels_last)
            self.solid.to(memory_format=torch.channels_last_3d)
            self.transposed.data = self.transposed.data.t().contiguous().t()
            self.unused.data = self.unused.data.t().contiguous().t()
            self.part.data = self.part.data.repeat(1, 2, 1)[:, :7]  # not dense

    def forward(self, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        pairs = [(p, torch.randn(p.shape, generator=generator)) for p in self.parameters()]
        return sum(((p * c).sum() for p, c in pairs if p is not self.unused), torch.zeros(()))


def gradients(model: DistributedDataParallel, first: int, last: int) -> Tensor:
    """All gradients of some steps, by index."""
    rows = []
    for number in range(first, last):
        model.zero_grad()
        model(10 * number + dist.get_rank()).backward()
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        rows.append(torch.cat([gradient.reshape(-1) for gradient in found]))
    return torch.stack(rows)


def strided(process: int, processes: int) -> dict[str, bool]:
    """By case, whether gradients of strided parameters are those of DDP, or those of contiguous ones."""
    found = {}
    for option, views in product(("find_unused_parameters", "static_graph", "by hand"), (False, True)):
        by_hand = option == "by hand"
        options: dict[str, Any] = {} if by_hand else {option: True}
        plain, model = (
            DistributedDataParallel(
                Strided(contiguous=False, unused=not by_hand), gradient_as_bucket_view=views, **options
            )
            for _ in range(2)
        )
        if by_hand:
            reducer = total_error.build_reducer(total_error.method("none"), 1, total_error.feedback("none"))
            model.register_comm_hook(CompressionState(reducer, model.module), compression_hook)
        else:
            total_error.compress(model, "none")
        found[f"{option} {views}"] = torch.equal(gradients(plain, 0, HALF), gradients(model, 0, HALF))
    for method, settings in METHODS.items():
        models = [
            DistributedDataParallel(Strided(contiguous=flag), find_unused_parameters=True)
            for flag in (True, False)
        ]
        state, other = (total_error.compress(model, method, **settings) for model in models)
        is_same = [torch.equal(*(gradients(model, 0, HALF) for model in models))]
        gradients(models[1], HALF, STEPS)
        other.load_state_dict(state.state_dict())
        is_same.append(torch.equal(*(gradients(model, HALF, STEPS) for model in models)))
        found[method] = all(is_same)
    return found


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(10 * number + dist.get_rank())
    model(torch.randn(4, 8, generator=generator)).square().sum().backward()
    optimizer.step()


def frozen(process: int, processes: int, views: bool) -> dict[str, Any]:
    """A layer that is frozen when it has a residual, and thawed with a new wrapper and state."""
    model = layers()
    ddp_model = DistributedDataParallel(model, find_unused_parameters=True, gradient_as_bucket_view=views)
    state = total_error.compress(ddp_model, "top_k", density=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for number in range(HALF):
        step(ddp_model, optimizer, number)
    model[0].requires_grad_(False)
    optimizer.zero_grad()
    before, residual = model[0].weight.clone(), state.state.residual["0.weight"].clone()
    for number in range(HALF, STEPS):
        step(ddp_model, optimizer, number)
    frozen = total_error.compress(DistributedDataParallel(model), "top_k", density=0.1)
    frozen.load_state_dict(state.state_dict())
    model[0].requires_grad_(True)
    thawed = total_error.compress(DistributedDataParallel(model), "top_k", density=0.1)
    thawed.load_state_dict(frozen.state_dict())
    first, new = state.state.residual, thawed.state.residual
    return {
        "moved": (model[0].weight - before).norm().item(),
        "kept": torch.equal(first["0.weight"], residual) and bool(residual.any()),
        "sent": state.ledger.total_counts.sent.tolist(),
        "carried": sorted(name for name, rows in new.items() if torch.equal(rows, first[name])),
        "begun": sorted(name for name, rows in new.items() if not rows.any()),
        "steps": [thawed.step, thawed.ledger.steps],
    }


def thrown_away(process: int, processes: int, how: str) -> tuple[Tensor, list[str]]:
    """Weights of a discriminator and warnings, with a generator's pass ``how`` after every update."""
    model = layers()
    ddp_model = DistributedDataParallel(model)
    total_error.compress(ddp_model, "top_k", density=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("total_error").handlers = [handler]
    for number in range(STEPS):
        step(ddp_model, optimizer, number)
        if how == "without":
            continue
        with ddp_model.no_sync() if how == "no_sync" else nullcontext():
            ddp_model(torch.ones(4, 8)).sum().backward()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), said


def compressed_twice(process: int, processes: int) -> str:
    """The error of a second ``compress``."""
    ddp_model = DistributedDataParallel(nn.Linear(2, 2))
    total_error.compress(ddp_model, "none")
    try:
        total_error.compress(ddp_model, "top_k", density=0.1)
    except ValueError as error:
        return str(error)
    return ""


def all_cases(process: int, processes: int) -> dict[str, Any]:
    found: dict[str, Any] = {"frozen": [frozen(process, processes, views) for views in (False, True)]}
    found["twice"] = compressed_twice(process, processes)
    ways = ("without", "no_sync", "reduced")
    return found | {"thrown away": {how: thrown_away(process, processes, how) for how in ways}}
