"""Speed of the kernels, compared with their goals.

    python benchmarks/kernels.py [--rounds 15] [--threads 1]

One worker's fp32 vector of ResNet-18's size, in one segment: feedback, selection, packing, residual, error
and count in one call, compared with an in-place add of that size; exact Top-k compared with
``torch.topk(p.abs(), k)``, with a check that the sets are equal; selection and packing of a random block
compared with a copy of as many entries; rounding, packing and residual of each quantiser compared with an
in-place add, and its decoding. Then the reduction of 8 workers' gradients of ResNet-18 compared with
their forward and backward passes on 32 images of 32 x 32 each. A round runs everything once; results are
medians of the rounds' ratios. Times are CPU times of the process and its threads, because other work on the
machine affects wall time more.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from compressors.api import Codec, Input, Segment, Step, elements_of, inputs_of
from compressors.build import build_reducer
from compressors.ef_sign import EFSign
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.kernels.choice import backend_of, chosen
from compressors.natural import Natural
from compressors.qsgd import QSGD
from compressors.random_block import RandomBlock
from compressors.terngrad import TernGrad
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.step.gradients import WorkerGradients
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

ROOT = Path(__file__).parent.parent
SIZE, WORKERS, IMAGES = 11_173_962, 8, 32
QUANTISERS: dict[str, Codec] = {
    "EF-sign": EFSign(),
    "natural": Natural(),
    "TernGrad, 1.6 bits": TernGrad(),
    "TernGrad, 2 bits": TernGrad(values_per_byte=4),
    "QSGD, 2 bits": QSGD(bits=2),
    "QSGD, 4 bits": QSGD(),
    "QSGD, 4 bits, L2 norm": QSGD(norm="l2"),
    "QSGD, 8 bits": QSGD(bits=8),
}


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def threshold_of(density: float) -> float:
    """The magnitude that a fraction ``density`` of standard normal draws exceeds."""
    return -statistics.NormalDist().inv_cdf(density / 2)


def measure_selection(rounds: int) -> None:
    """Print the first table."""
    drawn, gradient, rest = torch.randn(1, SIZE), torch.empty(1, SIZE), torch.zeros(1, SIZE)
    given, few = Input(Segment("model", gradient, ((SIZE,),)), rest), elements_of(0.001, SIZE)
    block, block_size = torch.randn(SIZE), elements_of(0.01, SIZE)

    def select(codec: Codec, kernels: str = "auto") -> Callable[[], object]:
        with chosen(kernels):
            backend = backend_of(rest.device)
        return lambda: backend.compress([codec], [given], Step(0, 0), range(1))

    work = {
        "add": lambda: rest.add_(gradient),
        "topk": lambda: torch.topk(gradient[0].abs(), few),
        "copy": lambda: block[:block_size].clone(),
        "threshold 0.1 %": select(HardThreshold(threshold=threshold_of(0.001))),
        "threshold 10 %": select(HardThreshold(threshold=threshold_of(0.1))),
        "Top-k 0.1 %": select(TopK(density=0.001)),
        "random block 1 %": lambda: RandomBlock(density=0.01).encode(block, Step(0, 0)),
        "threshold 0.1 %, reference": select(HardThreshold(threshold=threshold_of(0.001)), "reference"),
        "Top-k 0.1 %, reference": select(TopK(density=0.001), "reference"),
    }
    found: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, one in work.items():
            rest.zero_()
            gradient.copy_(drawn)  # a selection consumes it
            repeats = 50 if name in ("copy", "random block 1 %") else 1  # calls take microseconds
            taken = seconds(lambda one=one, repeats=repeats: [one() for _ in range(repeats)]) / repeats
            if number > 0:  # the first round compiles
                found[name].append(taken)
    rest.zero_()
    gradient.copy_(drawn)
    (compressed,) = backend_of(rest.device).compress([TopK(density=0.001)], [given], Step(0, 0), range(1))
    largest = torch.topk(drawn[0].abs(), few).indices.sort().values
    same = torch.equal(compressed.payloads[0].indices.long(), largest)

    print("| work | ms | yardstick | ms | ratio | goal |\n|---|---:|---|---:|---:|---:|")
    for name, yardstick, goal in (
        ("threshold 0.1 %", "add", "2.5"),
        ("threshold 10 %", "add", "5"),
        ("Top-k 0.1 %", "topk", "1/8"),
        ("random block 1 %", "copy", "3"),
        ("threshold 0.1 %, reference", "add", ""),
        ("Top-k 0.1 %, reference", "topk", ""),
    ):
        ratio = statistics.median(map(float.__truediv__, found[name], found[yardstick]))
        own, other = (1000 * statistics.median(found[n]) for n in (name, yardstick))
        print(f"| {name} | {own:.3f} | {yardstick} | {other:.3f} | {ratio:.3f} | {goal} |")
    print(f"\nTop-k's set is torch.topk's: {same}")


def measure_quantisers(rounds: int) -> None:
    """Print the second table."""
    drawn, rest, total = torch.randn(SIZE), torch.empty(SIZE), torch.zeros(SIZE)
    backend, found = backend_of(rest.device), {name: [] for name in ("add", *QUANTISERS)}
    decoded: dict[str, list[float]] = {name: [] for name in QUANTISERS}
    for number in range(rounds + 1):
        adding = seconds(lambda: total.add_(drawn))
        step = Step(0, number, shapes=((SIZE,),))
        for name, codec in QUANTISERS.items():
            rest.copy_(drawn)
            started = time.process_time()
            payload = backend.encode(codec, rest, step)
            packing = time.process_time() - started
            backend.decode(codec, payload, total, step)
            adds = time.process_time() - started - packing
            if number > 0:  # the first round compiles
                found[name].append(packing)
                decoded[name].append(adds)
        if number > 0:
            found["add"].append(adding)
    print("\n| quantiser | encode, ms | add, ms | ratio | goal | decode, ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    adding = found.pop("add")
    for name, times in found.items():
        ratio, other = (statistics.median(map(float.__truediv__, t, adding)) for t in (times, decoded[name]))
        own, yardstick = (1000 * statistics.median(t) for t in (times, adding))
        print(f"| {name} | {own:.1f} | {yardstick:.1f} | {ratio:.2f} | 4 | {other:.2f} |")


def loss_of(model: torch.nn.Module, batch: tuple[Tensor, Tensor], memory: None) -> tuple[Tensor, None]:
    images, labels = batch
    return torch.nn.functional.cross_entropy(model(images), labels), memory


def measure_step(rounds: int) -> None:
    """Print the third table."""
    model = instantiate(
        OmegaConf.load(ROOT / "conf" / "model" / "resnet18.yaml"), input_shape=(3, 32, 32), num_classes=10
    )
    layout, communicator = Layout(dict(model.named_parameters()), "layer"), Communicator(WORKERS)
    workers = WorkerGradients(model, loss_of, layout, communicator, seed=0)
    segments = workers.segments
    batches = [(torch.randn(IMAGES, 3, 32, 32), torch.randint(10, (IMAGES,))) for _ in range(WORKERS)]
    methods = {"hard_threshold": HardThreshold(density=0.001), "top_k": TopK(density=0.001)}
    reducers = {n: build_reducer(m, layout.num_parameters, ErrorFeedback) for n, m in methods.items()}
    ledgers = {name: Ledger(layout, communicator, reducer) for name, reducer in reducers.items()}
    with torch.inference_mode():
        states = {name: reducer.init(segments) for name, reducer in reducers.items()}
    gradient, found = [], {name: [] for name in methods}
    for number in range(rounds + 1):
        taken = seconds(lambda number=number: workers.compute(batches, number))
        kept = torch.cat([segment.rows for segment in segments], 1)  # [W, D]
        with torch.no_grad():  # before the first step the gradients of ResNet's branches are zero
            for parameter, step in zip(model.parameters(), layout.views(kept.mean(0)), strict=True):
                parameter -= 0.1 * step
        for name, reducer in reducers.items():
            for segment, rows in zip(segments, kept.split(layout.sizes, 1), strict=True):
                segment.rows.copy_(rows)

            def reduce(name=name, reducer=reducer, number=number) -> None:
                context = Step(0, number)
                reduced, states[name] = reducer.reduce(
                    inputs_of(segments), states[name], context, communicator
                )
                ledgers[name].record(reduced)
                ledgers[name].close_step()

            with torch.inference_mode():
                compressed = seconds(reduce)
            if number > 0:
                found[name].append(compressed)
        if number > 0:
            gradient.append(taken)
    print("\n| method | reduce and ledger, ms | forward and backward, ms | share | goal |")
    print("|---|---:|---:|---:|---:|")
    for name, times in found.items():
        share = statistics.median(map(float.__truediv__, times, gradient))
        own, other = 1000 * statistics.median(times), 1000 * statistics.median(gradient)
        print(f"| {name} | {own:.1f} | {other:.1f} | {share:.1%} | 6 % |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    versions = f"torch {torch.__version__}, numba {numba.__version__}, numpy {np.__version__}"
    print(f"{versions}, {arguments.threads} thread(s), {arguments.rounds} rounds; {SIZE:,} fp32 entries\n")
    measure_selection(arguments.rounds)
    measure_quantisers(arguments.rounds)
    measure_step(max(1, arguments.rounds // 5))


if __name__ == "__main__":
    main()
