"""Benchmarks: short checks that they work with the current code; complete benchmarks take minutes."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    spec.loader.exec_module(module)
    return module


def test_compress_builds_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("compress", monkeypatch)
    reducers = {str(case): case.reducer(0.01, 1000) for case in module.cases()}
    assert {"none", "top_k", "hard_threshold"} <= reducers.keys()
    assert "threshold=2.5758" in repr(reducers["hard_threshold"])  # 1 % of normal draws exceed it


def test_kernels_cuda_refuses_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    module = load("kernels_cuda", monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["kernels_cuda.py"])
    with pytest.raises(SystemExit, match="needs a GPU"):
        module.main()
