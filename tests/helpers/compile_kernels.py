"""Script that compiles every Triton kernel for a type of GPU, and prints what each needs, one JSON line each.

    python tests/helpers/compile_kernels.py [capability, such as 90] [fp32|fp64]

No GPU is needed. TRITON_INTERPRET must not be set.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from compressors.kernels.gpu import blocks as blocks
from compressors.kernels.gpu import counting as counting
from compressors.kernels.gpu import drawn as drawn
from compressors.kernels.gpu import largest as largest
from compressors.kernels.gpu import packing as packing
from compressors.kernels.gpu import quantising as quantising
from compressors.kernels.gpu import reading as reading
from compressors.kernels.gpu import searching as searching
from compressors.kernels.gpu import signing as signing
from compressors.kernels.gpu import sums as sums
from compressors.kernels.gpu import surveying as surveying
from compressors.kernels.gpu.ranking import COUNTED, EIGHT_WARPS, SAMPLE
from compressors.kernels.gpu.table import TILE
from compressors.kernels.gpu.taking import NO_FUSED_MULTIPLY_ADD, SIXTEEN_WARPS

TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
WORDS = {  # arguments that are pointers to 64-bit integers, or such integers
    *("pieces", "rows", "sizes", "begins", "first", "parts", "row_pieces", "draws", "jobs", "sent"),
    *("starts", "found", "firsts"),
}
ENTRIES = {"factor", "values", "out", "total", "levels", "floors", "magnitudes", "tails", "thresholds"}
NUMBERS = {"tiles", "num_rows", "size", "capacity", "programs", "number"}
WARPS = {
    sums.add_counts: SIXTEEN_WARPS,
    largest.count_digits: EIGHT_WARPS,
    largest.share_ties: SIXTEEN_WARPS,
    largest.guess: SIXTEEN_WARPS,
    surveying.sample: EIGHT_WARPS,
}
KINDS = {"aligned": 2, "whole": 1, "partial": 0}
MARKS = {  # the rule, whether to add gradients, and whether to mark again
    "threshold": (0, True, False),
    "threshold, no gradient": (0, False, False),
    "given": (1, True, False),
    "norm": (2, False, False),
}


# Quantisers take fp32 alone.
KINDS_OF_QUANTISERS = {
    **dict.fromkeys(("tiles", "rows", "parts", "pieces", "fields"), "*i64"),
    **dict.fromkeys(("bucket_size", "number", "workers", "count"), "i32"),
    **dict.fromkeys(("sums", "others", "totals", "clip"), "*fp64"),
    **dict.fromkeys(("scales", "norms"), "*fp32"),
    **{"packed": "*u8", "facts": "*i32", "bits": "*i32"},
}


def launches(bits: int) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The name, the kernel and the constants of every kind of launch, for keys of so many bits."""
    for name, (rule, add, again) in MARKS.items():
        for kind, number in KINDS.items():
            fixed = {"RULE": rule, "ADD": add, "KIND": number, "AGAIN": again}
            yield f"mark, {name}, {kind}", blocks.mark, fixed
    yield "mark, again", blocks.mark, {"RULE": 0, "ADD": False, "KIND": 0, "AGAIN": True}
    yield "pack", packing.pack, {"EXACT": False}
    yield "pack, exact", packing.pack, {"EXACT": True}
    yield "add_counts", sums.add_counts, {"TILE": 4 * TILE}
    yield "halve", sums.halve, {"TILE": TILE}
    yield "total_up", sums.total_up, {"TILE": TILE}
    rounds = bits // 8
    yield "guess", largest.guess, {"SAMPLE": SAMPLE, "TOP": bits - 2, "ROUNDS": rounds}
    yield "gather", largest.gather, {}
    yield "gather_sampled", largest.gather_sampled, {"TILE": TILE}
    for name, number, shift, width in (
        ("first", 0, bits - 9, 8),
        ("middle", 1, bits - 17, 8),
        ("last", rounds - 1, 0, 7),
    ):
        fixed = {"ROUND": number, "SHIFT": shift, "WIDTH": width, "TILE": COUNTED}
        yield f"count_digits, {name}", largest.count_digits, fixed
    # Triton makes a constant of an argument that is 1.
    yield "count_digits, one program", largest.count_digits, {**fixed, "programs": 1, "num_rows": 1}
    yield "settle", largest.settle, {"ROUNDS": rounds}
    yield "compare", largest.compare, {}
    yield "share_ties", largest.share_ties, {"TILE": 4 * TILE}
    for kernel in (drawn.set_bits, drawn.take, sums.add_rows, sums.add_sent):
        yield kernel.__name__, kernel, {"TILE": TILE}
    yield "sample", surveying.sample, {"SAMPLE": reading.SAMPLE}
    yield "survey", surveying.survey, {"ALL": False}
    yield "survey, all", surveying.survey, {"ALL": True}
    yield "count_large", searching.count_large, {}
    yield "list_large", searching.list_large, {}
    yield "pack_signs", signing.pack_signs, {}


