"""Trainings under FSDP2 with a compressed reduce-scatter, and the same ones in one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sharded import loss_of, network
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

import total_error
from compressors.api import Segment, Step, inputs_of
from trainers.comm.communicator import Communicator
from trainers.hooks.compress import chosen_reducer
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

STEPS, HALF = 6, 3
METHODS: dict[str, dict[str, Any]] = {
    "none": {},
    "hard_threshold": {"threshold": 0.02},
    "top_k": {"density": 0.2},
    "random_k": {"density": 0.3},
    "random_block": {"density": 0.3, "shared_coordinates": False},
    "sidco": {"density": 0.2},
    "clt_k": {"density": 0.2},
    "chunk_top_k": {"k": 3, "chunk": 4},
    "strom": {"threshold": 0.02},
    "qsgd": {},
    "ef_sign": {},
    "natural": {},
    "powersgd": {"rank": 1},
}
IN_PARTS = ("none", "strom", "qsgd", "ef_sign", "natural")  # dense, or several values per entry of a field
Found = dict[str, Any]


class Script:
    """A user's script; ``replicas`` of several processes each, or one of all."""

    def __init__(
        self,
        method: str = "top_k",
        *,
        replicas: int = 1,
        policy: MixedPrecisionPolicy | None = None,
        compressed: bool = True,
        scaler: Any = None,
        **settings: Any,
    ) -> None:
        self.model: Any = network()
        shards = dist.get_world_size() // replicas
        shape, names = (
            ((replicas, shards), ("replicate", "shard")) if replicas > 1 else ((shards,), ("shard",))
        )
        options = {"mesh": init_device_mesh("cpu", shape, mesh_dim_names=names)}
        options |= {"mp_policy": policy} if policy else {}
        for module in (self.model.second, self.model.last, self.model):
            fully_shard(module, **options)
        if compressed:
            self.state = total_error.compress_fsdp(
                self.model, method, seed=3, scaler=scaler, **(METHODS[method] | settings)
            )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scaler = scaler

    def step(self, number: int, factor: float = 1.0, batches: int = 1) -> None:
        self.optimizer.zero_grad()
        for place in range(batches):
            self.model.set_requires_gradient_sync(place == batches - 1)
            loss = factor * loss_of(self.model, batches * number + place, dist.get_rank())
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.scaler is None:
            self.optimizer.step()
            return
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def run(self, first: int, last: int, batches: int = 1) -> Tensor:
        for number in range(first, last):
            self.step(number, batches=batches)
        return self.weights()

    def weights(self) -> Tensor:
        return torch.cat([p.full_tensor().detach().flatten() for p in self.model.parameters()])


def alone(method: str, processes: int, replicas: int = 1, batches: int = 1) -> tuple[Tensor, list[Found]]:
    """Weights of the same training in one process, without FSDP2, and the metrics of each replica.

    Methods that FSDP2 applies to parts of parameters are given these parts as parameters.
    """
    model = network()
    layout = Layout(dict(model.named_parameters()), "layer")
    reducer, _ = chosen_reducer(method, METHODS[method], None, layout.num_parameters)
    n = processes // replicas
    communicators = [Communicator(n) for _ in range(replicas)]
    if reducer.traits.seeded:  # workers draw by their number among all
        for number, communicator in enumerate(communicators):
            communicator.local_workers = range(number * n, (number + 1) * n)
    segments = [segments_of(method, model, n) for _ in range(replicas)]
    states = [reducer.init(own) for own in segments]
    shapes = {s.name: nn.Parameter(torch.zeros(s.shapes[0])) for s in segments[0]}
    ledgers = []
    for communicator in communicators:
        communicator.declare_kinds(reducer.kinds)
        ledgers.append(Ledger(Layout(shapes, "layer"), communicator, reducer))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        means = []
        for replica in range(replicas):
            for own in segments[replica]:
                own.rows.zero_()
            for worker in range(n):
                for batch in range(batches * step, batches * (step + 1)):
                    optimizer.zero_grad()
                    loss_of(model, batch, replica * n + worker).backward()
                    rows = torch.cat([p.grad.flatten() for p in model.parameters()])
                    sizes = [own.rows.shape[1] for own in segments[replica]]
                    for own, row in zip(segments[replica], rows.split(sizes), strict=True):
                        own.rows[worker] += row
            given = inputs_of([own._replace(rows=own.rows.clone()) for own in segments[replica]])
            at = Step(3, step)
            reduced, states[replica] = reducer.reduce(given, states[replica], at, communicators[replica])
            ledgers[replica].record(reduced)
            ledgers[replica].close_step()
            means.append(torch.cat([reduced.mean[own.name] for own in given]))
        mean = means[0] if replicas == 1 else sum(means) / replicas
        for parameter, gradient in zip(model.parameters(), layout.views(mean), strict=True):
            parameter.grad = gradient
        optimizer.step()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    return weights, [ledger.metrics() for ledger in ledgers]


