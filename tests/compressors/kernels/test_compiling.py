"""Compilation of loops: processes that share a cache compile a loop once."""

import importlib
import multiprocessing
import sys
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from compressors.kernels.cpu import compiling

LOOPS = """
from compressors.kernels.cpu.compiling import compiled

@compiled
def inner(x):
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total

@compiled
def outer(x):
    return inner(x) + 1.0
"""
PROCESSES = 3


def call(path: Path, together: Barrier, results: multiprocessing.SimpleQueue) -> None:
    sys.path.insert(0, str(path.parent))  # cached code refers to its module by name
    loops = importlib.import_module(path.stem)
    together.wait(600)
    value = loops.outer(np.ones(3))
    results.put((value, *(sum(loop.stats.cache_misses.values()) for loop in (loops.outer, loops.inner))))


@pytest.fixture
def run_together(tmp_path: Path) -> Callable[[], list[tuple[float, int, int]]]:
    """Call the loops in several processes at once; value, compilations of outer and of inner per process."""
    path = tmp_path / "loops_of_a_test.py"
    path.write_text(LOOPS)
    context = multiprocessing.get_context("fork")

    def run() -> list[tuple[float, int, int]]:
        together, results = context.Barrier(PROCESSES), context.SimpleQueue()
        children = [context.Process(target=call, args=(path, together, results)) for _ in range(PROCESSES)]
        for child in children:
            child.start()
        for child in children:
            child.join(600)
        assert [child.exitcode for child in children] == [0] * PROCESSES
        return [results.get() for _ in children]

    return run


def test_one_process_compiles_for_all(run_together: Callable[[], list[tuple[float, int, int]]]) -> None:
    found = run_together()
    assert [value for value, *_ in found] == [4.0] * PROCESSES
    assert sum(outer for _, outer, _ in found) == 1
    assert sum(inner for *_, inner in found) == 1


def test_without_a_lock_each_process_compiles(
    run_together: Callable[[], list[tuple[float, int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without locks the code is compiled more than once, and the results are the same."""

    def refuse(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(compiling.fcntl, "flock", refuse)
    found = run_together()
    assert [value for value, *_ in found] == [4.0] * PROCESSES
    assert sum(outer for _, outer, _ in found) > 1