def quantisers() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The same of the kernels of quantisers."""
    yield "draw", quantising.draw, {"TILE": TILE}
    for kind in range(5):
        yield f"sum_up, {kind}", quantising.sum_up, {"KIND": kind}
        yield f"scale_parts, {kind}", quantising.scale_parts, {"KIND": kind, "TILE": TILE}
    for kernel in (quantising.round_to_signs, quantising.add_signs):
        for two in (0, 1):
            yield f"{kernel.__name__}, {two}", kernel, {"TWO": two}
    for kernel in (quantising.round_to_ternary, quantising.add_ternary):
        for each in (5, 8):
            yield f"{kernel.__name__}, {each}", kernel, {"EACH": each}
    yield "round_to_powers", quantising.round_to_powers, {}
    yield "add_powers", quantising.add_powers, {}
    for bits, fields in ((2, 2), (15, 5)):
        yield f"round_to_levels, {bits}", quantising.round_to_levels, {"BITS": bits, "number": 1}
        yield f"add_levels, {bits}", quantising.add_levels, {"BITS": bits, "FIELDS": fields}


KINDS_OF_HISTOGRAMS = {
    **dict.fromkeys(("words", "places", "groups"), "*i64"),
    **dict.fromkeys(("scales", "counts", "squares"), "*fp64"),
    **dict.fromkeys(("begin", "end", "workers", "number", "size"), "i32"),
}


def kind_of(name: str, entry: str, key: str) -> str:
    """The type of the kernel argument with this name."""
    if name in NUMBERS:
        return "i32"
    if name in ENTRIES:
        return f"*{entry}"
    if name in ("sums", "sums_of_all", "totals", "squares"):
        return "*fp64"
    if name in ("keys", "guesses", "candidates"):
        return f"*{key}"
    return "*i64" if name in WORDS else "*i32"


def resources(machine_code: bytes) -> dict[str, int]:
    """Registers and bytes of stack of a thread, from the CUDA tools in the triton package."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(machine_code)
        file.flush()
        told = subprocess.run(
            [TOOL, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = dict(re.findall(r"(REG|STACK):(\d+)", told))
    return {"registers": int(found["REG"]), "stack": int(found["STACK"])}


def main(capability: int = 90, entry: str = "fp32") -> None:
    key, bits = ("i32", 32) if entry == "fp32" else ("i64", 64)
    every = [(own, partial(kind_of, entry=entry, key=key)) for own in launches(bits)]
    for own in (("count", counting.count, {}), ("flush", counting.flush, {"TILE": TILE})):
        every.append((own, lambda n: KINDS_OF_HISTOGRAMS.get(n) or kind_of(n, entry=entry, key=key)))
    if entry == "fp32":
        every += [(own, KINDS_OF_QUANTISERS.__getitem__) for own in quantisers()]
    for (name, kernel, fixed), kind in every:
        names = kernel.arg_names
        signature = {n: "constexpr" if n in fixed else kind(n) for n in names}
        # torch's memory begins at addresses that 16 divides, and a launch notices it.
        aligned = {
            (i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if signature[n].startswith("*")
        }
        source = ASTSource(kernel, signature, {(names.index(n),): v for n, v in fixed.items()}, aligned)
        options = NO_FUSED_MULTIPLY_ADD | WARPS.get(kernel, {})
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        ptx = compiled.asm["ptx"]
        found = {
            "name": name,
            **resources(compiled.asm["cubin"]),
            "barriers": ptx.count("bar.sync"),
            "loads": len(re.findall(r"\bld\.global\b", ptx)),
            "wide": len(re.findall(r"\bld\.global\S*\.(?:v4\.b32|v2\.b64)", ptx)),  # 16 bytes a thread
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*(int(word) if word.isdigit() else word for word in sys.argv[1:]))
