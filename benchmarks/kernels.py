"""Speed of the CPU's kernels, compared with their goals.

    python benchmarks/kernels.py [--rounds 15] [--threads 1] [--elements 11173962]

One worker's fp32 vector of ResNet-18's size, in one segment: feedback, selection, packing, residual, error
and count in one call, compared with an in-place add of that size; exact Top-k compared with
``torch.topk(p.abs(), k)``; selection and packing of a random block compared with a copy of as many entries;
the ledger's squared norm compared with ``torch.linalg.vector_norm``; rounding, packing and residual of each
quantiser compared with an in-place add, and its decoding. Results are medians over rounds (``rounds.py``).
"""

import argparse
from collections.abc import Callable

import torch

from benchmarks.gpu.sizes import threshold_of
from benchmarks.pages import columns, head, row
from benchmarks.rounds import Work, median_ms, ratio, seconds_in_rounds
from compressors.api import Codec, Input, Segment, Step, elements_of
from compressors.ef_sign import EFSign
from compressors.hard_threshold import HardThreshold
from compressors.kernels.choice import backend_of, chosen
from compressors.natural import Natural
from compressors.qsgd import QSGD
from compressors.random_block import RandomBlock
from compressors.terngrad import TernGrad
from compressors.top_k import TopK

CALLS = 50  # of operations that take microseconds
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
QUANTISER_GOAL = 4


def measure_selection(rounds: int, size: int) -> None:
    """Print the first table."""
    drawn, gradient, rest = torch.randn(1, size), torch.empty(1, size), torch.zeros(1, size)
    plain, few = Segment("model", gradient, ((size,),)), elements_of(0.001, size)
    given = Input(plain, rest)
    block, block_size = torch.randn(size), elements_of(0.01, size)

    def select(codec: Codec, kernels: str = "auto") -> Callable[[], object]:
        with chosen(kernels):
            backend = backend_of(rest.device)
        return lambda: backend.compress([codec], [given], Step(0, 0), range(1))

    def prepare(_: str) -> None:
        rest.zero_()
        gradient.copy_(drawn)  # a selection consumes it

    few_elements = HardThreshold(threshold=threshold_of(0.001))
    random_block = RandomBlock(density=0.01)
    selections = (  # operation, reference operation, goal
        ("threshold 0.1 %", select(few_elements), "add", "2.5"),
        ("threshold 10 %", select(HardThreshold(threshold=threshold_of(0.1))), "add", "5"),
        ("Top-k 0.1 %", select(TopK(density=0.001)), "topk", "1/8"),
        (
            f"random block 1 %, {CALLS} times",
            lambda: [random_block.encode(block, Step(0, 0)) for _ in range(CALLS)],
            "copy",
            "3",
        ),
        ("squared norm", lambda: backend_of(rest.device).squared_norms([plain]), "norm", "1.3"),
        ("threshold 0.1 %, reference", select(few_elements, "reference"), "add", ""),
        ("Top-k 0.1 %, reference", select(TopK(density=0.001), "reference"), "topk", ""),
    )
    work: Work = {
        "add": lambda: rest.add_(gradient),
        "norm": lambda: torch.linalg.vector_norm(gradient),
        "topk": lambda: torch.topk(gradient[0].abs(), few),
        "copy": lambda: [block[:block_size].clone() for _ in range(CALLS)],
        **{name: operation for name, operation, _, _ in selections},
    }
    found = seconds_in_rounds(work, rounds, prepare)
    print(columns("operation", "ms", "reference", "ms", "ratio", "goal"))
    for name, _, other, goal in selections:
        own, reference = (f"{median_ms(found[key]):.3f}" for key in (name, other))
        print(row(name, own, other, reference, f"{ratio(found[name], found[other]):.3f}", goal))


def measure_quantisers(rounds: int, size: int) -> None:
    """Print the second table."""
    drawn, rest, total = torch.randn(size), torch.empty(size), torch.zeros(size)
    backend, step = backend_of(rest.device), Step(0, 0, shapes=((size,),))
    work: Work = {"add": lambda: total.add_(drawn)}
    for name, codec in QUANTISERS.items():
        payload = backend.encode(codec, drawn.clone(), step)
        work[f"encode {name}"] = lambda codec=codec: backend.encode(codec, rest, step)
        work[f"decode {name}"] = lambda codec=codec, payload=payload: backend.decode(
            codec, payload, total, step
        )
    found = seconds_in_rounds(work, rounds, lambda name: rest.copy_(drawn))
    print("\n" + columns("quantiser", "encode, ms", "add, ms", "ratio", "goal", "decode, ratio"))
    for name in QUANTISERS:
        encode, decode, add = found[f"encode {name}"], found[f"decode {name}"], found["add"]
        times = f"{median_ms(encode):.1f}", f"{median_ms(add):.1f}", f"{ratio(encode, add):.2f}"
        print(row(name, *times, QUANTISER_GOAL, f"{ratio(decode, add):.2f}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--elements", type=int, default=11_173_962)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(head("Kernels", "python benchmarks/kernels.py"))
    measure_selection(options.rounds, options.elements)
    measure_quantisers(options.rounds, options.elements)


if __name__ == "__main__":
    main()
