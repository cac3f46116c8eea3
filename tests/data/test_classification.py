"""Loss and metrics of classification, compared with hand-computed numbers."""

import math

import pytest
import torch
from torch import nn

from data.classification import Classification, LabelledBatch

LN3 = math.log(3)
# softmax: (1/4, 3/4), (3/4, 1/4), (1/2, 1/2)
LOGITS = torch.tensor([[0.0, LN3], [LN3, 0.0], [1.0, 1.0]])
TARGETS = torch.tensor([1, 1, 0])
LOSSES = [math.log(4 / 3), math.log(4), math.log(2)]
MODEL = nn.Identity()


def test_loss_is_the_mean_cross_entropy() -> None:
    loss, memory = Classification().loss(MODEL, LabelledBatch(LOGITS, TARGETS))
    assert memory is None
    assert loss.item() == pytest.approx(sum(LOSSES) / 3, rel=1e-6)


def test_gradient_of_the_loss_is_softmax_minus_one_hot_over_the_batch() -> None:
    logits = LOGITS.clone().requires_grad_()
    Classification().loss(MODEL, LabelledBatch(logits, TARGETS))[0].backward()
    expected = torch.tensor([[0.25, -0.25], [0.75, -0.75], [-0.5, 0.5]]) / 3
    torch.testing.assert_close(logits.grad, expected)


def test_measure_sums_losses_and_counts_right_answers_and_samples() -> None:
    """The first sample is correct, and the third too: of equal logits the lower class is the answer."""
    sums = Classification().measure(MODEL, LabelledBatch(LOGITS, TARGETS))
    assert sums.dtype == torch.float64
    assert sums.shape == (Classification.num_sums,)
    assert sums.tolist() == pytest.approx([sum(LOSSES), 2, 3], rel=1e-6)


def test_measure_adds_up_in_double_precision() -> None:
    logits = torch.tensor([[17.0, 0.0]]).expand(5000, 2)  # a loss that float32 rounds by 3 %
    total, _, _ = (
        Classification().measure(MODEL, LabelledBatch(logits, torch.zeros(5000, dtype=torch.int64))).tolist()
    )
    assert total == pytest.approx(5000 * math.log1p(math.exp(-17)), rel=1e-8)


def test_summarise_weighs_samples_not_batches() -> None:
    task = Classification()
    sums = sum(
        task.measure(MODEL, LabelledBatch(LOGITS[part], TARGETS[part])) for part in (slice(0, 2), slice(2, 3))
    )
    metrics = task.summarise(sums)
    assert metrics == {
        "loss": pytest.approx(sum(LOSSES) / 3, rel=1e-6),
        "accuracy": pytest.approx(2 / 3, rel=1e-12),
    }


def test_summarise_by_hand() -> None:
    sums = torch.tensor([6.0, 3.0, 4.0], dtype=torch.float64)
    assert Classification().summarise(sums) == {"loss": 1.5, "accuracy": 0.75}


def test_higher_is_better_names_metrics_that_exist() -> None:
    metrics = Classification().summarise(torch.ones(3))
    assert Classification.higher_is_better == {"accuracy"}
    assert Classification.higher_is_better < set(metrics)
