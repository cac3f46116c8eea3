"""Script that compiles every Triton kernel for two types of GPUs, and prints the resources of each.

    python tests/helpers/compile_kernels.py

No GPU is needed. TRITON_INTERPRET must not be set.
"""

import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import drawn as drawn
from compressors.kernels.gpu import largest as largest
from compressors.kernels.gpu import quantising as quantising
from compressors.kernels.gpu import surveying as surveying
from compressors.kernels.gpu.selection import EIGHT_WARPS, NO_FUSED_MULTIPLY_ADD, SIXTEEN_WARPS

TABLES = {
    "pieces",
    "rows",
    "ends",
    "parts",
    "row_pieces",
    "draws",
    "jobs",
    "sent",
    "sizes",
    "starts",
    "found",
}  # 64-bit tables and offsets
NUMBERS = {"tiles", "num_rows", "size", "capacity", "programs"}
ENTRIES = {"factor", "values", "out", "total", "levels", "floors", "magnitudes", "tails", "thresholds"}
TOP, HIGHEST = "the leading digit", "the highest bit"
WARPS = {
    largest.count_digits: EIGHT_WARPS,
    largest.share_ties: EIGHT_WARPS,
    largest.guess: SIXTEEN_WARPS,
}
EVERY = [
    *(
        (blocks.mark, {"RULE": rule, "ADD": add})
        for rule, add in ((0, True), (0, False), (1, True), (2, False))
    ),
    *((blocks.pack, {"EXACT": exact}) for exact in (False, True)),
    (blocks.halve, {"TILE": 1024}),
    (blocks.total_up, {"TILE": 1024}),
    (largest.guess, {"SAMPLE": 2**14, "TOP": HIGHEST}),
    (largest.gather, {}),
    (largest.count_candidates, {"SHIFT": TOP, "WIDTH": 8, "TILE": 1024}),
    (largest.count_candidates, {"SHIFT": 0, "WIDTH": 7, "TILE": 1024, "programs": 1}),  # Triton fixes a 1
    (largest.count_digits, {"SHIFT": TOP, "WIDTH": 8}),
    (largest.count_digits, {"SHIFT": 0, "WIDTH": 7}),
    (largest.choose_digit, {"SHIFT": TOP}),
    (largest.compare, {}),
    (largest.share_ties, {"TILE": 4096}),
    (surveying.sample, {"SAMPLE": 2**12}),
    *((surveying.survey, {"ALL": every}) for every in (False, True)),
    (surveying.count_large, {}),
    (surveying.list_large, {}),
    (drawn.set_bits, {"TILE": 1024}),
    (drawn.take, {"TILE": 1024}),
    (drawn.add_rows, {"TILE": 1024}),
    (drawn.add_sent, {"TILE": 1024}),
]
# Quantisers take fp32 alone.
KINDS_OF_QUANTISERS = {
    **dict.fromkeys(("tiles", "rows", "parts", "pieces", "fields"), "*i64"),
    **dict.fromkeys(("bucket_size", "number", "workers", "count"), "i32"),
    **dict.fromkeys(("sums", "others", "totals", "clip"), "*fp64"),
    **dict.fromkeys(("scales", "norms"), "*fp32"),
    **{"packed": "*u8", "facts": "*i32", "bits": "*i32"},
}
QUANTISERS = [
    (quantising.draw, {"TILE": 1024}),
    *((quantising.sum_up, {"KIND": kind}) for kind in range(5)),
    *((quantising.scale_parts, {"KIND": kind, "TILE": 1024}) for kind in range(5)),
    *(
        (kernel, {"TWO": two})
        for kernel in (quantising.round_to_signs, quantising.add_signs)
        for two in (0, 1)
    ),
    *(
        (kernel, {"EACH": each})
        for kernel in (quantising.round_to_ternary, quantising.add_ternary)
        for each in (5, 8)
    ),
    (quantising.round_to_powers, {}),
    (quantising.add_powers, {}),
    *((quantising.round_to_levels, {"BITS": bits, "number": 1}) for bits in (2, 15)),
    *((quantising.add_levels, {"BITS": bits, "FIELDS": fields}) for bits, fields in ((2, 2), (15, 5))),
]


def kind_of(name: str, entry: str, key: str) -> str:
    """The type of the kernel argument with this name."""
    if name in NUMBERS:
        return "i32"
    if name in ENTRIES:
        return f"*{entry}"
    if name in ("sums", "sums_of_all", "totals", "squares"):
        return "*fp64"
    if name in ("keys", "candidates"):
        return f"*{key}"
    return "*i64" if name in TABLES else "*i32"


def resources(machine_code: bytes) -> str:
    """Registers, stack and shared memory, from the CUDA tools in the triton package."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(machine_code)
        file.flush()
        told = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    return " ".join(word for word in told.split() if word.startswith(("REG:", "STACK:", "SHARED:")))


def compile_one(
    kernel: Any, fixed: dict[str, int], kinds: Callable[[str], str], capability: int, what: str
) -> None:
    names = kernel.arg_names
    signature = {name: "constexpr" if name in fixed else kinds(name) for name in names}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in fixed.items()})
    options = NO_FUSED_MULTIPLY_ADD | WARPS.get(kernel, {})
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    choices = " ".join(f"{name}={value}" for name, value in fixed.items())
    found = resources(compiled.asm["cubin"])
    print(f"sm_{capability} {what} {kernel.__name__} {choices}: {found}", flush=True)


def main() -> None:
    for capability in (80, 90):
        for entry, key in (("fp32", "i32"), ("fp64", "i64")):
            bits = 32 if entry == "fp32" else 64
            words = {TOP: bits - 9, HIGHEST: bits - 2}
            for kernel, options_of_kernel in EVERY:
                fixed = {n: words.get(v, v) for n, v in options_of_kernel.items()}
                compile_one(kernel, fixed, partial(kind_of, entry=entry, key=key), capability, entry)
        for kernel, fixed in QUANTISERS:
            compile_one(kernel, fixed, KINDS_OF_QUANTISERS.__getitem__, capability, "fp32")


if __name__ == "__main__":
    main()
