"""Script that compiles every Triton kernel for two types of GPUs, and prints the resources of each.

    python tests/helpers/compile_kernels.py

No GPU is needed. TRITON_INTERPRET must not be set.
"""

import subprocess
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import drawn as drawn
from compressors.kernels.gpu import largest as largest
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
}  # 64-bit tables and offsets
NUMBERS = {"tiles", "num_rows", "size", "capacity", "programs"}
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
    (drawn.set_bits, {"TILE": 1024}),
    (drawn.take, {"TILE": 1024}),
    (drawn.add_rows, {"TILE": 1024}),
    (drawn.add_sent, {"TILE": 1024}),
]


def kind_of(name: str, entry: str, key: str) -> str:
    """The type of the kernel argument with this name."""
    if name in NUMBERS:
        return "i32"
    if name in ("factor", "values", "out", "total"):
        return f"*{entry}"
    if name in ("sums", "sums_of_all", "totals"):
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


def main() -> None:
    for capability in (80, 90):
        for entry, key in (("fp32", "i32"), ("fp64", "i64")):
            for kernel, options_of_kernel in EVERY:
                bits = 32 if entry == "fp32" else 64
                words = {TOP: bits - 9, HIGHEST: bits - 2}
                fixed = {n: words.get(v, v) for n, v in options_of_kernel.items()}
                names = kernel.arg_names
                signature = {n: "constexpr" if n in fixed else kind_of(n, entry, key) for n in names}
                source = ASTSource(kernel, signature, {(names.index(n),): v for n, v in fixed.items()})
                warps = WARPS.get(kernel, {})
                options = NO_FUSED_MULTIPLY_ADD | warps
                compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
                choices = " ".join(f"{n}={v}" for n, v in fixed.items())
                found = resources(compiled.asm["cubin"])
                print(f"sm_{capability} {entry} {kernel.__name__} {choices}: {found}", flush=True)


if __name__ == "__main__":
    main()
