"""The machine code of the GPU's kernels, compiled without a GPU: registers, barriers and widths of loads.

The interpreter, in which other tests run the kernels without a GPU, accepts code that the compiler rejects.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("triton", reason="a GPU's kernels are Triton's")

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "helpers" / "compile_kernels.py"
TOOL = "the triton package has no cuobjdump, with which its machine code is read"


class Level(NamedTuple):
    registers: int  # of a thread, at most; 64 leave room for 1,024 threads of a multiprocessor, 32 for 2,048
    barriers: int  # at most
    wide: int  # loads of 16 bytes by a thread, at least


LEVELS = {  # fp32, compute capability 9.0
    "mark, threshold, aligned": Level(60, 6, 16),
    "mark, threshold, whole": Level(62, 8, 0),
    "mark, threshold, partial": Level(88, 8, 0),
    "mark, threshold, no gradient, aligned": Level(64, 6, 8),
    "mark, threshold, no gradient, whole": Level(64, 8, 0),
    "mark, threshold, no gradient, partial": Level(76, 8, 0),
    "mark, given, aligned": Level(48, 3, 16),
    "mark, given, whole": Level(128, 3, 0),
    "mark, given, partial": Level(128, 3, 0),
    "mark, norm, aligned": Level(32, 1, 8),
    "mark, norm, whole": Level(32, 1, 0),
    "mark, norm, partial": Level(32, 1, 0),
    "mark, again": Level(70, 8, 0),
    "pack": Level(32, 12, 2),
    "pack, exact": Level(40, 24, 2),
    "add_counts": Level(49, 7, 0),
    "halve": Level(111, 0, 0),
    "total_up": Level(108, 1, 0),
    "guess": Level(124, 47, 0),
    "gather": Level(29, 10, 2),
    "gather_sampled": Level(56, 0, 0),
    "count_digits, first": Level(48, 3, 0),
    "count_digits, middle": Level(48, 13, 0),
    "count_digits, last": Level(73, 13, 0),
    "count_digits, one program": Level(78, 13, 0),
    "settle": Level(29, 10, 0),
    "compare": Level(32, 12, 2),
    "share_ties": Level(128, 10, 0),
    "set_bits": Level(32, 0, 0),
    "take": Level(64, 0, 0),
    "add_rows": Level(37, 0, 0),
    "add_sent": Level(36, 0, 0),
    "sample": Level(120, 0, 0),
    "survey": Level(160, 14, 0),
    "survey, all": Level(198, 18, 0),
    "count_large": Level(89, 2, 0),
    "list_large": Level(128, 1, 0),
    "pack_signs": Level(192, 1, 0),
    "count": Level(32, 0, 0),
    "flush": Level(72, 19, 12),
    "draw": Level(28, 0, 0),
    "sum_up, 0": Level(32, 1, 0),
    "scale_parts, 0": Level(74, 5, 0),
    "sum_up, 1": Level(48, 6, 0),
    "scale_parts, 1": Level(106, 5, 0),
    "sum_up, 2": Level(40, 2, 0),
    "scale_parts, 2": Level(40, 5, 0),
    "sum_up, 3": Level(80, 6, 0),
    "scale_parts, 3": Level(160, 11, 0),
    "sum_up, 4": Level(34, 1, 0),
    "scale_parts, 4": Level(54, 5, 0),
    "round_to_signs, 0": Level(96, 1, 0),
    "round_to_signs, 1": Level(150, 1, 0),
    "add_signs, 0": Level(168, 0, 0),
    "add_signs, 1": Level(107, 0, 0),
    "round_to_ternary, 5": Level(124, 1, 0),
    "round_to_ternary, 8": Level(96, 1, 0),
    "add_ternary, 5": Level(153, 0, 0),
    "add_ternary, 8": Level(124, 0, 0),
    "round_to_powers": Level(80, 1, 0),
    "add_powers": Level(80, 0, 0),
    "round_to_levels, 2": Level(136, 1, 0),
    "add_levels, 2": Level(128, 0, 0),
    "round_to_levels, 15": Level(213, 5, 0),
    "add_levels, 15": Level(208, 0, 0),
}


def compiled(capability: int, entry: str) -> dict[str, dict[str, int]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, SCRIPT, str(capability), entry]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if "cuobjdump" in done.stderr and "FileNotFoundError" in done.stderr:
        pytest.skip(TOOL)
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, done.stdout.splitlines())
    return {line.pop("name"): line for line in lines}


def test_the_levels_reached_are_kept() -> None:
    found = compiled(90, "fp32")
    assert found.keys() == LEVELS.keys()
    for name, level in LEVELS.items():
        own = found[name]
        assert own["registers"] <= level.registers, f"{name}: {own}"
        assert own["barriers"] <= level.barriers, f"{name}: {own}"
        assert own["wide"] >= level.wide, f"{name}: {own}"


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "entry"), [(80, "fp32"), (80, "fp64"), (90, "fp64")])
def test_kernels_compile_for_other_gpus_and_entries(capability: int, entry: str) -> None:
    names = list(LEVELS)
    if entry == "fp64":  # quantisers take fp32 alone; "draw" is the first of their kernels
        names = names[: names.index("draw")]
    assert list(compiled(capability, entry)) == names
