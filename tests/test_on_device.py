"""Trainings on the pretended device: the same results as on the CPU, no faults, only documented waits."""

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import device_runs
import pytest
import torch
from device_runs import (
    NUM_SEGMENTS,
    NUM_WORKERS,
    methods,
    name_of,
    options,
    part_of,
    run_all,
    steps_of,
    train_all,
    with_hook,
)
from own_script import by_hand, network, reducer_for
from pretended_device import Wait
from pretended_nccl import as_groups, require_met
from processes import run_in_processes

from compressors.api import Codec
from compressors.feedback import StoredResidual

METHODS = methods()
# The first case of each method
FIRST = list({case.source: name for name, case in reversed(METHODS.items())}.values())[::-1]
REFERENCE = "kernels=reference"
HOOK_STEPS = 2  # one of them after DistributedDataParallel has regrouped its buckets
PIECES = ("trainer.batch_size=64", "trainer.micro_batch_size=32")
KERNELS = ("kernels=auto", "trainer.steps=2")  # Triton's kernels, in its interpreter
# Updates of all parameters at once, for which torch uses other code on a GPU
UPDATES = {
    "nesterov": ("optimizer.momentum=0.9", "optimizer.nesterov=true", "optimizer.weight_decay=0"),
    "released nesterov": ("optimizer.momentum=0.9", "optimizer.nesterov=release"),
}


def own_of(method: str) -> list[str]:
    """The override that selects a method's yaml, if that yaml chooses other feedback than the default."""
    source = METHODS[method].source
    chooses = isinstance(source, Path) and "override /feedback" in source.read_text()
    return [f"compressor={source.stem}"] if isinstance(source, Path) and chooses else []


FEEDBACKS = {name: [f"feedback={name}"] for name in options("feedback")}
FEEDBACKS["diana"] += ["compressor=natural"]  # DIANA refuses the default compressor, which is biased
# One method of each kind of message, and some methods and feedback with state; the slow tests have all
KINDS = ("accordion", "clt_k", "hard_threshold", "none", "powersgd", "qsgd")
QUICK = [
    *((name, [REFERENCE, *own_of(name)]) for name in FIRST if METHODS[name].name in KINDS),
    ("natural", [REFERENCE, *FEEDBACKS["diana"]]),
    ("hard_threshold", [REFERENCE, *FEEDBACKS["momentum_correction"]]),
    ("hard_threshold", [*KERNELS]),
    ("none", [REFERENCE, *UPDATES["released nesterov"]]),
    ("top_k", [REFERENCE, "trainer.clip_norm=0.1", "trainer.nonfinite=skip", *PIECES]),
]
WIRES = ([], ["wire.indices=auto"], ["wire.indices=rice", "wire.values=int8"], ["wire.values=bf16"])
# In two processes: all kinds of collectives, in one reduction and during the backward pass
TOGETHER = [
    (method, [REFERENCE, "trainer.steps=2", "trainer.batch_size=64", *layout])
    for method in ("none", "hard_threshold", "ok_topk")  # the last one gathers entries that are on the host
    for layout in (["workers=4"], ["workers=2"])
]
# Waits allowed outside of steps: copies of data and model to the device, and of metrics from it
ALLOWED = {
    *(
        "trainers/run/build.py:build_training",
        "trainers/training.py:new_state",
        "trainers/checkpoint/fit.py:require_fit",
    ),
    *(
        "trainers/checkpoint/state.py:capture",
        "trainers/checkpoint/state.py:restore",
        "trainers/evaluation.py:evaluate",
    ),
    *(
        "trainers/step/ledger.py:metrics",
        "trainers/step/ledger.py:layers",
        "trainers/step/advance.py:mean_loss",
    ),
    *("trainers/diagnostics/probe.py:of_run", "trainers/network_model/step_costs.py:seconds_of_none"),
    "trainers/step/gradients.py:require_finite_weights",
}


def value(formula: str, scope: str) -> int:
    is_global = scope == "global"
    segments = 1 if is_global else NUM_SEGMENTS
    known = {"S": segments, "L": NUM_SEGMENTS, "W": NUM_WORKERS, "G": int(is_global)}
    terms = [[known[f] if f in known else int(f) for f in term.split()] for term in formula.split("+")]
    return sum(math.prod(term) for term in terms)