def segments_of(method: str, model: nn.Module, n: int) -> list[Segment]:
    """Zeros [n, d] for each parameter, or for each owner's part of it."""
    found = []
    for name, parameter in model.named_parameters():
        if method not in IN_PARTS:
            found.append(Segment(name, torch.zeros(n, parameter.numel()), (tuple(parameter.shape),)))
            continue
        for owner, part in enumerate(parameter.chunk(n)):
            found.append(Segment(f"{name}/{owner}", torch.zeros(n, part.numel()), (tuple(part.shape),)))
    return found


def with_fsdp(process: int, processes: int, replicas: int, *methods: str) -> dict[str, Found]:
    """Weights, metrics and the messages' bytes of trainings under FSDP2, by method."""
    found = {}
    for method in methods:
        script, messages = Script(method, replicas=replicas), []
        usual = dist.batch_isend_irecv

        def counted(operations: list[dist.P2POp], usual: Any = usual, messages: list[int] = messages) -> Any:
            messages += [own.tensor.nbytes for own in operations if own.op is dist.isend]
            return usual(operations)

        with patch.object(dist, "batch_isend_irecv", counted):
            weights = script.run(0, STEPS)
        link = script.state.ledger.total_counts.link_bytes[0].tolist()
        metrics = script.state.metrics()
        own = sorted({name.split("/")[1] for name in script.state.state_dict() if name.startswith("worker/")})
        found[method] = {"weights": weights, "metrics": metrics, "saved_as": own}
        found[method] |= {"messages": sum(messages), "link": link}
    return found


def mean_in_half_precision(process: int, processes: int) -> list[tuple[Tensor, Tensor]]:
    """Gradients with ``reduce_dtype=bfloat16``, and the rounded fp32 means of rounded gradients."""
    script = Script("none", policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16))
    loss_of(script.model, 0, process).backward()
    rounded = []
    for worker in range(processes):
        model = network()
        loss_of(model, 0, worker).backward()
        rounded.append([parameter.grad.bfloat16().float() for parameter in model.parameters()])
    means = [(sum(of_workers) / processes).bfloat16().float() for of_workers in zip(*rounded, strict=True)]
    found = [parameter.grad.full_tensor() for parameter in script.model.parameters()]
    return list(zip(found, means, strict=True))


def all_cases(process: int, processes: int, folder: str) -> Found:
    """The results of the cases below in this process. ``folder`` keeps checkpoints."""
    found = {
        "resumed": {m: resumed(m, Path(folder) / m) for m in ("top_k", "ef_sign", "random_k", "powersgd")}
    }
    found |= {
        "accumulated": Script().run(0, STEPS, batches=2),
        "scaled": scaled(),
        "overflow": overflowed(process),
        "reentrant": reentrant(),
    }
    return found | {"lossless": lossless(), "refused": refusals(process), "printed": repr(Script().state)}


def resumed(method: str, folder: Path) -> Found:
    """Comparison of a script that was saved and loaded in the middle with an uninterrupted one."""
    whole, first, second = (Script(method) for _ in range(3))
    expected = whole.run(0, STEPS)
    first.run(0, HALF)
    weights, moments = get_state_dict(first.model, first.optimizer)
    everything = {"model": weights, "optimizer": moments, "compression": first.state.state_dict()}
    dcp.save(everything, checkpoint_id=folder)
    continue_from(folder, second, dist.get_world_size())
    same = torch.equal(second.run(HALF, STEPS), expected)
    known = second.state.ledger.metrics() == whole.state.ledger.metrics()
    return {"same": same and known, "own": first.state.state_dict()}


def continue_from(folder: Path, script: Script, saved_workers: int) -> None:
    weights, moments = get_state_dict(script.model, script.optimizer)
    saved = script.state.empty_state_dict(saved_workers)
    dcp.load({"model": weights, "optimizer": moments, "compression": saved}, checkpoint_id=folder)
    set_state_dict(script.model, script.optimizer, model_state_dict=weights, optim_state_dict=moments)
    script.state.load_state_dict(saved)


