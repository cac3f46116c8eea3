"""Tests of the GPU kernels by pytest on the device, with the names of failed tests."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.measuring import Options, Record

ROOT = Path(__file__).parents[2]
FILES = {  # with the packages that each needs beside pytest and triton
    "tests/compressors/kernels/test_gpu_kernels.py": (),
    "tests/compressors/kernels/test_gpu_reading.py": (),
    "tests/compressors/kernels/test_gpu_reducers.py": ("hydra", "omegaconf"),
}
FEW = "totals_of_many or ties_of_many"  # the tests of a quick run


def measure(options: Options, record: Record) -> None:
    lacking = {file: [name for name in needs if find_spec(name) is None] for file, needs in FILES.items()}
    for file, names in lacking.items():
        if names:
            record("not measured", what=file, reason=f"{', '.join(names)} missing")
    files = [file for file, names in lacking.items() if not names]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *files, "-p", "no:cacheprovider", f"--junitxml={report}"]
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if options.device.type == "cpu" else {}
        if options.quick:
            command += ["-k", FEW]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | hidden, check=False)
        if done.returncode not in (0, 1):  # all passed, or some failed
            raise SystemExit(f"pytest ended with status {done.returncode}")
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {f"{case.get('name')}": _why(case, "failure", "error") for case in cases}
    failed = {name: why for name, why in failed.items() if why is not None}
    skipped = [case for case in cases if case.find("skipped") is not None]
    passed = len(cases) - len(failed) - len(skipped)
    if passed + len(failed) == 0:
        raise SystemExit(f"all {len(cases)} tests were skipped")
    where = "the GPU" if options.device.type == "cuda" else "Triton's interpreter"
    record("tests", where=where, passed=passed, failed=len(failed), skipped=len(skipped))
    for name, why in failed.items():
        record("failed tests", test=name, why=why)


def _why(case: ElementTree.Element, *kinds: str) -> str | None:
    found = next((own for kind in kinds if (own := case.find(kind)) is not None), None)
    return None if found is None else (found.get("message") or "").split("\n")[0][:200]