def require_documented(result: dict[str, Any], method: str, reference: bool, scope: str = "layer") -> None:
    """Assert that the waits of every step are those that the method declares."""
    waits = (METHODS | device_runs.PLANTED)[method].method().waits
    most = value(waits[reference], scope)
    of_reductions = []
    for step in steps_of(result["waits"]):
        parts = Counter(part_of(wait) for wait in step)
        strangers = [f"{wait.what} at {wait.line}" for wait in step if part_of(wait) == "elsewhere"]
        assert not strangers
        assert parts["gradients"] == 1
        clock = [wait.frames[:2] for wait in step if part_of(wait) == "clock"]
        assert {inner for inner, _ in clock} == {"trainers/comm/clock.py:now"}
        around = [caller for _, caller in clock if caller == "trainers/step/explicit.py:run"]
        assert len(around) == 3, "others are those of collectives"
        of_reductions.append(parts["reduction"])
    assert of_reductions
    places = Counter(f"{wait[0]} at {wait[1]}" for wait in result["waits"])
    more = 5 if "more" in waits[2] else 0  # further stages, or a wrong guess
    assert max(of_reductions) <= most + more, places
    if waits != Codec.waits:
        assert max(of_reductions) >= most, f"{method} waits less often than it declares"


def require_alike(result: dict[str, Any]) -> None:
    assert "error" not in result, result["error"]
    assert result["unlike"] == []


@pytest.fixture(scope="module")
def quick() -> dict[str, Any]:
    return run_in_processes(train_all, 1, QUICK)[0]


@pytest.mark.parametrize(("method", "overrides"), QUICK, ids=[name_of(*own) for own in QUICK])
def test_a_training_on_the_device_is_that_on_the_cpu(
    quick: dict[str, Any], method: str, overrides: list[str]
) -> None:
    result = quick[name_of(method, overrides)]
    require_alike(result)
    require_documented(result, method, REFERENCE in overrides)


def test_planted_faults_are_found_in_a_training() -> None:
    planted = [("AskingTopK", [REFERENCE]), ("StrayTopK", [REFERENCE])]
    asking, stray = run_in_processes(train_all, 1, planted)[0].values()
    with pytest.raises(AssertionError, match=r"_local_scalar_dense at tests/helpers/planted_faults.py:\d+"):
        require_documented(asking, "AskingTopK", True)
    assert re.match(r"DeviceFault: .* at tests/helpers/planted_faults.py:\d+$", stray["error"])


def test_the_whole_run_goes_on_from_one_device_to_the_other(tmp_path: Path) -> None:
    diagnostics = f"diagnostics=[{','.join(options('diagnostics'))}]"
    overrides = [REFERENCE, diagnostics, "diagnostics.every=2", "trainer.average_reset_epochs=1"]
    overrides += ["trainer.steps=6", "trainer.batch_size=384", "optimizer.momentum=0.9"]
    (result,) = run_in_processes(run_all, 1, [overrides], str(tmp_path))[0].values()
    require_alike(result)
    strangers = [f"{wait[0]} at {wait[1]}" for wait in result["waits"] if not is_allowed(Wait(*wait))]
    assert not strangers


def is_allowed(wait: Wait) -> bool:
    return bool((ALLOWED | set(device_runs.IN_STEP)) & set(wait.frames))


def require_together(
    trainings: list[tuple[str, list[str]]], processes: int, folder: Path, *, may_refuse: bool = False
) -> None:
    """Assert that NCCL's rules are kept and the result equals that of one process on the CPU."""
    results = run_in_processes(train_all, processes, trainings, str(folder))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for method, overrides in trainings:
        own = [of_process[name_of(method, overrides)] for of_process in results]
        if may_refuse and "error" in own[0]:
            assert own[0]["error"].startswith("ValueError: ")
            assert all(result.get("error") == own[0]["error"] for result in own)
            continue
        require_met([as_groups(result["calls"]) for result in own])
        alone = [one for one in overrides if "overlap" not in one]
        expected = device_runs.train(alone, method, torch.device("cpu"))
        for result in own:
            assert torch.equal(result["weights"], expected["weights"]), name_of(method, overrides)
    torch.set_num_threads(threads)


