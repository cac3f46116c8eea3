"""Time and memory of one reduction, compared with lower bounds for every method.

    python benchmarks/compress.py [--scope layer|global] [--workers 1] [--repeats 7] [--threads 1] [--no-job]
    python benchmarks/compress.py --memory [--workers 8]

Prints per scope and method the milliseconds of one ``reduce()`` with error feedback, all workers in one
process, and of references on the same segments: an in-place add, ``torch.topk(x.abs(), k)``, the ledger's
``squared_norm`` and, for one worker, the public implementations of ``benchmarks/peers.py``. Quantisers have
a second line, "packing": rounding, packing and subtraction alone, without feedback and mean. Times are CPU
times of the process and its threads. The results are medians over rounds. Each round draws new normal
gradients, sets the residuals to zero and runs everything once in a new order, so a drift of the machine
affects all equally.
Ratios are medians of the rounds' ratios; "x public" is the ratio to a public implementation of the method.
Then it compares gradient seconds and reduce seconds of the default job, ``run.py`` with all defaults, unless
``--no-job`` is given.

With ``--memory``, prints per method the largest resident memory during ``reduce()``, from a fresh
process each, in units of one tensor of n x D.
"""

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from compressors.api import Codec, Reducer, Segment, Step, elements_of, inputs_of
from compressors.build import PLAIN, build_reducer
from compressors.core.norms import squared_norm
from compressors.encoding.settings import Encoding
from compressors.feedback import ErrorFeedback, Memory
from compressors.kernels.choice import backend_of
from compressors.kernels.reference import step_of
from contract.cases import configured
from trainers.comm.communicator import Communicator
from trainers.step.layout import SCOPES, WHOLE, Layout

ROOT = Path(__file__).parent.parent
ADD, TOPK, NORM = "in-place add", "torch.topk", "squared_norm"
JOB_STEPS, JOB_WARMUP = 12, 3
MEMORY_STEPS = 2
QUANTISERS = ("ef_sign", "one_bit", "qsgd", "natural", "terngrad")  # one codec each, with a compiled loop


class Case(NamedTuple):
    """One compressor yaml with one choice of its true-or-false settings."""

    name: str
    settings: dict[str, bool]

    def reducer(self, density: float, num_parameters: int, wire: Encoding = PLAIN) -> Reducer:
        """The method with error feedback."""
        return build_reducer(self.method(density), num_parameters, ErrorFeedback, encoding=wire)

    def method(self, density: float) -> Any:
        """The codec or reducer of the yaml; a threshold keeps a fraction ``density`` of normal draws."""
        path = ROOT / "conf" / "compressor" / f"{self.name}.yaml"
        begins = {"threshold": threshold_of(density), "k_high": density}  # where a method has these settings
        return configured(path, {**self.settings, **begins}, density)

    def __str__(self) -> str:
        return ", ".join([self.name, *(f"{key}={value}".lower() for key, value in self.settings.items())])


def cases() -> list[Case]:
    """Every yaml in conf/compressor, with every combination of its flags."""
    found = []
    for path in sorted((ROOT / "conf" / "compressor").glob("*.yaml")):
        settings = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        flags = [key for key, value in settings.items() if isinstance(value, bool)]
        for choice in itertools.product((True, False), repeat=len(flags)):
            found.append(Case(path.stem, dict(zip(flags, choice, strict=True))))
    return found


