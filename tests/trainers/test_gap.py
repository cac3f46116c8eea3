"""The distance to the virtual iterate: the mean residual under error feedback, equal in all layouts."""

from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
import torch
from gaps import RATE, SETTINGS, whole_and_gone_on
from methods import segment
from processes import run_in_processes
from resuming import config_of, train
from skipping import BAD_STEPS, STEPS
from training import SmallNet

from compressors.api import Step, inputs_of
from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.kernels.choice import backend_of, chosen
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.diagnostics.gap import Gap
from trainers.diagnostics.probe import Probe
from trainers.diagnostics.settings import Diagnostics
from trainers.run.folder import RunFolder

Results = dict[str, list[dict[str, float]]]
SAVED = 5  # the step after which another training continues


@pytest.fixture(scope="module")
def outcomes() -> dict[int, list[dict[str, Results]]]:
    """By number of processes, for each process: whole trainings, and their continuations after step SAVED."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield {1: [whole_and_gone_on(0, 1, SAVED)], 2: run_in_processes(whole_and_gone_on, 2, SAVED)}
    torch.set_num_threads(threads)


@pytest.mark.parametrize("setting", SETTINGS, ids="/".join)
def test_it_is_the_mean_residual(
    outcomes: dict[int, list[dict[str, Results]]], setting: tuple[str, str, str]
) -> None:
    """Skipped steps are excluded. A residual in units of the parameters is divided by the learning rate."""
    name, _, feedback = setting
    steps = outcomes[1][0]["whole"]["/".join(setting)]
    measured = [step for step in steps if "diagnostics/gap" in step]
    assert [step["step"] for step in measured] == [s for s in range(1, STEPS + 1) if s not in BAD_STEPS]
    for step in measured:
        gap, relative = step["diagnostics/gap"], step["diagnostics/gap_relative"]
        if name == "none":
            assert relative < 1e-12
        elif feedback != "none":
            expected = step["residual"] / (RATE**2 if feedback == "step" else 1)
            assert gap > 0 and gap == pytest.approx(expected, rel=1e-4)
        else:
            assert step["residual"] == 0 and gap > 0
        assert relative <= 1.5 or feedback != "none"


@pytest.mark.parametrize("setting", SETTINGS, ids="/".join)
def test_it_is_below_the_bound_of_the_lemma(
    outcomes: dict[int, list[dict[str, Results]]], setting: tuple[str, str, str]
) -> None:
    """Top-k's bound follows from the gradients, a threshold's is D lambda^2; other cases have no bound."""
    name, _, feedback = setting
    steps = outcomes[1][0]["whole"]["/".join(setting)]
    bounds = [step["diagnostics/gap_bound"] for step in steps if "diagnostics/gap_bound" in step]
    has_bound = name in ("top_k", "hard_threshold") and feedback != "none"
    assert len(bounds) == (STEPS - len(BAD_STEPS) if has_bound else 0)
    gaps = [step["diagnostics/gap"] for step in steps if "diagnostics/gap" in step]
    for gap, bound in zip(gaps, bounds, strict=False):
        assert 0 < gap <= bound
    if has_bound and name == "hard_threshold":
        num_parameters = sum(parameter.numel() for parameter in SmallNet().parameters())
        expected = num_parameters * 0.02**2 / (RATE**2 if feedback == "step" else 1)
        assert bounds == pytest.approx([expected] * len(bounds), rel=1e-12)


@pytest.mark.parametrize("setting", SETTINGS, ids="/".join)
def test_processes_do_not_change_it(
    outcomes: dict[int, list[dict[str, Results]]], setting: tuple[str, str, str]
) -> None:
    one, first, second = (each["whole"]["/".join(setting)] for each in (*outcomes[1], *outcomes[2]))
    assert first == second
    for before, after in zip(one, first, strict=True):
        assert after == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_training_goes_on_with_it(outcomes: dict[int, list[dict[str, Results]]], processes: int) -> None:
    for name, steps in outcomes[processes][-1]["gone_on"].items():
        assert [each["step"] for each in steps] == list(range(SAVED + 1, STEPS + 1))
        for one, other in zip(outcomes[1][0]["whole"][name][SAVED:], steps, strict=True):
            assert other == pytest.approx(one, rel=1e-12)


def test_another_number_of_workers_takes_it_over(tmp_path: Path) -> None:
    small = ("model=mlp", "compressor=top_k", "trainer.batch_size=8", "budget.density=0.05")
    small = (*small, "diagnostics=[gap]", "diagnostics.every=1")
    four = config_of(tmp_path / "four", *small, "workers=4", "trainer.steps=4")
    before = train(four)
    asked = (*small, "trainer.steps=7", f"resume={RunFolder(four).path}", "checkpoint.redistribute=true")
    outcomes = {4: before}
    for workers in (2, 8):
        outcomes[workers] = train(config_of(tmp_path / str(workers), *asked, f"workers={workers}"))
    for workers, outcome in outcomes.items():
        rows: dict[str, list[torch.Tensor]] = defaultdict(list)
        for name, tensor in outcome["tensors"].items():
            if "/reducer/residual/" in name:
                rows[name.split("/residual/")[1]].append(tensor.double())
        assert {len(of) for of in rows.values()} == {workers}
        expected = sum((sum(of) / workers).square().sum().item() for of in rows.values())
        assert expected > 0
        gap = [record["diagnostics/gap"] for record in outcome["records"] if "diagnostics/gap" in record]
        assert gap[-1] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_loops_add_the_same_bits(dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(5)
    flat = torch.randn(3, 9000, generator=random).to(dtype)
    parts = [flat[:, 10:17], flat[:, 20:21], flat[:, 100:7100]]  # views of a buffer, like layers
    totals = [torch.randn(7008, generator=random, dtype=torch.float64)] * 2
    totals[1] = totals[0].clone()
    expected = totals[0] + torch.cat(parts, 1).double().sum(0)
    for total, kernels in zip(totals, ("auto", "reference"), strict=True):
        with chosen(kernels):
            backend_of(total.device).add_wide(parts, total)
    assert torch.equal(*totals)
    torch.testing.assert_close(totals[0], expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("scale", ["gradient", "step"])
def test_the_bound_by_hand(scale: str) -> None:
    """||e'|| <= sqrt(1 - delta) (||e|| + ||g||), below the lemma's closed form.

    With ``scale=step`` there is no bound after a change of the learning rate.
    """
    feedback = partial(ErrorFeedback, scale=scale)
    probe = Probe(build_reducer(TopK(density=0.2), 50, feedback), Diagnostics(every=1, gap=Gap()))
    state, bound, largest = probe.init([segment(torch.zeros(4, 50))]), 0.0, 0.0
    for number in range(6):
        rows = torch.randn(4, 50, generator=torch.Generator().manual_seed(number))
        norms = rows.double().square().sum(1).sqrt()
        bound = (1 - 10 / 50) ** 0.5 * (bound + norms.mean().item())
        largest = max(largest, norms.max().item())
        rate = 0.5 if number < 5 else 0.25
        step = Step(0, number, learning_rate=rate)
        _, state = probe.reduce(inputs_of([segment(rows)]), state, step, Communicator(4))
        if number < 5 or scale == "gradient":
            assert probe.latest["diagnostics/gap_bound"] == pytest.approx(bound**2, rel=1e-12)
            assert bound**2 <= (1 - 0.2) * (2 * largest / 0.2) ** 2
        else:
            assert "diagnostics/gap_bound" not in probe.latest
