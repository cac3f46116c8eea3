"""Density schedules: values per epoch, refused settings, and the number of elements sent in a step."""

import pytest
import torch
from methods import plan, segment

from compressors.api import Step, elements_of, inputs_of
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.core.density import Constant, Exponential, density_schedule
from compressors.feedback import ErrorFeedback
from compressors.kernels.choice import chosen
from compressors.random_block import RandomBlock
from compressors.random_k import RandomK
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator


def test_exponential_is_the_warm_up_of_dgc() -> None:
    found = [Exponential().at(epoch, 0.001) for epoch in range(6)]
    assert found == pytest.approx([0.25, 0.0629, 0.0158, 0.00398, 0.001, 0.001], rel=5e-3)
    assert found[4] == found[5] == 0.001
    assert [Exponential(start=1.0, epochs=1).at(epoch, 0.1) for epoch in (0, 1)] == [1.0, 0.1]


def test_names_and_settings_make_schedules() -> None:
    assert density_schedule("constant", 0.1) == Constant()
    assert density_schedule("exponential", 0.1) == Exponential(start=0.25, epochs=4)
    assert density_schedule({"kind": "exponential", "epochs": 2}, 0.1) == Exponential(epochs=2)
    halves = density_schedule({"kind": "step", "milestones": [2, 4], "factor": 0.5}, 0.1)
    assert [halves.at(epoch, 0.1) for epoch in range(6)] == [0.1, 0.1, 0.05, 0.05, 0.025, 0.025]
    assert [Constant().at(epoch, 0.1) for epoch in (0, 100)] == [0.1, 0.1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (None, "budget.schedule must be constant, exponential, step, or"),
        ("linear", "got 'linear'"),
        ("step", "budget.schedule.milestones is missing: step needs it"),
        (
            {"kind": "exponential", "factor": 2},
            "budget.schedule.factor has no effect: exponential has no such",
        ),
        ({"kind": "exponential", "start": 1.5}, r"budget.schedule.start must be in \(0, 1\], got 1.5"),
        ({"kind": "exponential", "start": 0.01}, r"start must be above the density at its end \(0.1\)"),
        ({"kind": "exponential", "epochs": 0}, "budget.schedule.epochs must be an integer >= 1, got 0"),
        (
            {"kind": "step", "milestones": [0], "factor": 0.5},
            "milestones must be epochs >= 1 in rising order",
        ),
        ({"kind": "step", "milestones": [1], "factor": 1}, "factor must be > 0 and not 1, got 1"),
        (
            {"kind": "step", "milestones": [1, 2], "factor": 4},
            r"no density exceeds 1 \(the first one is 0.1\), got 4",
        ),
    ],
)
def test_bad_schedules(settings: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TopK(density=0.1, schedule=settings)


def test_a_milestone_after_the_run_is_refused() -> None:
    reducer = build_reducer(
        TopK(density=0.1, schedule={"kind": "step", "milestones": [3, 9], "factor": 0.5}), 9
    )
    reducer.check(plan([1.0] * 4))
    with pytest.raises(ValueError, match="milestones has no effect: the first comes after 3 epochs"):
        reducer.check(plan([1.0] * 3))
    build_reducer(TopK(density=0.1, schedule="exponential"), 9).check(plan([1.0]))


def test_a_chain_follows_the_schedules_of_its_parts() -> None:
    chain = Chain(first=TopK(density=0.1, schedule="exponential"), second=TopK(density=0.5))
    sent = [len(chain.encode(torch.randn(1000), Step(0, 0, epoch=epoch)).values) for epoch in (0, 9)]
    assert sent == [125, 50]


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize("codec", [TopK, RandomK, RandomBlock])
def test_a_step_sends_what_the_schedule_says(codec: type, kernels: str) -> None:
    """k follows the epoch, also at fractions of an epoch; rounding (1 - 1e-12) counts as the next epoch."""
    size, workers = 1000, 2
    method = codec(density=0.01, schedule={"kind": "exponential", "start": 0.16, "epochs": 2})
    reducer = build_reducer(method, size, ErrorFeedback)
    rows, communicator = torch.zeros(workers, size), Communicator(workers)
    state = reducer.init([segment(rows)])
    for epoch, density in ((0, 0.16), (0.9, 0.16), (1 - 1e-12, 0.04), (1.5, 0.04), (2, 0.01), (9.7, 0.01)):
        rows.copy_(torch.randn(workers, size, generator=torch.Generator().manual_seed(0)))
        context = Step(0, int(epoch), epoch=epoch)
        with chosen(kernels):
            reduced, state = reducer.reduce(inputs_of([segment(rows)]), state, context, communicator)
        k = elements_of(density, size)
        assert reduced.compressed["a"].sent.tolist() == [[k]] * workers
        assert communicator.take_charges()[:, 0].tolist() == [4 * k] * workers
