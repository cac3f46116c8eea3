"""Cost of encoded messages: bytes per element sent, and time to write, read and reduce.

    python benchmarks/coding.py [--rounds 15] [--densities 0.001 0.01 0.1] [--rates 1e-7 1e-6 1e-5]

First table: one worker's message of ResNet-18's 11,173,962 elements in 62 layers, normal draws of which a
threshold keeps each density. It gives the bytes per kept element and the lower bound, value bytes plus
log2 C(D, k) / 8 per element; the milliseconds to write the message, and to read it and add its values to the
sum over workers, also as ratios to one in-place add of D numbers. Second table: whole reductions with error
feedback and a hard threshold, for 1 and 8 workers in one process, without and with an encoding, including the
ledger's error. Third table: deltas of as many weights, drawn from N(0, 0.02^2) in fp32 and rounded to bf16,
after a step by each rate up or down, as a first step of Adam is. The time to write is that of comparison and
message, without fingerprints. Results are medians over rounds (``rounds.py``).
"""

import argparse
import math

import numpy as np
import torch

from benchmarks.compress import resnet18_layout
from benchmarks.gpu.sizes import threshold_of
from benchmarks.pages import columns, head, row
from benchmarks.rounds import Work, median_ms, ratio, seconds_in_rounds
from compressors.api import Step, inputs_of
from compressors.build import build_reducer
from compressors.encoding.all_gather import index_codes
from compressors.encoding.changes import apply_changes
from compressors.encoding.index_codes import IndexCodes
from compressors.encoding.messages import Format, read, write
from compressors.encoding.settings import Encoding
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.kernels.cpu.index_codes import CompiledIndexCodes
from trainers.comm.communicator import Communicator
from trainers.deltas.delta import as_seen, change_of, encode
from trainers.step.ledger import Ledger

SIZE = 11_173_962
GOALS = {(0.001, "fp32"): 5.9, (0.001, "bf16"): 3.8}  # bytes per element with indices=auto
VALUE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1, "int4": 1 / 2, "int2": 1 / 4}
ENCODINGS = [
    *(Encoding(indices=i, values="fp32") for i in ("plain", "bitmap", "rice", "auto")),
    *(Encoding(indices="auto", values=v) for v in ("bf16", "fp16", "int8", "int4", "int2")),
]
REDUCED = [Encoding(), *(Encoding(indices="auto", values=v) for v in VALUE_BYTES)]


