"""Cost of encoded messages: bytes per element sent, and time to write, read and reduce.

    python benchmarks/coding.py [--rounds 15]

First table: one worker's message of ResNet-18's 11,173,962 elements in 62 layers, normal draws of which a
threshold keeps 0.1, 1 and 10 %. It gives the bytes per kept element and the lower bound, value bytes plus
log2 C(D, k) / 8 per element; the milliseconds to write the message, and to read it and add its values to the
sum over workers, also as ratios to one in-place add of D numbers. Second table: whole reductions with error
feedback and a hard threshold, for 1 and 8 workers in one process, without and with an encoding, including the
ledger's error. A round runs everything once. Times are medians over rounds, ratios are medians of the rounds'
ratios. Times are CPU times of the process and its threads, because other work on the machine affects wall
time more.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable

import numba
import numpy as np
import torch
from compress import resnet18_layout, threshold_of

from compressors.api import Step, inputs_of
from compressors.build import build_reducer
from compressors.encoding.index_codes import IndexCodes
from compressors.encoding.messages import Format, read, write
from compressors.encoding.settings import Encoding
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.kernels.cpu.index_codes import CompiledIndexCodes
from trainers.comm.communicator import Communicator
from trainers.step.ledger import Ledger

SIZE = 11_173_962
MESSAGES_HEAD = """\
| density | indices | values | by | bytes per element | bound | goal | write, ms | / add | read, ms | / add |
|---:|---|---|---|---:|---:|---:|---:|---:|---:|---:|"""
REDUCTIONS_HEAD = """\
| workers | density | wire | bytes per element | bound | reduce and ledger, ms | / add of all workers |
|---:|---:|---|---:|---:|---:|---:|"""
DENSITIES = (0.001, 0.01, 0.1)
GOALS = {(0.001, "fp32"): 5.9, (0.001, "bf16"): 3.8}  # bytes per element with indices=auto
VALUE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1, "int4": 1 / 2, "int2": 1 / 4}
WIRES = [
    *(Encoding(indices=i, values="fp32") for i in ("plain", "bitmap", "rice", "auto")),
    *(Encoding(indices="auto", values=v) for v in ("bf16", "fp16", "int8", "int4", "int2")),
]
REDUCED = [Encoding(), *(Encoding(indices="auto", values=v) for v in VALUE_BYTES)]


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def medians(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Milliseconds of each entry of ``work``, and its ratio to ``add``."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, one in work.items():
            taken = seconds(one)
            if number > 0:  # the first round compiles
                found[name].append(taken)
    return {
        name: (
            1000 * statistics.median(own),
            statistics.median(map(float.__truediv__, own, found["add"])),
        )
        for name, own in found.items()
    }


def measure_messages(rounds: int) -> None:
    """Print the first table."""
    layout = resnet18_layout("layer")
    edges = np.cumsum([0, *layout.sizes])
    draw = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))
    total, other = torch.zeros(SIZE), torch.randn(SIZE)
    print(MESSAGES_HEAD)
    for density in DENSITIES:
        positions = (draw.abs() >= threshold_of(density)).nonzero().squeeze(1)
        values, positions = draw[positions], positions.numpy()
        work: dict[str, Callable[[], object]] = {"add": lambda: total.add_(other)}
        sizes = {}
        for wire in WIRES:
            for by, codes in (
                ("kernels", CompiledIndexCodes()),
                ("reference", IndexCodes()),
            ):
                form = Format(wire, edges, torch.float32, codes)
                parts, _ = write(form, positions, values, False)
                message = np.concatenate([part for _, part in parts])
                name = f"{wire.indices} | {wire.values} | {by}"
                sizes[name] = (len(message) + 4) / len(positions)  # including its length, which is sent first

                def write_it(form=form, positions=positions, values=values) -> None:
                    np.concatenate([part for _, part in write(form, positions, values, False)[0]])

                def read_it(form=form, message=message, codes=codes) -> None:
                    where, what = read(form, message)
                    codes.add_at(what.numpy(), where, total.numpy())

                work[f"write {name}"], work[f"read {name}"] = write_it, read_it
        taken = medians(work, rounds)
        for name, size in sizes.items():
            code = name.split(" | ")[1]
            bound = VALUE_BYTES[code] + entropy(len(positions)) / len(positions)
            goal = GOALS.get((density, code), "") if name.startswith("auto") else ""
            both = [taken[f"{what} {name}"] for what in ("write", "read")]
            times = " | ".join(f"{ms:.2f} | {ratio:.2f}" for ms, ratio in both)
            print(f"| {density:.1%} | {name} | {size:.3f} | {bound:.3f} | {goal} | {times} |", flush=True)
        print(f"| {density:.1%} | in-place add | | | | | | {taken['add'][0]:.2f} | 1 | | |", flush=True)


def entropy(k: int) -> float:
    """Lower bound in bytes for the set of the k sent elements."""
    nats = math.lgamma(SIZE + 1) - math.lgamma(k + 1) - math.lgamma(SIZE - k + 1)
    return nats / math.log(2) / 8


def measure_reductions(num_workers: int, density: float, rounds: int) -> None:
    """Print lines of the second table."""
    layout, communicator = resnet18_layout("layer"), Communicator(num_workers)
    flat = layout.new_buffer(num_workers)
    kept = torch.randn(flat.shape, generator=torch.Generator().manual_seed(0))
    total, segments = torch.zeros_like(flat), layout.segments(flat)
    work: dict[str, Callable[[], object]] = {"add": lambda: total.add_(kept)}
    ledgers = {}
    for wire in REDUCED:
        name = f"{wire.indices}, {wire.values}"
        method = HardThreshold(threshold=threshold_of(density))
        reducer = build_reducer(method, SIZE, ErrorFeedback, encoding=wire)
        ledgers[name] = Ledger(layout, communicator, reducer)
        state = reducer.init(segments)

        def reduce(reducer=reducer, state=state, ledger=ledgers[name]) -> None:
            reduced, _ = reducer.reduce(inputs_of(segments), state, Step(0, 0), communicator)
            ledger.record(reduced)
            ledger.close_step()

        def prepare(state=state) -> None:
            flat.copy_(kept)
            for rest in state.residual.values():
                rest.zero_()

        work[f"prepare {name}"], work[name] = prepare, reduce
    with torch.inference_mode():
        taken = medians(work, rounds)
    for name, ledger in ledgers.items():
        metrics = ledger.metrics()
        elements = metrics["compression/density"] * SIZE
        size, bound = (metrics[f"comm/{m}"] / elements for m in ("bytes_sent", "entropy_bound_bytes"))
        columns = [str(num_workers), f"{density:.1%}", name, f"{size:.3f}", f"{bound:.3f}"]
        print("| " + " | ".join([*columns, "{:.1f} | {:.2f} |".format(*taken[name])]))
    print(f"| {num_workers} | {density:.1%} | in-place add | | | {taken['add'][0]:.1f} | 1 |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"torch {torch.__version__}, numba {numba.__version__}, numpy {np.__version__}, 1 thread, "
        f"{arguments.rounds} rounds; {SIZE:,} fp32 entries\n"
    )
    measure_messages(arguments.rounds)
    print("\n" + REDUCTIONS_HEAD)
    for num_workers in (1, 8):
        for density in DENSITIES:
            measure_reductions(num_workers, density, arguments.rounds)


if __name__ == "__main__":
    main()
