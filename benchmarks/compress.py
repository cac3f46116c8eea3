"""Time and memory of one reduction, compared with lower bounds for every method.

    python benchmarks/compress.py [--scope layer|global] [--methods NAME ...] [--workers 1] [--rounds 7]
    python benchmarks/compress.py --memory [--workers 8]

With ``--residuals cpu`` or ``bf16``, residuals are in this memory between steps. On a CPU ``cpu`` moves
nothing.

Prints per scope and method the milliseconds of one ``reduce()`` with error feedback, all workers in one
process, and of references on the same segments: an in-place add, ``torch.topk(x.abs(), k)`` and the ledger's
``squared_norm``. The results are medians over rounds (``rounds.py``) of normal gradients and residuals of
zero.

With ``--memory``, prints per method the largest resident memory during ``reduce()``, from a fresh
process each, in units of one tensor of n x D.
"""

import argparse
import itertools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from benchmarks.gpu.measuring import resident
from benchmarks.gpu.sizes import threshold_of
from benchmarks.pages import columns, head, row
from benchmarks.rounds import Work, median_ms, ratio, seconds_in_rounds
from compressors.api import Reducer, Segment, Step, elements_of, inputs_of
from compressors.build import PLAIN, build_reducer
from compressors.core.norms import squared_norm
from compressors.encoding.settings import Encoding
from compressors.feedback import ErrorFeedback, Memory, StoredResidual
from contract.cases import configured
from trainers.comm.communicator import Communicator
from trainers.step.layout import SCOPES, WHOLE, Layout

ROOT = Path(__file__).parent.parent
ADD, TOPK, NORM = "in-place add", "torch.topk", "squared_norm"
MEMORY_STEPS = 2


class Case(NamedTuple):
    """One compressor yaml with one choice of its true-or-false settings."""

    name: str
    settings: dict[str, bool]

    def reducer(
        self, density: float, num_parameters: int, wire: Encoding = PLAIN, residuals: str = "device"
    ) -> Reducer:
        """The method with error feedback, and ``residuals`` in this memory if it has any."""
        reducer = build_reducer(self.method(density), num_parameters, ErrorFeedback, encoding=wire)
        is_stored = residuals != "device" and reducer.keeps_residual
        return StoredResidual(reducer, memory=residuals) if is_stored else reducer

    def method(self, density: float) -> Any:
        """The codec or reducer of the yaml; a threshold keeps a fraction ``density`` of normal draws."""
        path = ROOT / "conf" / "compressor" / f"{self.name}.yaml"
        threshold = threshold_of(density)
        begins = {"threshold": threshold, "first_threshold": threshold, "k_high": density}  # if it has it
        return configured(path, {**self.settings, **begins}, density)

    def __str__(self) -> str:
        return ", ".join([self.name, *(f"{key}={value}".lower() for key, value in self.settings.items())])


def cases(methods: Sequence[str] | None = None) -> list[Case]:
    """Every yaml in conf/compressor, or those of ``methods``, with every combination of its flags."""
    found = []
    for path in sorted((ROOT / "conf" / "compressor").glob("*.yaml")):
        if methods and path.stem not in methods:
            continue
        settings = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        flags = [key for key, value in settings.items() if isinstance(value, bool)]
        for choice in itertools.product((True, False), repeat=len(flags)):
            found.append(Case(path.stem, dict(zip(flags, choice, strict=True))))
    return found


def resnet18_layout(scope: str) -> Layout:
    """ResNet-18 for CIFAR-10: 62 parameter tensors, 11,173,962 elements."""
    config = OmegaConf.load(ROOT / "conf" / "model" / "resnet18.yaml")
    model = instantiate(config, input_shape=(3, 32, 32), num_classes=10)
    return Layout(dict(model.named_parameters()), scope)


