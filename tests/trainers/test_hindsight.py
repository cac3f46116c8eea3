"""Hindsight error, compared with a sort of all p, and the regret of every method."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from methods import FEEDBACKS, named, segment
from processes import run_in_processes
from skipping import STEPS as SKIPPING_STEPS
from skipping import Records, Snapshots
from skipping import trainer as skipping_trainer
from torch import Tensor, nn
from training import WORKERS as SKIPPING_WORKERS
from training import SmallNet
from watching import SIZES, STEPS, THRESHOLD, WORKERS, gradient, learning_rate, segments_of

from compressors.api import Step, inputs_of
from compressors.build import build_reducer
from compressors.encoding.settings import Encoding
from compressors.none import NoCompression
from compressors.parts.magnitudes import Histogram, Magnitudes, count_pieces
from trainers.checkpoint.state import CheckpointMismatch
from trainers.comm.communicator import Communicator
from trainers.diagnostics.hindsight import Hindsight
from trainers.diagnostics.probe import Probe
from trainers.diagnostics.settings import Diagnostics
from trainers.loop import run
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

ERROR, REGRET, BOUND, LEVEL = (
    f"compression/{name}" for name in ("hindsight_error", "regret", "regret_bound", "hindsight_threshold")
)
ON = Diagnostics(every=1, hindsight=Hindsight())
METHODS = ("top_k", "hard_threshold", "random_k", "random_block")
SETTINGS = [(m, s, f) for m in METHODS for s in ("layer", "global") for f in FEEDBACKS][::2]
SOME = [SETTINGS[0], SETTINGS[5], SETTINGS[8]]


def layout_of(dtype: torch.dtype, scope: str) -> Layout:
    parameters = {f"layer{i}": nn.Parameter(torch.zeros(size, dtype=dtype)) for i, size in enumerate(SIZES)}
    return Layout(parameters, scope)


def followed(
    method: Any,
    scope: str = "layer",
    feedback: str = "gradient",
    process: int = 0,
    processes: int = 1,
    dtype: torch.dtype = torch.float32,
    wire: dict[str, str] | None = None,
) -> dict[str, Any]:
    """For random gradients: metrics after every step, all p of the local workers, the ledger's metrics."""
    communicator = Communicator(WORKERS, rank=process, world_size=processes, reduction="worker_order")
    reducer = build_reducer(method, sum(SIZES), FEEDBACKS[feedback], encoding=Encoding(**(wire or {})))
    ledger = Ledger(layout_of(dtype, scope), communicator, reducer)
    probe, stack, told = Probe(reducer, ON), [], []
    state = None
    for step in range(STEPS):
        rows = torch.stack([gradient(step, worker) for worker in communicator.local_workers]).to(dtype)
        segments = segments_of(rows, scope)
        if state is None:
            with torch.inference_mode():
                state = probe.init(segments)
        alpha = learning_rate(step) if feedback == "step" else 1.0
        p = rows.clone()
        if hasattr(state, "residual"):
            p = torch.cat([state.residual[s.name] for s in segments], 1).add(rows, alpha=alpha)
        stack.append(p.double())
        with torch.inference_mode():
            context = Step(0, step, learning_rate(step))
            reduced, state = probe.reduce(inputs_of(segments), state, context, communicator)
            ledger.record(reduced)
            ledger.close_step()
        told.append(probe.of_run(ledger))
    return {"told": told, "stack": torch.stack(stack), "metrics": ledger.metrics()}


def least_error(stack: Tensor, kept: float) -> float:
    """Sum of squares of all but the ``kept`` largest entries of ``stack`` [T, n, d], mean over n."""
    magnitudes = np.sort(stack.abs().numpy().ravel())[::-1]
    return float((magnitudes[round(kept) :] ** 2).sum()) / stack.shape[1]


def codec_of(method: str, feedback: str) -> Any:
    return named(method, {"shared_coordinates": True}).method(density=0.1, threshold=THRESHOLD[feedback])


@pytest.mark.parametrize("setting", SETTINGS, ids="/".join)
def test_the_exact_error_of_the_sorted_stack_is_within_the_bound(setting: tuple[str, str, str]) -> None:
    method, scope, feedback = setting
    found = followed(codec_of(method, feedback), scope, feedback)
    told, metrics = found["told"][-1], found["metrics"]
    kept = metrics["compression/density_mean"] * found["stack"].numel()
    exact = least_error(found["stack"], kept)
    regret = metrics["compression/total_error"] / exact - 1
    assert abs(told[REGRET] - regret) <= told[BOUND] < 0.01 and told[REGRET] >= 0
    assert told[ERROR] == pytest.approx(exact, rel=0.01)
    ordered = np.sort(found["stack"].abs().numpy().ravel())[::-1]
    assert told[LEVEL] == pytest.approx(ordered[round(kept) - 1], rel=2 / 32)
    if method == "hard_threshold":
        assert abs(told[REGRET]) <= told[BOUND]
        assert told[LEVEL] == pytest.approx(THRESHOLD[feedback], rel=2 / 32)
    else:
        assert told[REGRET] > 10 * told[BOUND]


