"""Training steps of ResNet-18 with and without compression: time, memory, and reduced precision.

CIFAR's shapes, 128 images per worker, the trainer's step without its files and evaluation. The batches are
random tensors on the device.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.gpu.measuring import Options, Record, peak_bytes, synchronize
from compressors.api import Codec
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.kernels import choice
from compressors.none import NoCompression
from compressors.top_k import TopK
from data.classification import Classification, LabelledBatch
from models.resnet import resnet18
from trainers.comm.communicator import Communicator
from trainers.optimizer import sgd
from trainers.step.explicit import ExplicitStep, sees_faults
from trainers.step.forward import in_precision, require_bf16
from trainers.step.gradients import WorkerGradients
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

DENSITY = 0.001
METHODS: dict[str, Callable[[], Codec]] = {
    "none": NoCompression,
    "top_k 0.1 %": lambda: TopK(density=DENSITY),
    "hard_threshold, the rule at 0.1 %": lambda: HardThreshold(density=DENSITY),
}
RATE = 0.01


class Setting(NamedTuple):
    """Settings of a step."""

    method: str
    scope: str = "layer"
    workers: int = 1
    precision: str = "fp32"
    channels_last: bool = False
    compiled: bool = False

    @property
    def of_model(self) -> str:
        """Settings of the forward and backward passes."""
        found = [self.precision]
        if self.channels_last:
            found.append("channels_last")
        if self.compiled:
            found.append("torch.compile")
        return ", ".join(found)


class Training:
    """A model with everything for a step. A call takes a step and records the milliseconds of every part."""

    def __init__(self, options: Options, setting: Setting) -> None:
        torch.manual_seed(0)
        self.device = options.device
        self.model, shape, size = _network(options)
        self.model.to(self.device)
        if setting.channels_last:
            self.model.to(memory_format=torch.channels_last)
        layout = Layout(dict(self.model.named_parameters()), setting.scope)
        self.num_parameters = layout.num_parameters
        if setting.compiled:
            # A CPU's compiler takes minutes, so a quick run uses the graph without compilation.
            self.model.compile(backend="aot_eager" if options.quick else "inductor")
        if setting.precision == "bf16":
            require_bf16(self.device)
        loss = in_precision(Classification().loss, self.device, setting.precision)
        communicator = Communicator(setting.workers, device=self.device)
        reducer = build_reducer(METHODS[setting.method](), layout.num_parameters, ErrorFeedback)
        communicator.declare_kinds(reducer.kinds)
        self.ledger = Ledger(layout, communicator, reducer)
        checks = not sees_faults(self.ledger)
        gradients = WorkerGradients(self.model, loss, layout, communicator, seed=0, checks=checks)
        self.step = ExplicitStep(gradients, reducer, layout, communicator, self.ledger, seed=0)
        self.optimizer = sgd(self.model, lr=RATE, momentum=0.9, weight_decay=1e-4)
        self.batches = [_batch(shape, size, self.device) for _ in range(setting.workers)]
        self.number = 0
        self.loss = float("nan")
        self.parts: dict[str, list[float]] = {
            name: [] for name in ("step", "gradient", "reduce", "ledger", "update")
        }

    def __call__(self) -> None:
        synchronize(self.device)
        started = time.perf_counter()
        losses, times, _ = self.step.run(self.batches, self.number, RATE)
        self.ledger.close_step()
        synchronize(self.device)
        reduced = time.perf_counter()
        self.optimizer.step()
        synchronize(self.device)
        ended = time.perf_counter()
        self.number += 1
        assert losses is not None
        self.loss = losses.mean().item()
        gradient, reduce = times.gradient_seconds, times.reduce_seconds
        seconds = (
            ended - started,
            gradient,
            reduce,
            reduced - started - gradient - reduce,
            ended - reduced,
        )
        for own, second in zip(self.parts.values(), seconds, strict=True):
            own.append(1e3 * second)

    def measured(self, options: Options, seconds: float) -> dict[str, float]:
        """Medians in milliseconds of the steps within ``seconds``, after four steps that are not timed.

        ``loss`` is that of the fourth step, so all settings report the same step.
        """
        for _ in range(4):
            self()
        first, loss = self.parts["step"][0], self.loss
        for own in self.parts.values():
            own.clear()
        ends = time.monotonic() + seconds
        while not self.parts["step"] or (len(self.parts["step"]) < 30 and time.monotonic() < ends):
            self()
        medians = {f"{name}_ms": statistics.median(own) for name, own in self.parts.items()}
        return medians | {"steps": len(self.parts["step"]), "first_step_ms": first, "loss": loss}


class _Small(nn.Module):
    """A separate class, because torch.compile does not compile the forward of torch's containers."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Linear(8, 10))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def _network(options: Options) -> tuple[nn.Module, tuple[int, ...], int]:
    """The model, the shape of a sample, and the number of samples per worker and step."""
    if options.quick:
        return _Small(), (3, 8, 8), 4
    return resnet18(input_shape=(3, 32, 32), num_classes=10), (3, 32, 32), 128