def threshold_of(density: float) -> float:
    """The magnitude that a fraction ``density`` of standard normal draws exceeds."""
    return -statistics.NormalDist().inv_cdf(density / 2)


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
    ends = [end * num_elements // layout.num_parameters for end in itertools.accumulate(layout.sizes)]
    return flat, [
        Segment(WHOLE, flat, tuple((end - start,) for start, end in itertools.pairwise([0, *ends])))
    ]


def yardsticks(segments: list[Segment], density: float) -> dict[str, Callable[[], object]]:
    """The reference operations, on the same segments."""
    sums = [torch.zeros_like(s.rows, memory_format=torch.contiguous_format) for s in segments]
    layers = [piece for s in segments for piece in s.rows.split(np.diff(s.edges).tolist(), dim=1)]

    def add() -> None:
        for total, segment in zip(sums, segments, strict=True):
            total.add_(segment.rows)

    def topk() -> None:
        for segment in segments:
            for row in segment.rows:
                torch.topk(row.abs(), elements_of(density, row.numel()))

    def norm() -> None:
        for rows in layers:
            squared_norm(rows)

    return {ADD: add, TOPK: topk, NORM: norm}


def packings(segments: list[Segment], density: float) -> dict[str, Callable[[], object]]:
    """The encoding of one worker's segments by each quantiser; the segments then have the rounding error."""
    backend = backend_of(segments[0].rows.device)

    def packing(codec: Codec) -> Callable[[], object]:
        return lambda: [backend.encode(codec, s.rows[0], step_of(Step(0, 0), s)) for s in segments]

    methods = {name: Case(name, {}).method(density) for name in QUANTISERS}
    return {f"{name}, packing": packing(method) for name, method in methods.items()}


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


def measure(scope: str, arguments: argparse.Namespace) -> None:
    """Print one table."""
    from peers import PEERS, peers  # benchmarks/gpu also imports this file, without peers on its path

    density = arguments.density
    flat, segments = gradients(resnet18_layout(scope), arguments.workers, arguments.elements)
    drawn = torch.empty_like(flat)
    communicator = Communicator(arguments.workers)
    reductions = {
        str(case): Reduction(case.reducer(density, flat.shape[1]), segments, communicator) for case in cases()
    }
    known = yardsticks(segments, density)
    if arguments.workers == 1:
        known |= peers(segments) | packings(segments, density)
    work: dict[str, Callable[[], object]] = {**known, **reductions}
    stream = torch.Generator().manual_seed(0)
    shuffle = random.Random(0).shuffle
    milliseconds: dict[str, list[float]] = {name: [] for name in work}
    elements: dict[str, list[float]] = {name: [] for name in reductions}
    for number in range(arguments.repeats + 1):
        drawn.normal_(generator=stream)
        order = list(work)
        shuffle(order)
        for name in order:
            flat.copy_(drawn)  # a lossless method may write the mean into the gradients
            if name in reductions:
                reductions[name].clear_residual()
            started = time.process_time()
            work[name]()
            seconds = time.process_time() - started
            if number > 0:  # the first round warms up
                milliseconds[name].append(1000 * seconds)
                if name in reductions:
                    elements[name].append(reductions[name].elements_sent)

    print(
        f"\nscope {scope}: {len(segments)} segment(s), {flat.shape[1]:,} fp32 elements per worker, "
        f"{arguments.workers} worker(s), density {density:g}\n"
    )
    print("| what | ms | range | x add | x topk | x public | elements sent |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    public = {"top_k": TOPK} | PEERS
    for name, times in milliseconds.items():
        ratios = [statistics.median(map(float.__truediv__, times, milliseconds[y])) for y in (ADD, TOPK)]
        peer = milliseconds.get(public.get(name.split(",")[0], ""))
        beside = f"{statistics.median(map(float.__truediv__, times, peer)):.2f}" if peer else ""
        sent = f"{statistics.median(elements[name]):,.0f}" if name in reductions else ""
        print(
            f"| {name} | {statistics.median(times):.1f} | {min(times):.1f} to {max(times):.1f} "
            f"| {ratios[0]:.2f} | {ratios[1]:.2f} | {beside} | {sent} |"
        )


def default_job(threads: int) -> None:
    """Print the times of the parts of the default job's steps."""
    with tempfile.TemporaryDirectory() as output:
        command = [f"threads={threads}", f"trainer.steps={JOB_STEPS}", "tracker=none", f"output={output}"]
        subprocess.run([sys.executable, "run.py", *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        (path,) = Path(output).glob("*/*/metrics.jsonl")
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        config = OmegaConf.load(path.parent / "config.yaml")
    steps = [r for r in records if "time/step_seconds" in r][JOB_WARMUP:]
    parts = {
        "forward and backward": [r["time/gradient_seconds"] for r in steps],
        "reduce()": [r["time/reduce_seconds"] for r in steps],
        "optimizer": [r["time/update_seconds"] for r in steps],
        "whole step": [r["time/step_seconds"] for r in steps],
    }
    columns = zip(*parts.values(), strict=True)
    parts["ledger and batches"] = [whole - sum(others) for *others, whole in columns]
    reduce, gradient = parts["reduce()"], parts["forward and backward"]
    density = statistics.median(r["compression/density"] for r in steps)
    print(
        f"\ndefault job: {config.name}, {config.workers} workers in one process, "
        f"{config.trainer.batch_size} samples each, scope {config.scope}, "
        f"threshold rule at density {config.budget.density:g}; {len(steps)} steps after {JOB_WARMUP}\n"
    )
    print("| what | ms | range | x forward and backward |")
    print("|---|---:|---:|---:|")
    for name, seconds in parts.items():
        ratio = statistics.median(map(float.__truediv__, seconds, gradient))
        low, middle, high = (1000 * f(seconds) for f in (min, statistics.median, max))
        print(f"| {name} | {middle:.1f} | {low:.1f} to {high:.1f} | {ratio:.3f} |")
    ratio = statistics.median(map(float.__truediv__, gradient, reduce))
    print(f"\nforward and backward take {ratio:.1f} times as long as reduce(); density {density:.3%}")


def memory_of(case: Case, scope: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Resident bytes of this process minus those before the gradients, and the bytes of tensors."""
    torch.set_num_threads(arguments.threads)
    communicator = Communicator(arguments.workers)
    small = [Segment(WHOLE, torch.ones(arguments.workers, 1000), ((1000,),))]
    Reduction(case.reducer(arguments.density, 1000), small, communicator)()  # loads all modules
    layout = resnet18_layout(scope)  # keeps the model, so that its memory is not reused
    before = resident("VmRSS")
    flat, segments = gradients(layout, arguments.workers, arguments.elements)
    flat.normal_()
    with_gradients = resident("VmRSS") - before
    reducer = case.reducer(arguments.density, flat.shape[1])
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


def resident(field: str) -> int:
    """Resident bytes of this process: VmRSS is the current value, VmHWM the maximum since the last reset."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def measure_memory(scope: str, arguments: argparse.Namespace) -> None:
    """Print one table."""

    workers = arguments.workers
    print(f"\nscope {scope}: n = {workers} workers in one process, resident memory above the start\n")
    print("| method | gradients [n x D] | peak [n x D] | gradients + residuals [n x D] | the rest [D] |")
    print("|---|---:|---:|---:|---:|")
    for case in cases():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh_process:
            found = fresh_process.submit(memory_of, case, scope, arguments).result()
        vector = found["vector"]
        whole = workers * vector
        print(
            f"| {case} | {found['gradients'] / whole:.2f} | {found['peak'] / whole:.2f} "
            f"| {found['known'] / whole:.2f} | {(found['peak'] - found['known']) / vector:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scope", choices=SCOPES, help="default: both")
    parser.add_argument("--elements", type=int, default=11_173_962, help="D of the global scope")
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--workers", type=int, help="W, in one process; default 1, with --memory 8")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--no-job", action="store_true")
    arguments = parser.parse_args()
    arguments.workers = arguments.workers or (8 if arguments.memory else 1)
    torch.set_num_threads(arguments.threads)
    print(
        f"torch {torch.__version__}, {arguments.threads} thread(s); a threshold of "
        f"{threshold_of(arguments.density):.4f} keeps a share {arguments.density:g} of normal draws"
    )
    for scope in [arguments.scope] if arguments.scope else reversed(SCOPES):
        (measure_memory if arguments.memory else measure)(scope, arguments)
    if not (arguments.memory or arguments.no_job):
        default_job(arguments.threads)


if __name__ == "__main__":
    main()