def test_processes_keep_the_rules_of_nccl(tmp_path: Path) -> None:
    require_together(TOGETHER, 2, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [None, "cpu", "bf16"])
def test_the_hook_on_the_device(memory: str | None, tmp_path: Path) -> None:
    reducer = reducer_for(network())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected, _ = by_hand(2, HOOK_STEPS, memory and StoredResidual(reducer, memory=memory))
    torch.set_num_threads(threads)
    results = run_in_processes(with_hook, 2, str(tmp_path), HOOK_STEPS, memory)
    for result in results:
        assert torch.equal(result["weights"], expected)
        assert result["devices"] == {"cpu" if memory == "cpu" else "cuda"}
        in_hook = [Wait(*own) for own in result["waits"] if "trainers/hooks/state.py:reduce" in own[2]]
        assert {part_of(wait) for wait in in_hook} == {"reduction", "trial"}  # the first step tries kernels
        others = len(result["waits"]) - len(in_hook)
        assert "comm/break_even_bits_per_second" in result["summary"]
        assert others == 2, "DistributedDataParallel looks once which gradient came first"
    require_met([as_groups(result["calls"]) for result in results])


SMALL = [f"small/{path.stem}" for path in sorted((device_runs.CONF / "experiment/small").glob("*.yaml"))]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["accordion/resnet20", "autolrs/resnet20", *SMALL])
def test_every_small_preset_runs_on_the_device(preset: str) -> None:
    """Results are not compared: torch uses other code for attention and LSTMs on a GPU."""
    overrides = [f"experiment={preset}", REFERENCE, "trainer.epochs=null", "trainer.steps=2"]
    (result,) = run_in_processes(train_all, 1, [("", overrides)])[0].values()
    if "download" in result.get("error", ""):
        pytest.skip(f"its data are not here: {result['error']}")
    assert "error" not in result, result["error"]
    for step in steps_of(result["waits"]):
        parts = Counter(part_of(wait) for wait in step)
        assert not parts["elsewhere"], step
        assert parts["gradients"] == 1


CROSSED = [
    (method, [kernels, *words, f"scope={scope}"])
    for method in METHODS
    for words in FEEDBACKS.values()
    for scope in ("layer", "global")
    for kernels in ("kernels=reference", "kernels=auto")
]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_feedback_scope_and_kernels(method: str) -> None:
    crossed = [own for own in CROSSED if own[0] == method]
    results = run_in_processes(train_all, 1, crossed)[0]
    assert any("error" not in result for result in results.values())
    for (_, overrides), result in zip(crossed, results.values(), strict=True):
        if result.get("error", "").startswith(
            "ValueError: "
        ):  # a refusal; test_bad_configurations checks its text
            continue
        require_alike(result)
        scope = next(one.removeprefix("scope=") for one in overrides if one.startswith("scope="))
        require_documented(result, method, REFERENCE in overrides, scope)


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES, ids=" ".join)
def test_every_wire_and_update(wire: list[str]) -> None:
    exact = [m for m in FIRST if METHODS[m].method().traits.exact and m not in ("none", "chain", "clt_k")]
    trainings = [(method, [REFERENCE, *wire]) for method in exact]
    trainings += [("top_k", [REFERENCE, *wire, *update]) for update in UPDATES.values()]
    usual = ["experiment=quick", REFERENCE, "trainer.epochs=null", "trainer.steps=3"]
    trainings += [("top_k", [*usual, f"optimizer={name}"]) for name in options("optimizer")]
    results = run_in_processes(train_all, 1, trainings)[0].values()
    assert any("error" not in result for result in results)
    for result in results:
        if not result.get("error", "").startswith("ValueError: "):
            require_alike(result)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_every_method_keeps_the_rules_of_nccl(tmp_path: Path, processes: int) -> None:
    layouts = (
        [f"workers={2 * processes}"],
        [f"workers={processes}"],
        [f"workers={processes}", "wire.values=bf16"],
    )
    trainings = [
        (method, [REFERENCE, "trainer.batch_size=200", "trainer.steps=9", *layout])
        for method in METHODS
        for layout in layouts
    ]
    require_together(trainings, processes, tmp_path, may_refuse=True)
