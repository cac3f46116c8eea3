"""Training scripts with ``total_error.local``: the steps of a run, resumed, and what is refused."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from own_script import batch, loss_of, network
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import total_error

H = 3
STEPS, HALF = 9, 5  # HALF is between two synchronisations
TOP_K: dict[str, Any] = {"compressor": "top_k", "density": 0.05}
FOLLOWING: dict[str, Any] = {
    "compressor": "hard_threshold",
    "density": None,
    "threshold": 2.0,
    "follows": "rate",
}
STREAMING: dict[str, Any] = {"steps": 2 * H, "fragments": 2, "delay": 2, "blend": 0.5}


class Script:
    """A user's script: a network with BatchNorm, AdamW and local steps."""

    def __init__(self, model: nn.Module | None = None, **settings: Any) -> None:
        self.model = model or nn.Sequential(network(), nn.BatchNorm1d(32))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.local = total_error.local(self.model, self.optimizer, **({"steps": H} | TOP_K | settings))

    def run(self, last: int, scaler: torch.amp.GradScaler | None = None, factor: float = 1.0) -> Tensor:
        """Weights and buffers of this process after the local step ``last``."""
        while self.local.local_step < last:
            self.optimizer.zero_grad()
            loss = factor * loss_of(self.model, batch(self.local.local_step, dist.get_rank()))
            (loss if scaler is None else scaler.scale(loss)).backward()
            self.local.step(scaler)
            if scaler is not None:
                scaler.update()
        return torch.cat([t.detach().flatten() for t in self.model.state_dict().values()])


def as_in_a_run(
    process: int, processes: int, model: nn.Module, batches: list[Any], *cases: dict[str, Any]
) -> list[dict[str, Any]]:
    """Weights and metrics of scripts with the model and the ``batches`` [local step][worker] of a run."""
    found = []
    for settings in cases:
        own = copy.deepcopy(model)
        if process == 1:  # the first process's weights count
            nn.init.zeros_(next(own.parameters()))
        optimizer = torch.optim.AdamW(own.parameters(), lr=0.003, weight_decay=0.01)
        local = total_error.local(own, optimizer, **({"steps": H} | settings))
        for of_workers in batches:
            inputs, labels = of_workers[process]
            optimizer.zero_grad()
            nn.functional.cross_entropy(own(inputs), labels).backward()
            local.step()
        weights = {name: p.detach() for name, p in local.shared.items()}
        found.append({"weights": weights, "metrics": local.metrics() | local.summary()})
    return found


def all_cases(process: int, processes: int, folder: str) -> dict[str, Any]:
    """The results of the cases below in this process. ``folder`` keeps the checkpoint of the first case."""
    return {
        "resumed": resumed(Path(folder)),
        # saved between the first synchronisation and the step that takes its result over
        "streaming": resumed(Path(folder) / "streaming", H + 1, **STREAMING),
        "following": resumed(Path(folder) / "following", H + 1, **FOLLOWING),
        "scaled": scaled(process),
        "strided": strided(process),
        "refused": refused(process),
    }


def resumed(folder: Path, half: int = HALF, **settings: Any) -> dict[str, Any]:
    """Comparison of a script that was saved and loaded between two synchronisations with a whole one."""
    whole, first = Script(**settings), Script(**settings)
    expected = whole.run(STEPS)
    first.run(half)
    dcp.save({"local": first.local.state_dict()}, checkpoint_id=folder)
    moments = copy.deepcopy(first.optimizer.state_dict())
    second = Script(**settings)
    saved = second.local.empty_state_dict(dist.get_world_size())
    dcp.load({"local": saved}, checkpoint_id=folder)
    second.local.load_state_dict(saved)
    second.optimizer.load_state_dict(moments)
    own = second.local.state_dict()
    residual = first.local.compression.state.residual["0.0.weight"][0].clone()
    return {
        "same": torch.equal(second.run(STEPS), expected),
        "copied": all(torch.equal(own[name], tensor) for name, tensor in saved.items()),
        "known": whole.local.log(None).items() >= second.local.compression.ledger.metrics().items(),
        "state": expected,
        "own": own,
        "residual": residual,
    }


def scaled(process: int) -> dict[str, Any]:
    """Local steps with a GradScaler, then with a loss that overflows in the second process alone."""
    plain, script = Script(), Script()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    same = torch.equal(script.run(H, scaler), plain.run(H))
    script.run(H + 1, scaler, factor=float("inf") if process == 1 else 1.0)
    finite = bool(script.run(2 * H, scaler).isfinite().all())
    return {"same": same, "finite": finite, "scale": scaler.get_scale()}


def strided(process: int) -> dict[str, Tensor]:
    """State of a model with memory orders of its own in each process, and memory around a buffer."""
    torch.manual_seed(process)
    model, around = nn.Conv2d(2, 3, 2), torch.full((2, 4), float(process))
    model.register_buffer("part", around[:, :3])
    if process == 1:
        model.to(memory_format=torch.channels_last)
    total_error.local(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return {**model.state_dict(), "around": around[:, 3]}


def refused(process: int) -> dict[str, str]:
    """Type and text of the errors of calls that must fail, by their names."""
    frozen = network()
    frozen[0].requires_grad_(False)
    thawing = Script(frozen)
    frozen[0].requires_grad_(True)
    freezing = Script()
    freezing.model[0][0].requires_grad_(False)
    broken = Script()
    again = broken.model
    cases: dict[str, Callable[[], object]] = {
        "ddp": lambda: Script(DistributedDataParallel(network())),
        "twice": lambda: Script(again),
        "others": lambda: Script(nn.Linear(2 + process, 2)),
        "thawed": lambda: thawing.run(H),
        "frozen": lambda: freezing.run(H),
        "seeds": lambda: Script(compressor="random_k", seed=process),
        "densities": lambda: Script(density=0.1 * (1 + process)),
        "nan": lambda: broken.run(H, factor=float("nan") if process == 1 else 1.0),
    }
    said = {}
    for name, call in cases.items():
        try:
            call()
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said