def _batch(shape: tuple[int, ...], size: int, device: torch.device) -> LabelledBatch:
    return LabelledBatch(torch.randn(size, *shape, device=device), torch.randint(10, (size,), device=device))


def _plain(options: Options, workers: int) -> Callable[[], None]:
    """A plain torch loop: forward, backward, update, for as many batches."""
    torch.manual_seed(0)
    model, shape, size = _network(options)
    model.to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    batches = [_batch(shape, size, options.device) for _ in range(workers)]

    def step() -> None:
        optimizer.zero_grad()
        for batch in batches:
            nn.functional.cross_entropy(model(batch.inputs), batch.targets).backward()
        optimizer.step()
        synchronize(options.device)

    return step


def _forget(options: Options) -> None:
    """Free the memory of the last training, so that all begin alike."""
    if options.device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def measure(options: Options, record: Record) -> None:
    """Measure steps of one and of eight workers, with the times of compression."""
    record("backend", compression_by=choice.describe(options.device))
    many = 2 if options.quick else 8
    seconds = 0.05 if options.quick else 1.5
    for workers in (1, many):
        step = _plain(options, workers)
        taken = []
        for _ in range(3 if options.quick else 14):
            started = time.perf_counter()
            step()
            taken.append(1e3 * (time.perf_counter() - started))
        plain = statistics.median(taken[2:])
        record("steps", method="torch's own loop", workers=workers, step_ms=plain)
        del step
        for row, training in _trainings(options, workers):
            found = training.measured(options, seconds)
            spent = found["reduce_ms"] + found["ledger_ms"]
            share = {"share_of_step": spent / found["step_ms"], "times_torchs_loop": found["step_ms"] / plain}
            record("steps", **row, **found, **share)
            del training


def _trainings(options: Options, workers: int) -> Iterator[tuple[dict[str, object], Training]]:
    """Every method in both scopes, with the row's name; one training is freed before the next one begins."""
    for scope in ("layer", "global"):
        for method in METHODS:
            _forget(options)
            row = {"method": method, "scope": scope, "workers": workers}
            yield row, Training(options, Setting(method, scope, workers))


def measure_memory(options: Options, record: Record) -> None:
    """Measure the peak memory of a step, and the part of gradients and residuals."""
    many = 2 if options.quick else 8
    for workers in (1, many):
        _forget(options)
        step = _plain(options, workers)
        step()
        record("memory", method="torch's own loop", workers=workers, peak_mib=_mib(step, options))
        del step
        for row, training in _trainings(options, workers):
            training()
            kept = 4 * training.num_parameters * workers / 2**20
            residuals = kept if training.step.reducer.keeps_residual else 0.0
            peak = _mib(training, options)
            record("memory", **row, peak_mib=peak, gradients_mib=kept, residuals_mib=residuals)
            del training


def _mib(step: Callable[[], None], options: Options) -> float:
    return peak_bytes(step, options.device) / 2**20


def measure_precision(options: Options, record: Record) -> None:
    """Measure steps of one worker with a compressor, for every precision and mode of the model."""
    from torch import _dynamo  # the import takes seconds

    method = "hard_threshold, the rule at 0.1 %"
    fp32 = None
    for setting in (
        Setting(method),
        Setting(method, channels_last=True),
        Setting(method, precision="bf16"),
        Setting(method, precision="bf16", channels_last=True),
        Setting(method, compiled=True),
        Setting(method, precision="bf16", channels_last=True, compiled=True),
    ):
        _forget(options)
        _dynamo.reset()
        _dynamo.utils.counters.clear()
        row: dict[str, object] = {"method": method, "model": setting.of_model}
        try:
            training = Training(options, setting)
            found = training.measured(options, 0.05 if options.quick else 1.5)
        except Exception as error:  # for example of a compiler; the other modes are still measured
            record("precision", **row, failed=(str(error).splitlines() or [type(error).__name__])[0])
            continue
        fp32 = fp32 or found["step_ms"]
        if setting.compiled:
            counters = _dynamo.utils.counters
            row["graphs"] = counters["stats"]["unique_graphs"]
            row["graph_breaks"] = sum(counters["graph_break"].values())
            if row["graphs"] == 0:
                record("precision", **row, failed="torch.compile compiled nothing")
                continue
        row |= {
            name: found[name] for name in ("step_ms", "gradient_ms", "reduce_ms", "first_step_ms", "loss")
        }
        record("precision", **row, times_fp32=found["step_ms"] / fp32)
        del training