def followed_all(process: int, processes: int) -> dict[str, list[dict[str, float]]]:
    found = {"/".join(s): followed(codec_of(s[0], s[2]), *s[1:], process, processes) for s in SOME}
    return {name: each["told"] for name, each in found.items()}


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_do_not_change_it(processes: int) -> None:
    one = followed_all(0, 1)
    for other in run_in_processes(followed_all, processes):
        for name, told in other.items():
            assert told == one[name], name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_precisions(dtype: torch.dtype) -> None:
    """A threshold has no regret in any dtype, although half precision rounds p."""
    found = followed(codec_of("hard_threshold", "gradient"), dtype=dtype)["told"][-1]
    assert abs(found[REGRET]) <= found[BOUND] < 0.01


def test_rounding_of_what_is_sent_is_regret() -> None:
    codec = codec_of("hard_threshold", "gradient")
    exact, rounded = (followed(codec, wire=wire)["told"][-1] for wire in (None, {"values": "bf16"}))
    assert abs(exact[REGRET]) <= exact[BOUND] and rounded[REGRET] > rounded[BOUND]


def test_what_sends_nothing_or_everything() -> None:
    nothing = followed(named("hard_threshold", {}).method(threshold=1e9))
    told = nothing["told"][-1]
    assert told[ERROR] == pytest.approx(nothing["metrics"]["compression/total_error"], rel=1e-6)
    assert abs(told[REGRET]) <= told[BOUND] < 1e-6 and LEVEL not in told
    everything = followed(named("top_k", {}).method(density=1.0))["told"][-1]
    assert everything == {ERROR: 0.0}
    assert followed(named("none", {}).method())["told"] == [{}] * STEPS


def ledger_of(total_error: float, sent: float, workers: int = 1) -> Ledger:
    ledger = Ledger(
        Layout({"a": nn.Parameter(torch.zeros(4))}, "layer"), Communicator(workers), NoCompression()
    )
    ledger.total_error += total_error
    ledger.total_counts.sent += sent
    return ledger


def magnitudes_of(*entries: float) -> Magnitudes:
    histogram = Histogram(1)
    count_pieces(inputs_of([segment(torch.tensor([entries]))]), histogram)
    return histogram.magnitudes


def test_the_bound_is_what_a_bin_leaves_open() -> None:
    """3 and 3.01 are in one bin, and one of them is kept."""
    told = Hindsight().measure(magnitudes_of(3.0, 3.01, 1.0), ledger_of(11.0, 1))
    assert told[ERROR] - 10 == pytest.approx(3.01**2 / 4 - 9 / 4, abs=0.02)
    for least in (1 + 3.0**2, 1 + 3.005**2):
        assert abs(told[REGRET] - (11 / least - 1)) <= told[BOUND]
    whole = Hindsight().measure(magnitudes_of(3.0, 3.01, 1.0), ledger_of(1.0, 2))
    assert abs(whole[REGRET]) <= whole[BOUND] < 1e-6


def test_what_cannot_be_told_is_absent() -> None:
    less = Hindsight().measure(magnitudes_of(3.0, 1.0, 1.0), ledger_of(0.5, 1))  # not a sparsifier
    assert less.keys() == {ERROR, LEVEL}
    assert Hindsight().measure(magnitudes_of(3.0, torch.inf), ledger_of(1.0, 1)) == {}
    assert Hindsight().measure(magnitudes_of(3e13, 1.0), ledger_of(1.0, 1)) == {}
    assert Hindsight().measure(magnitudes_of(1e-30, 2.0), ledger_of(0.0, 1)) == {ERROR: 0.0}


def trained(records: Records, snapshots: Snapshots) -> dict[str, float]:
    """The summary of a training that measures the error, and skips its third and its last step."""
    trainer = skipping_trainer(Communicator(SKIPPING_WORKERS), bad_steps={3: 2, SKIPPING_STEPS: 1})
    return run(replace(trainer, diagnostics=ON), records, snapshots)


def test_skipped_steps_do_not_enter() -> None:
    """A skipped step has a NaN, which would make the error infinite."""
    records, snapshots = Records(), Snapshots()
    summary = trained(records, snapshots)
    counts = [w.tensors["diagnostics/counts"] for w in snapshots[SKIPPING_STEPS].workers.values()]
    num_parameters = sum(p.numel() for p in SmallNet().parameters())
    assert torch.stack(counts).sum() == (SKIPPING_STEPS - 2) * SKIPPING_WORKERS * num_parameters
    assert summary[REGRET] == records[-1][REGRET] == records[-2][REGRET] > 0
    assert trained(Records(), Snapshots(snapshots[2]))[REGRET] == summary[REGRET]
    for worker in snapshots[2].workers.values():
        del worker.tensors["diagnostics/counts"]
    with pytest.raises(CheckpointMismatch, match="diagnostics/counts is absent in the checkpoint and float"):
        trained(Records(), Snapshots(snapshots[2]))