def gradients(layout: Layout, workers: int, num_elements: int) -> tuple[Tensor, list[Segment]]:
    """A zeroed buffer [W, D] and its segments; only the global scope can have another D."""
    if layout.scope == "layer" or num_elements == layout.num_parameters:
        flat = layout.new_buffer(workers)
        return flat, layout.segments(flat)
    flat = torch.zeros(workers, num_elements)
    ends = [0, *(end * num_elements // layout.num_parameters for end in itertools.accumulate(layout.sizes))]
    shapes = tuple((end - start,) for start, end in itertools.pairwise(ends) if end > start)
    return flat, [Segment(WHOLE, flat, shapes)]


def references(segments: list[Segment], density: float) -> Work:
    """The reference operations, on the same segments."""
    sums = [torch.zeros_like(s.rows, memory_format=torch.contiguous_format) for s in segments]
    layers = [piece for s in segments for piece in s.rows.split(np.diff(s.edges).tolist(), dim=1)]

    def add() -> None:
        for total, segment in zip(sums, segments, strict=True):
            total.add_(segment.rows)

    def topk() -> None:
        for segment in segments:
            for own in segment.rows:
                torch.topk(own.abs(), elements_of(density, own.numel()))

    def norm() -> None:
        for rows in layers:
            squared_norm(rows)

    return {ADD: add, TOPK: topk, NORM: norm}


class Reduction:
    """One method's ``reduce()`` on segments that all methods share."""

    def __init__(self, reducer: Reducer, segments: list[Segment], communicator: Communicator) -> None:
        self.reducer = reducer
        self.segments = segments
        self.communicator = communicator
        communicator.declare_kinds(reducer.kinds)
        self.state = reducer.init(segments)
        self.step = 0
        self.sent: dict[str, np.ndarray] = {}

    def clear_residual(self) -> None:
        """Set the residual to zero, in place: a new one would cost page faults in the next call."""
        if isinstance(self.state, Memory):
            for residual in self.state.residual.values():
                residual.zero_()

    def __call__(self) -> None:
        context = Step(0, self.step)
        reduced, self.state = self.reducer.reduce(
            inputs_of(self.segments), self.state, context, self.communicator
        )
        self.sent = {name: own.sent for name, own in reduced.compressed.items()}
        self.step += 1

    @property
    def elements_sent(self) -> float:
        """Elements sent in the last step, mean over workers."""
        return sum(int(sent.sum()) for sent in self.sent.values()) / len(self.communicator.local_workers)


def measure(scope: str, options: argparse.Namespace) -> None:
    """Print one table."""
    density = options.density
    flat, segments = gradients(resnet18_layout(scope), options.workers, options.elements)
    drawn = torch.randn(flat.shape, generator=torch.Generator().manual_seed(0))
    communicator = Communicator(options.workers)
    reductions = {
        str(case): Reduction(
            case.reducer(density, flat.shape[1], residuals=options.residuals), segments, communicator
        )
        for case in cases(options.methods)
    }

    def prepare(name: str) -> None:
        flat.copy_(drawn)  # a lossless method may write the mean into the gradients
        if name in reductions:
            reductions[name].clear_residual()

    found = seconds_in_rounds({**references(segments, density), **reductions}, options.rounds, prepare)
    print(f"\n{len(segments)} segment(s), scope {scope}, {flat.shape[1]:,} fp32 elements per worker\n")
    print(columns("operation", "ms", "range", "/ add", "/ topk", "elements sent"))
    for name, times in found.items():
        span = f"{1000 * min(times):.1f} to {1000 * max(times):.1f}"
        ratios = [f"{ratio(times, found[other]):.2f}" for other in (ADD, TOPK)]
        sent = f"{reductions[name].elements_sent:,.0f}" if name in reductions else ""
        print(row(name, f"{median_ms(times):.1f}", span, *ratios, sent))


def memory_of(case: Case, scope: str, options: argparse.Namespace) -> dict[str, float]:
    """Resident bytes of this process minus those before the gradients, and the bytes of tensors."""
    torch.set_num_threads(options.threads)
    communicator = Communicator(options.workers)
    small = [Segment(WHOLE, torch.ones(options.workers, 1000), ((1000,),))]
    Reduction(case.reducer(options.density, 1000), small, communicator)()  # loads all modules
    layout = resnet18_layout(scope)  # keeps the model, so that its memory is not reused
    before = resident("VmRSS")
    flat, segments = gradients(layout, options.workers, options.elements)
    flat.normal_()
    with_gradients = resident("VmRSS") - before
    reducer = case.reducer(options.density, flat.shape[1], residuals=options.residuals)
    state = reducer.init(segments)
    reduced, peak = None, 0
    for step in range(MEMORY_STEPS):  # keeps the last step's mean, like ``.grad`` in training
        flat.normal_()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step), communicator)
        peak = max(peak, resident("VmHWM") - before)
    assert reduced is not None
    tensors = [flat] + (list(state.residual.values()) if isinstance(state, Memory) else [])
    return {
        "gradients": with_gradients,
        "peak": peak,
        "known": sum(t.nbytes for t in tensors),
        "vector": flat[0].nbytes,
    }


def measure_memory(scope: str, options: argparse.Namespace) -> None:
    """Print one table."""
    print(f"\nscope {scope}: n = {options.workers} workers in one process, resident memory above the start\n")
    known = "gradients + residuals [n x D]"
    print(columns("method", "gradients [n x D]", "peak [n x D]", known, "the rest [D]"))
    for case in cases(options.methods):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh_process:
            found = fresh_process.submit(memory_of, case, scope, options).result()
        whole = options.workers * found["vector"]
        shares = [f"{found[name] / whole:.2f}" for name in ("gradients", "peak", "known")]
        rest = (found["peak"] - found["known"]) / found["vector"]
        print(row(case, *shares, f"{rest:.2f}"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scope", choices=SCOPES, help="default: both")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--elements", type=int, default=11_173_962, help="D of the global scope")
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--workers", type=int, help="W, in one process; default 1, with --memory 8")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--residuals", choices=("device", "cpu", "bf16"), default="device")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    options.workers = options.workers or (8 if options.memory else 1)
    torch.set_num_threads(options.threads)
    print(head("Reductions", "python benchmarks/compress.py"))
    for scope in [options.scope] if options.scope else reversed(SCOPES):
        (measure_memory if options.memory else measure)(scope, options)


if __name__ == "__main__":
    main()
