"""ACCORDION: choices against a computation in NumPy, in one process and in two; refusals."""

from typing import Any

import numpy as np
import pytest
import torch
from choosing import (
    EPOCHS,
    HIGH,
    LOW,
    PERIOD,
    RATES,
    SIZES,
    STEPS_PER_EPOCH,
    WORKERS,
    choose,
    gradients,
    settings,
)
from methods import FEEDBACKS, plan
from processes import run_in_processes


def by_hand() -> list[dict[str, bool]]:
    """Whether each layer is at k_high in each epoch, from the workers' gradients, in NumPy."""
    norms: list[dict[str, float]] = []
    for epoch in range(EPOCHS):
        steps = range(epoch * STEPS_PER_EPOCH, (epoch + 1) * STEPS_PER_EPOCH)
        sums = np.sum([gradients(step).double().numpy() for step in steps], 0)  # [n, D]
        layers = np.split(sums, np.cumsum(list(SIZES.values()))[:-1], axis=1)
        squares = {name: (x**2).sum(1) for name, x in zip(SIZES, layers, strict=True)}
        norms.append({name: float(np.sqrt(of_workers.mean())) for name, of_workers in squares.items()})
    choices = [dict.fromkeys(SIZES, True)]
    compared_with = norms[0]
    for epoch in range(1, EPOCHS):
        choice = dict(choices[-1])
        if epoch % PERIOD == 0:
            ended = norms[epoch - 1]
            for name, before in compared_with.items():
                choice[name] = abs(before - ended[name]) / before > 0.5
            compared_with = ended
        if RATES[epoch] < RATES[epoch - 1]:
            choice = dict.fromkeys(choice, True)
        choices.append(choice)
    return choices


@pytest.fixture(scope="module")
def one_process() -> dict[str, dict[str, Any]]:
    return {feedback: choose(feedback=feedback) for feedback in FEEDBACKS}


@pytest.mark.parametrize("feedback", FEEDBACKS)
def test_choices_replayed_from_norms(one_process: dict, feedback: str) -> None:
    """Elements and bytes of every step; 8 bytes per layer in steps that compare norms."""
    found = one_process[feedback]
    choices = by_hand()
    for step, sent in enumerate(found["sent"]):
        for name, at_high in choices[step // STEPS_PER_EPOCH].items():
            density = HIGH if at_high else LOW
            assert sent[name] == max(1, int(density * SIZES[name] + 1e-6)), (step, name)
        asked = (
            8 * len(SIZES) * (step in [STEPS_PER_EPOCH * epoch for epoch in (1, *range(3, EPOCHS, PERIOD))])
        )
        assert found["bytes"][step] == [8 * sum(sent.values()) + asked] * WORKERS
    tried = {name: {choice[name] for choice in choices} for name in SIZES}
    assert tried["a"] == {True, False}, "the data make it choose both"


def test_processes_choose_alike(one_process: dict) -> None:
    one = one_process["gradient"]
    for other in run_in_processes(choose, 2):
        assert one["sent"] == other["sent"] and one["bytes"] == other["bytes"]
        for a, b in zip(one["means"], other["means"], strict=True):
            assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_whole_model_has_one_choice() -> None:
    found = choose(whole=True)
    total = sum(SIZES.values())
    assert {tuple(sent) for sent in found["sent"]} == {("a",)}
    assert {sent["a"] for sent in found["sent"]} <= {int(LOW * total), int(HIGH * total)}


def test_what_never_sends_k_low_is_refused() -> None:
    every_third = settings(period=3)
    every_third.check(plan([1.0] * 4))
    every_third.check(plan([1.0, 1.0, 0.5, 0.5]))
    with pytest.raises(ValueError, match="its first choice comes after 3 epochs, but the run has 3; lower"):
        every_third.check(plan([1.0] * 3))
    with pytest.raises(ValueError, match="the learning rate is falling at every choice"):
        every_third.check(plan([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]))
    every_epoch = settings(period=1)  # after epoch 0 there is nothing to compare with
    every_epoch.check(plan([1.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="its first choice comes after 2 epochs"):
        every_epoch.check(plan([1.0, 1.0]))
    with pytest.raises(ValueError, match="the learning rate is falling at every choice"):
        every_epoch.check(plan([1.0, 1.0, 0.5]))
