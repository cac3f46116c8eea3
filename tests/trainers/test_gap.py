"""The distance to the virtual iterate: the mean residual under error feedback, and its bound."""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from methods import segment
from resuming import config_of, train
from skipping import BAD_STEPS, STEPS, Records, Snapshots
from skipping import trainer as skipping_trainer
from training import WORKERS

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.chunk_top_k import ChunkTopK
from compressors.core.codec import Codec
from compressors.feedback import DecayedFeedback, ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.diagnostics.gap import Gap
from trainers.diagnostics.probe import Probe
from trainers.diagnostics.settings import Diagnostics
from trainers.loop import run
from trainers.run.folder import RunFolder
from trainers.step.layout import Layout


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_skipped_steps_do_not_enter(scope: str) -> None:
    """The mean residual under error feedback; test_diagnostics.py has the other feedbacks and processes."""
    trainer = skipping_trainer(Communicator(WORKERS))
    layout = Layout(dict(trainer.model.named_parameters()), scope)
    reducer = build_reducer(TopK(density=0.2), layout.num_parameters, ErrorFeedback)
    diagnostics = Diagnostics(every=1, gap=Gap())
    records, snapshots = Records(), Snapshots()
    run(replace(trainer, layout=layout, reducer=reducer, diagnostics=diagnostics), records, snapshots)
    measured = {record["step"]: record for record in records if "diagnostics/gap" in record}
    assert measured.keys() == set(range(1, STEPS + 1)) - BAD_STEPS.keys()
    for step, record in measured.items():
        rows = [
            torch.cat([t.flatten() for name, t in state.tensors.items() if "reducer/residual" in name])
            for state in snapshots[step].workers.values()
        ]
        expected = torch.stack(rows).double().mean(0).square().sum().item()
        assert record["diagnostics/gap"] == pytest.approx(expected, rel=1e-4)
        assert 0 < record["diagnostics/gap"] <= record["diagnostics/gap_bound"]


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


@pytest.mark.parametrize(
    ("codec", "feedback", "has_bound"),
    [
        (HardThreshold(threshold=1.0), ErrorFeedback, True),
        (HardThreshold(threshold=1.0), DecayedFeedback, False),
        (ChunkTopK(k=1, chunk=5, aggregation="mean"), ErrorFeedback, True),
        (ChunkTopK(k=1, chunk=5), ErrorFeedback, False),
    ],
)
def test_no_bound_where_the_gap_is_not_the_mean_residual(
    codec: Codec, feedback: type[ErrorFeedback], has_bound: bool
) -> None:
    """What decays is lost: the gap of equal gradients below the threshold grows without limit."""
    probe = Probe(build_reducer(codec, 50, feedback), Diagnostics(every=1, gap=Gap()))
    state = probe.init([segment(torch.zeros(4, 50))])
    for number in range(60):
        inputs = inputs_of([segment(torch.full((4, 50), 0.04))])
        _, state = probe.reduce(inputs, state, Step(0, number), Communicator(4))
    gap, bound = (probe.latest.get(f"diagnostics/{name}", 0) for name in ("gap", "gap_bound"))
    assert (gap <= bound) == has_bound == (bound > 0)


def test_the_bound_of_chunks_of_a_matrix_holds() -> None:
    """A matrix of 64 x 64 entries has one chunk, of which 64 are sent; a vector would have 64 chunks."""
    codec = ChunkTopK(k=64, chunk=64, aggregation="mean")
    probe = Probe(build_reducer(codec, 4096, ErrorFeedback), Diagnostics(every=1, gap=Gap()))
    rows = torch.randn(2, 4096, generator=torch.Generator().manual_seed(0))
    whole = Segment("a", rows, ((64, 64),))
    state = probe.init([whole._replace(rows=torch.zeros_like(rows))])
    probe.reduce(inputs_of([whole]), state, Step(0, 0), Communicator(2))
    assert 0 < probe.latest["diagnostics/gap"] <= probe.latest["diagnostics/gap_bound"]