def measure_messages(rounds: int, densities: list[float]) -> None:
    """Print the first table."""
    layout = resnet18_layout("layer")
    edges = np.cumsum([0, *layout.sizes])
    draw = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))
    total, other = torch.zeros(SIZE), torch.randn(SIZE)
    names = ("bytes per element", "bound", "goal", "write, ms", "/ add", "read, ms", "/ add")
    print(columns("density", "indices", "values", "by", *names, text=4))
    for density in densities:
        positions = (draw.abs() >= threshold_of(density)).nonzero().squeeze(1)
        values, positions = draw[positions], positions.numpy()
        work: Work = {"add": lambda: total.add_(other)}
        sizes = {}
        for wire in ENCODINGS:
            for by, codes in (("kernels", CompiledIndexCodes()), ("reference", IndexCodes())):
                form = Format(wire, edges, torch.float32, codes)

                def write_it(form=form, positions=positions, values=values) -> np.ndarray:
                    return np.concatenate([part for _, part in write(form, positions, values, False)[0]])

                message = write_it()

                def read_it(form=form, message=message, codes=codes) -> None:
                    where, what = read(form, message)
                    codes.add_at(what.numpy(), where, total.numpy())

                key = (wire.indices, wire.values, by)
                sizes[key] = (len(message) + 4) / len(positions)  # including its length, which is sent first
                work[f"write {key}"], work[f"read {key}"] = write_it, read_it
        found = seconds_in_rounds(work, rounds)
        for key, size in sizes.items():
            indices, code, _ = key
            bound = VALUE_BYTES[code] + entropy(len(positions)) / len(positions)
            goal = GOALS.get((density, code), "") if indices == "auto" else ""
            times = []
            for seconds in (found[f"write {key}"], found[f"read {key}"]):
                times += [f"{median_ms(seconds):.2f}", f"{ratio(seconds, found['add']):.2f}"]
            print(row(f"{density:.1%}", *key, f"{size:.3f}", f"{bound:.3f}", goal, *times), flush=True)


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
    work: Work = {"add": lambda: total.add_(kept)}
    ledgers, states = {}, {}
    for wire in REDUCED:
        name = f"{wire.indices}, {wire.values}"
        method = HardThreshold(threshold=threshold_of(density))
        reducer = build_reducer(method, SIZE, ErrorFeedback, encoding=wire)
        ledgers[name], states[name] = Ledger(layout, communicator, reducer), reducer.init(segments)

        def reduce(reducer=reducer, state=states[name], ledger=ledgers[name]) -> None:
            reduced, _ = reducer.reduce(inputs_of(segments), state, Step(0, 0), communicator)
            ledger.record(reduced)
            ledger.close_step()

        work[name] = reduce

    def prepare(name: str) -> None:
        flat.copy_(kept)
        for rest in states[name].residual.values() if name in states else ():
            rest.zero_()

    with torch.inference_mode():
        found = seconds_in_rounds(work, rounds, prepare)
    for name, ledger in ledgers.items():
        metrics = ledger.metrics()
        elements = metrics["compression/density"] * SIZE
        sent = [f"{metrics[f'comm/{m}'] / elements:.3f}" for m in ("bytes_sent", "entropy_bound_bytes")]
        times = f"{median_ms(found[name]):.1f}", f"{ratio(found[name], found['add']):.2f}"
        print(row(num_workers, f"{density:.1%}", name, *sent, *times), flush=True)


def measure_deltas(rounds: int, rates: list[float]) -> None:
    """Print the third table."""
    draw = torch.Generator().manual_seed(0)
    weights = 0.02 * torch.randn(SIZE, generator=draw)
    directions = torch.randn(SIZE, generator=draw).sign()
    old = as_seen({"w": weights}, torch.bfloat16)
    names = ("changed", "bits per change", "whole over delta", "write, ms", "/ copy", "apply, ms", "/ copy")
    print("\n" + columns("rate", *names, text=1))
    for rate in rates:
        new = as_seen({"w": weights - rate * directions}, torch.bfloat16)
        delta, words = encode(old, new), old["w"].view(torch.int16).clone()
        message = delta.changed["w"].numpy()
        work: Work = {
            "copy": lambda words=words: words.copy_(old["w"].view(torch.int16)),
            "write": lambda new=new: change_of(old["w"], new["w"]),
            "apply": lambda words=words, message=message: apply_changes(
                message, words.numpy(), index_codes()
            ),
        }
        found = seconds_in_rounds(work, rounds)
        times = []
        for name in ("write", "apply"):
            times += [f"{median_ms(found[name]):.1f}", f"{ratio(found[name], found['copy']):.1f}"]
        bits = 8 * delta.num_bytes / delta.num_changed
        saved = new["w"].nbytes / delta.num_bytes
        print(row(f"{rate:g}", f"{delta.density:.2%}", f"{bits:.1f}", f"{saved:.1f}", *times), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--densities", type=float, nargs="*", default=[0.001, 0.01, 0.1])
    parser.add_argument("--rates", type=float, nargs="*", default=[1e-7, 1e-6, 1e-5])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(head("Encoded messages", "python benchmarks/coding.py"))
    measure_messages(options.rounds, options.densities)
    names = ("bytes per element", "bound", "reduce and ledger, ms", "/ add of all workers")
    print("\n" + columns("workers", "density", "wire", *names, text=3))
    for num_workers in (1, 8):
        for density in options.densities:
            measure_reductions(num_workers, density, options.rounds)
    measure_deltas(options.rounds, options.rates)


if __name__ == "__main__":
    main()