def with_other_processes(process: int, processes: int, folder: str, saved_workers: int) -> dict[str, Found]:
    """Own state after loading what ``saved_workers`` have saved, and the next step's number, by method."""
    found = {}
    for method in ("top_k", "ef_sign"):
        script = Script(method)
        continue_from(Path(folder) / method, script, saved_workers)
        own = script.state.state_dict()
        script.step(HALF)
        found[method] = {"own": own, "step": script.state.step}
    return found


def scaled() -> bool:
    """Whether a GradScaler leaves a training with the hard threshold as it is."""
    script = Script("hard_threshold", scaler=torch.amp.GradScaler("cpu", init_scale=65536.0))
    plain = Script("hard_threshold")
    same = torch.equal(script.run(0, HALF), plain.run(0, HALF))
    return same and script.state.ledger.metrics() == plain.state.ledger.metrics()


def reentrant() -> bool:
    """Whether an activation checkpoint with a backward pass of its own leaves a training as it is."""
    script, plain = Script(), Script()
    model = script.model

    def forward(x: Tensor) -> Tensor:
        second = model.second(torch.relu(model.first(x)))
        return checkpoint(model.last, model.scale * torch.relu(second), use_reentrant=True)

    model.forward = forward
    same = torch.equal(script.run(0, HALF), plain.run(0, HALF))
    return same and script.state.ledger.metrics() == plain.state.ledger.metrics()


def overflowed(process: int) -> Found:
    """A step with an infinite gradient of the first module alone, on the last worker; then a finite one.

    FSDP2 reduces this module last.
    """
    script, other = (Script(scaler=torch.amp.GradScaler("cpu", init_scale=1024.0)) for _ in range(2))
    expected = other.run(0, 2)
    before, state = script.run(0, 1).clone(), script.state.state_dict()
    factor = torch.inf if process == 1 else 1.0

    def spoil(module: nn.Module, inputs: object, output: Tensor) -> None:
        output.register_hook(lambda gradient: gradient * factor)

    hook = script.model.first.register_forward_hook(spoil)
    script.step(1)
    hook.remove()
    kept, after = torch.equal(script.weights(), before), script.state.state_dict()
    changed = sorted(name for name, tensor in state.items() if not torch.equal(tensor, after[name]))
    scale = script.scaler.get_scale()
    same = torch.equal(script.run(1, 2), expected)
    bytes_of = [s.state.ledger.metrics()["comm/bytes_sent_total"] for s in (script, other)]
    return {"kept": kept, "changed": changed, "scale": scale, "same": same, "bytes": bytes_of}


def lossless() -> list[bool]:
    """Whether ``none`` has the bits of FSDP2's own reduce-scatter, with policies of mixed precision."""
    halved = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return [
        torch.equal(*(Script("none", policy=policy, compressed=c).run(0, STEPS) for c in (True, False)))
        for policy in (None, halved, MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    ]


def refusals(process: int) -> dict[str, str]:
    """The error messages of calls, or of backward passes, that must fail."""
    said = {}

    def refused(
        case: str, method: str = "top_k", prepare: Callable[[Any], object] | None = None, **more: Any
    ) -> None:
        model = more.pop("model", None) or network()
        settings = more.pop("settings", {"density": 0.2})
        later: Callable[[Any], object] = more.pop("later", lambda model: None)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        try:
            if more.pop("sharded", True):
                fully_shard(model, mesh=mesh, **more.pop("options", {}))
            if prepare is not None:
                prepare(model)
            state = total_error.compress_fsdp(model, method, **settings, **more)
            later(model)
            loss_of(model, 0, process).backward()
            said[case] = f"nothing after {state.step} steps"
        except ValueError as error:
            said[case] = str(error)

    refused("plain", sharded=False)
    refused("twice", prepare=lambda model: total_error.compress_fsdp(model, "none"))
    refused("hook", prepare=lambda model: total_error.compress(model, "none"))
    refused("feedback", feedback="ef21")
    refused("weights", "visible", settings={})
    refused("unused", model=network(unused=True))
    refused("float16", options={"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.float16)})
    refused("factor", prepare=lambda model: model.set_gradient_divide_factor(3.0))
    refused("meta", model=network().to("meta"))
    for case, together in {"thawed": False, "thawed in part": True}.items():
        frozen = network()
        frozen.first.requires_grad_(False)
        if not together:
            fully_shard(frozen.first, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        refused(case, model=frozen, later=lambda model: model.first.requires_grad_(True))
    return said
