"""Every diagnostic, compared with a plain NumPy computation on saved residuals and gradients."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from methods import named, segment
from processes import run_in_processes
from resuming import config_of, train
from watching import (
    AGES,
    DENSITIES,
    DENSITY,
    SETTINGS,
    SIZES,
    STEPS,
    THRESHOLD,
    WORKERS,
    diagnostics,
    gradient,
    learning_rate,
    reducer_of,
    segments_of,
    watched,
    watched_all,
)

from compressors.api import Step, inputs_of
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback, MomentumCorrection
from compressors.kernels.choice import backend_of, chosen
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.config.errors import ConfigError
from trainers.diagnostics.bound import Bound
from trainers.diagnostics.probe import Probe
from trainers.diagnostics.selection_error import SelectionError
from trainers.diagnostics.settings import Diagnostics
from trainers.diagnostics.staleness import Staleness
from trainers.diagnostics.xi import Xi
from trainers.run import training
from trainers.run.folder import RunFolder

PIECES = {"global": [slice(0, sum(SIZES))], "layer": []}
PIECES["layer"] = [slice(end - size, end) for size, end in zip(SIZES, np.cumsum(SIZES), strict=True)]


def kept(x: np.ndarray, method: str, feedback: str, density: float = DENSITY) -> np.ndarray:
    """The entries of a segment that the method keeps."""
    if method == "hard_threshold":
        return np.abs(x) >= THRESHOLD[feedback]
    mask = np.zeros(len(x), dtype=bool)
    mask[np.argsort(-np.abs(x), kind="stable")[: max(1, math.floor(density * len(x) + 1e-9))]] = True
    return mask


def plain(steps: list[dict[str, Any]], method: str, scope: str, feedback: str) -> list[dict[str, float]]:
    """The metrics of every step, computed only from residuals e and gradients g."""
    pieces = PIECES[scope]
    last = np.zeros((WORKERS, sum(SIZES)), dtype=int)
    found = []
    whole, apart = np.zeros(sum(SIZES)), np.zeros(sum(SIZES))
    of_residuals = np.zeros((WORKERS, len(pieces)))  # bounds of their norms, in units of the gradient
    for number, step in enumerate(steps, 1):
        alpha = learning_rate(number - 1) if feedback == "step" else 1.0
        e, g = step["residual"].double().numpy(), step["gradient"].double().numpy()
        p, mean_gradient = e + alpha * g, g.mean(0)
        norm = np.linalg.norm(mean_gradient)
        masks, of_mean = np.zeros(p.shape, dtype=bool), np.zeros(p.shape[1])
        bounds = np.zeros(WORKERS)
        metrics = {}
        for place, piece in enumerate(pieces):
            mean = p.mean(0)[piece]
            of_mean[piece] = mean * kept(mean, method, feedback)
            for worker in range(WORKERS):
                x = p[worker, piece]
                masks[worker, piece] = kept(x, method, feedback)
                share = 1 - max(1, math.floor(DENSITY * len(x) + 1e-9)) / len(x)
                threshold = THRESHOLD[feedback]
                bounds[worker] += share * x @ x if method == "top_k" else len(x) * threshold**2
                if method == "top_k":
                    norm_of_g = np.linalg.norm(g[worker, piece])
                    of_residuals[worker, place] = math.sqrt(share) * (of_residuals[worker, place] + norm_of_g)
                else:
                    of_residuals[worker, place] = math.sqrt(len(x)) * threshold / alpha
        metrics["diagnostics/xi"] = np.linalg.norm(of_mean - (p * masks).mean(0)) / (alpha * norm)
        metrics["diagnostics/error_bound"] = bounds.mean()
        whole += mean_gradient
        apart += mean_gradient - (p * masks).mean(0) / alpha
        metrics["diagnostics/gap"] = apart @ apart
        metrics["diagnostics/gap_relative"] = (apart @ apart) / (whole @ whole)
        rates = {learning_rate(step) for step in range(number)}
        if feedback == "gradient" or (feedback == "step" and len(rates) == 1):
            metrics["diagnostics/gap_bound"] = np.square(of_residuals.mean(0)).sum()
        for density in DENSITIES:
            lost = mean_gradient.copy()
            for piece in pieces:
                lost[piece][kept(mean_gradient[piece], "top_k", feedback, density)] = 0
            metrics[f"diagnostics/selection_error_{density:g}"] = np.linalg.norm(lost) / norm
        if feedback != "none":
            waits = number - 1 - last[masks]
            last[masks] = number
            held, mass = number - last, (p * ~masks) ** 2
            metrics["diagnostics/waited_longest"] = waits.max()
            metrics["diagnostics/waited_mean"] = waits.mean()
            metrics["diagnostics/unsent_longest"] = held.max()
            for age in AGES:
                metrics[f"diagnostics/waited_{age}"] = np.mean(waits >= age)
                metrics[f"diagnostics/unsent_{age}"] = np.mean(held >= age)
                metrics[f"diagnostics/residual_unsent_{age}"] = mass[held >= age].sum() / mass.sum()
        found.append(metrics)
    return found


@pytest.fixture(scope="module")
def one_process() -> dict[str, list[dict[str, Any]]]:
    return watched_all(0, 1)


@pytest.mark.parametrize("setting", SETTINGS, ids="/".join)
def test_metrics_are_those_of_a_plain_computation(one_process: dict, setting: tuple[str, str, str]) -> None:
    steps = one_process["/".join(setting)]
    for step, expected in zip(steps, plain(steps, *setting), strict=True):
        assert step["metrics"] == pytest.approx(expected, rel=1e-6, abs=1e-6)
        if setting[2] == "gradient":
            mean_residual = step["residual_after"].double().mean(0).square().sum().item()
            gap = step["metrics"]["diagnostics/gap"]
            assert mean_residual == pytest.approx(gap, rel=1e-4) and gap <= expected["diagnostics/gap_bound"]


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_do_not_change_a_metric(one_process: dict, processes: int) -> None:
    for result in run_in_processes(watched_all, processes):
        for name, steps in result.items():
            for one, other in zip(one_process[name], steps, strict=True):
                found, expected = dict(other["metrics"]), dict(one["metrics"])
                bound = expected.pop("diagnostics/gap_bound", 0)  # a sum of norms in another order
                assert found.pop("diagnostics/gap_bound", 0) == pytest.approx(bound, rel=1e-14), name
                assert found == expected, name
                first = other["charges"]
                assert all(charged == one["charges"][0] for charged in first) or "hard" in name


@pytest.mark.parametrize("setting", SETTINGS, ids="/".join)
def test_watching_changes_nothing_and_is_not_charged(setting: tuple[str, str, str]) -> None:
    method, scope, feedback = setting
    reducer, communicator, state = reducer_of(method, feedback), Communicator(WORKERS), None
    for step, seen in enumerate(watched(*setting)):
        segments = segments_of(seen["gradient"].clone(), scope)
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(
            inputs_of(segments), state, Step(0, step, learning_rate(step)), communicator
        )
        residual = torch.cat([reduced.residual[s.name] for s in segments], 1)
        assert torch.equal(residual, seen["residual_after"])
        assert communicator.take_charges().tolist() == seen["charges"]


def test_between_two_measurements_only_the_waits_are_followed() -> None:
    setting = ("top_k", "layer", "gradient")
    always, seldom = watched(*setting), watched(*setting, every=5)
    measured = [number for number, step in enumerate(seldom, 1) if step["metrics"]]
    assert measured == [5, 10, STEPS]
    assert all(seldom[number - 1]["metrics"] == always[number - 1]["metrics"] for number in measured)


@pytest.mark.parametrize(
    ("name", "shared"), [("random_k", False), ("random_block", False), ("random_block", True)]
)
def test_staleness_follows_random_coordinates(name: str, shared: bool) -> None:
    """For separate and shared positions: an entry was sent if its residual is 0."""
    codec = named(name, {"shared_coordinates": shared}).method(density=0.3)
    probe = Probe(
        ErrorFeedback(build_reducer(codec, 20)), Diagnostics(every=1, staleness=Staleness(ages=[1, 2]))
    )
    draw = torch.Generator().manual_seed(0)
    communicator, state = Communicator(3), probe.init([segment(torch.zeros(3, 20))])
    last = torch.zeros(3, 20, dtype=torch.int32)
    for step in range(9):
        rows = torch.rand(3, 20, generator=draw) + 0.1  # so that only sent entries have residual 0
        reduced, state = probe.reduce(inputs_of([segment(rows)]), state, Step(0, step), communicator)
        last[reduced.residual["a"] == 0] = step + 1
        assert torch.equal(probe.state["sent_at"], last)


def test_nothing_sent_and_no_gradient_leave_metrics_out() -> None:
    codec = named("hard_threshold", {}).method(threshold=1.0)
    probe = Probe(ErrorFeedback(build_reducer(codec, 20)), diagnostics("gradient"))
    state = probe.init([segment(torch.zeros(2, 20))])
    _, state = probe.reduce(inputs_of([segment(torch.zeros(2, 20))]), state, Step(0, 0), Communicator(2))
    assert probe.latest.keys() >= {
        "diagnostics/error_bound",
        "diagnostics/unsent_longest",
        "diagnostics/unsent_1",
        "diagnostics/gap",
    }
    absent = {
        "diagnostics/gap_relative",
        "diagnostics/xi",
        "diagnostics/selection_error_0.1",
        "diagnostics/waited_1",
        "diagnostics/waited_mean",
    }
    assert not absent & probe.latest.keys()
    assert not any(name.startswith("diagnostics/residual") for name in probe.latest)


@pytest.mark.parametrize(
    ("name", "feedback", "asked", "message"),
    [
        (
            "random_k",
            "gradient",
            {"xi": Xi()},
            "diagnostics=xi needs .* top_k or hard_threshold: .*; selection_error works with all compressors",
        ),
        ("reused_threshold", "gradient", {"xi": Xi()}, "diagnostics=xi needs .* or C is not one function"),
        ("chunk_top_k", "gradient", {"xi": Xi()}, "diagnostics=xi needs aggregation=mean: a mean over"),
        ("none", "gradient", {"bound": Bound()}, "diagnostics=bound needs a lossy compressor"),
        ("top_k", "none", {"staleness": Staleness(ages=[1])}, "diagnostics=staleness needs feedback=ef"),
    ],
)
def test_what_a_method_cannot_give_is_refused(name: str, feedback: str, asked: dict, message: str) -> None:
    settings = {"shared_coordinates": True} if name.startswith("random") else {}
    method = named(name, settings).method()
    inner = build_reducer(method, 100, ErrorFeedback if feedback != "none" else lambda inner: inner)
    with pytest.raises(ValueError, match=message):
        Probe(inner, Diagnostics(**asked))
    Probe(inner, Diagnostics(selection_error=SelectionError(densities=[0.1])))


def test_waits_need_a_residual_without_what_was_sent() -> None:
    reducer = build_reducer(TopK(density=0.1), 100, partial(ErrorFeedback, beta=0.1))
    with pytest.raises(ValueError, match="diagnostics=staleness needs feedback=ef: under low_pass"):
        Probe(reducer, Diagnostics(staleness=Staleness(ages=[1])))


def test_xi_reads_the_gradients_before_feedback_replaces_them() -> None:
    """Momentum correction writes velocities over them; xi is the same beside another diagnostic."""
    found = []
    for more in ({}, {"selection_error": SelectionError(densities=[0.1])}):
        reducer = build_reducer(TopK(density=0.1), sum(SIZES), partial(MomentumCorrection, momentum=0.9))
        probe = Probe(reducer, Diagnostics(every=1, xi=Xi(), **more))
        state: Any = None
        for step in range(3):
            flat = torch.stack([gradient(step, worker) for worker in range(WORKERS)])
            segments = segments_of(flat, "global")
            state = probe.init(segments) if state is None else state
            _, state = probe.reduce(inputs_of(segments), state, Step(0, step, 0.1), Communicator(WORKERS))
            found.append(probe.latest["diagnostics/xi"])
    assert found[:3] == found[3:]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Diagnostics, {"every": 0}, "diagnostics.every must be an integer >= 1, got 0"),
        (Diagnostics, {"xi": {"foo": 1}}, "diagnostics.xi.foo has no effect: xi has no such setting"),
        (SelectionError, {"densities": [0.1, 0.1]}, "densities must be a list of different densities"),
        (Staleness, {"ages": [2, 2]}, "ages must be a list of different integers >= 1"),
    ],
)
def test_bad_settings_are_refused(kind: type, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_a_checkpoint_goes_without_what_is_not_asked_for_any_more(tmp_path: Path) -> None:
    """State of a diagnostic that is off is dropped. Waits need all steps, so missing state is refused."""
    small = ("model=mlp", "compressor=top_k", "workers=2", "trainer.batch_size=8", "trainer.steps=4")
    with_waits = config_of(tmp_path / "with", *small, "diagnostics=[staleness]")
    without = config_of(tmp_path / "without", *small)
    for config in (with_waits, without):
        train(config)
    folders = [RunFolder(config).path for config in (with_waits, without)]
    longer = (*small[:-1], "trainer.steps=6", f"resume={folders[0]}")
    after = train(config_of(tmp_path / "longer", *longer))
    left = [name for name in (*after["tensors"], *after["summary"]) if name.startswith("diag")]
    assert after["summary"]["step"] == 6 and not left
    asked = config_of(tmp_path / "asked", *longer[:-1], f"resume={folders[1]}", "diagnostics=[staleness]")
    with pytest.raises(ConfigError, match="diagnostics/sent_at is absent in the checkpoint and int32"):
        training.train(asked)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_loops_measure_the_same_bits(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(5)
    rows = torch.randn(3, 2000, generator=random).to(dtype)[:, 100:1100]  # a layer's part of the buffer
    backends = []
    for kernels in ("auto", "reference"):
        with chosen(kernels):
            backends.append(backend_of(rows.device))
    assert backends[0] is not backends[1]
    totals = [torch.ones(1007, dtype=torch.float64) for _ in backends]
    for backend, total in zip(backends, totals, strict=True):
        backend.add_wide([rows[:, :7], rows], total)  # views of a buffer, like layers
    assert torch.equal(*totals)
    torch.testing.assert_close(totals[0][7:], 1 + rows.double().sum(0), rtol=1e-14, atol=1e-14)
    sums = [backend.sum_wide(rows) for backend in backends]
    assert sums[0].dtype == torch.float64 and torch.equal(*sums)
    sent_at = torch.randint(0, 8, (1300,), generator=random, dtype=torch.int32)  # 1 to 7; 0: never sent
    rests = [rows[1], rows[2][:300]]
    by_kernel, by_torch = (backend.count_ages(8, sent_at, rests) for backend in backends)
    assert by_kernel[0].sum() == 1300 and by_kernel[0][0] == 0
    for own, other in zip(by_kernel, by_torch, strict=True):
        assert torch.equal(own[: len(other)], other) and not own[len(other) :].any()
