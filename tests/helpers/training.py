"""A few training steps of a small network with BatchNorm, dropout and buffers, in any number of processes."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from methods import FEEDBACKS, cases
from torch import Tensor, nn

from compressors.api import Traits
from compressors.build import PLAIN, build_reducer
from compressors.encoding.settings import Encoding
from compressors.none import NoCompression
from trainers.comm.communicator import Communicator
from trainers.comm.nodes import nodes_of
from trainers.step.explicit import ExplicitStep
from trainers.step.gradients import WorkerGradients
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger
from trainers.step.overlapped import OverlappedStep

WORKERS, BATCH, STEPS = 4, 8, 4
MICRO_BATCH = {"none": None, "gradient": None, "step": 4}  # by feedback, to cover both cases


class Images(NamedTuple):
    """A batch of images."""

    images: Tensor
    labels: Tensor


class SmallNet(nn.Module):
    """A network with BatchNorm, dropout, a layer of one element, and a buffer that the forward pass reads."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(0.3)
        self.linear = nn.Linear(64, 10)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("running_scale", torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.norm(self.convolution(images)).relu()[..., :4, :4]
        if self.training:
            self.running_scale.mul_(0.9).add_(0.1 * hidden.detach().mean())
        return self.linear(self.dropout(hidden.flatten(1))) * self.scale * (1 + self.running_scale)


def settings() -> list[tuple[str, str, str]]:
    """All combinations of compressor, scope and feedback."""
    return [
        (str(case), scope, feedback)
        for case in cases()
        for scope in ("layer", "global")
        for feedback in FEEDBACKS
    ]


def flat_of(workers: WorkerGradients) -> Tensor:
    """The local workers' gradients, [W, D]."""
    return torch.cat([segment.rows for segment in workers.segments], 1)


def loss_of(model: nn.Module, batch: Images, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Cross entropy, plus the squared distance to the mean outputs of the worker's previous batch."""
    outputs = model(batch.images)
    pull = 0.0 if memory is None else 0.1 * (outputs.mean(0) - memory).square().sum()
    return F.cross_entropy(outputs, batch.labels) + pull, outputs.detach().mean(0)


def batch_of(step: int, worker: int) -> Images:
    stream = torch.Generator().manual_seed(1000 * step + worker)
    images = torch.randn(BATCH, 1, 8, 8, generator=stream)
    return Images(images, torch.randint(10, (BATCH,), generator=stream))


def train(
    name: str,
    scope: str,
    feedback: str,
    process: int = 0,
    processes: int = 1,
    wire: Encoding = PLAIN,
    reduction: str = "worker_order",
    num_nodes: int | None = None,
    workers: int = WORKERS,
) -> dict[str, Any]:
    """Weights, losses and ledger after some steps of SGD, dense ones in buckets as in a training."""
    torch.manual_seed(0)
    model = SmallNet()
    layout = Layout(dict(model.named_parameters()), scope)
    communicator = Communicator(workers, rank=process, world_size=processes, reduction=reduction)
    case = next(case for case in cases() if str(case) == name)
    threshold = {"gradient": 0.05, "none": 0.05, "step": 0.005}[feedback]
    method = case.method(threshold=threshold)
    reducer = build_reducer(method, layout.num_parameters, FEEDBACKS[feedback], wire)
    nodes = None if num_nodes is None else nodes_of(communicator, num_nodes)
    senders = communicator if nodes is None else nodes.across
    senders.declare_kinds(reducer.kinds)
    ledger = Ledger(layout, senders, reducer, nodes)
    pieces = {"seed": 7, "micro_batch_size": MICRO_BATCH[feedback]}
    step: ExplicitStep | OverlappedStep
    if isinstance(reducer, NoCompression) and scope == "layer" and processes == workers and nodes is None:
        several = {"bucket_megabytes": 1e-3}  # several buckets; the network's parameters have 3 kB
        step = OverlappedStep(model, loss_of, reducer, communicator, ledger, **pieces, **several)
    else:
        gradients = WorkerGradients(model, loss_of, layout, communicator, **pieces)
        step = ExplicitStep(gradients, reducer, layout, senders, ledger, seed=7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    losses, metrics = [], []
    for number in range(STEPS):
        batches = [batch_of(number, worker) for worker in communicator.local_workers]
        found = step.run(batches, number, learning_rate=0.1, measure=number % 2 == 0, epoch=float(number))
        ledger.close_step()
        loss = found.losses
        optimizer.step()
        losses += communicator.collect(loss.double()).tolist()
        metrics.append(ledger.metrics())
    communicator.broadcast(list(model.buffers()))
    return {
        "parameters": torch.cat([p.detach().flatten() for p in model.parameters()]),
        "buffers": torch.cat([b.flatten().double() for b in model.buffers()]),
        "losses": losses,
        "metrics": metrics,
        "layers": ledger.layers(),
    }


def train_all(
    process: int,
    processes: int,
    names: list[str],
    reduction: str = "worker_order",
    num_nodes: int | None = None,
) -> dict[str, dict[str, Any]]:
    """``train`` for settings with these names: method/scope/feedback, or with /indices/values in addition."""
    found = {}
    for name in names:
        method, scope, feedback, *codes = name.split("/")
        wire = Encoding(**dict(zip(("indices", "values"), codes, strict=False)))
        found[name] = train(method, scope, feedback, process, processes, wire, reduction, num_nodes)
    return found


def train_in_turn(process: int, processes: int, *groups: tuple) -> list[dict[str, dict[str, Any]]]:
    """``train_all`` with the arguments of each group: the processes start and load kernels once."""
    return [train_all(process, processes, *group) for group in groups]


def train_many(process: int, processes: int) -> dict[str, Any]:
    """Dense training of eight workers: torch adds more than four rows of a layer in an order of its own."""
    return train("none", "layer", "none", process, processes, workers=8)


def is_reduced(name: str) -> bool:
    """Whether the mean of a case is computed by an all-reduce."""
    return _traits_of(name).linear


def ignores_values(name: str) -> bool:
    """Whether the selection of entries does not depend on values, so that rounding cannot change it."""
    return _traits_of(name).drawn or _traits_of(name).lossless


def _traits_of(name: str) -> Traits:
    return next(case for case in cases() if str(case) == name).method().traits


WIRES = {
    "hard_threshold": [("auto", "fp32"), ("rice", "int8"), ("plain", "bf16"), ("bitmap", "fp16")],
    "top_k": [("auto", "int4"), ("bitmap", "fp32")],
    "random_k": [("auto", "fp32"), ("auto", "int2")],
    "random_block": [("auto", "bf16"), ("auto", "int8")],
}


def coded_settings() -> list[tuple[str, str, str, str, str]]:
    """(compressor, scope, feedback, indices, values) of all tested encodings."""
    return [
        (name, scope, feedback, *wire)
        for name, wires in WIRES.items()
        for scope in ("layer", "global")
        for feedback in ("gradient", "none")
        for wire in wires
    ]


def quick_coded_settings() -> list[tuple[str, str, str, str, str]]:
    """Half of ``coded_settings``: every encoding in both scopes, with alternating feedback."""
    return [
        (name, scope, ("gradient", "none")[(number + (scope == "global")) % 2], *wire)
        for name, wires in WIRES.items()
        for scope in ("layer", "global")
        for number, wire in enumerate(wires)
    ]
