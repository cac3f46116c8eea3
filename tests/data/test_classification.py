"""Classification: loss and metrics, compared with hand-computed numbers, and batches of images."""

import math
from pathlib import Path

import pytest
import torch
from dataset_files import pixels, write_cifar, write_idx
from torch import nn

from compressors.core.randomness import generator
from data.classification import Classification, ClassificationDataset, LabelledBatch, Split
from data.convex.breast_cancer import breast_cancer
from data.images.augment import Augmentation
from data.images.cifar import cifar10
from data.images.digits import digits
from data.images.mnist import mnist
from data.partition import Sharing

LN3 = math.log(3)
# softmax: (1/4, 3/4), (3/4, 1/4), (1/2, 1/2)
LOGITS = torch.tensor([[0.0, LN3], [LN3, 0.0], [1.0, 1.0]])
TARGETS = torch.tensor([1, 1, 0])
LOSSES = [math.log(4 / 3), math.log(4), math.log(2)]
MODEL = nn.Identity()


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


def test_higher_is_better_names_metrics_that_exist() -> None:
    metrics = Classification().summarise(torch.ones(3))
    assert Classification.higher_is_better == {"accuracy"}
    assert Classification.higher_is_better < set(metrics)


def test_batches_are_read_scaled_and_normalised_by_channel() -> None:
    images = pixels(6, 3, 4, 5)
    part = Split(images, torch.arange(6))
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    dataset = ClassificationDataset(train=part, test=part, num_classes=6, mean=mean, std=std)
    for batch in (
        dataset.held_out_batch("test", torch.tensor([4, 0])),
        dataset.train_batch(torch.tensor([4, 0]), generator(0)),
    ):
        assert batch.targets.tolist() == [4, 0]
        assert batch.inputs.dtype == torch.float32
        for channel in range(3):
            expected = (images[[4, 0], channel] / 255 - mean[channel]) / std[channel]
            torch.testing.assert_close(batch.inputs[:, channel], expected)
    assert torch.equal(dataset.train.inputs, pixels(6, 3, 4, 5))


def test_only_training_batches_are_augmented_and_before_normalisation() -> None:
    """The padding's zeros are normalised too: they become -mean / std, which is black."""
    part = Split(torch.full((40, 1, 2, 2), 255, dtype=torch.uint8), torch.zeros(40, dtype=torch.int64))
    dataset = ClassificationDataset(
        train=part, test=part, num_classes=1, mean=(0.5,), std=(0.25,), augmentation=Augmentation(padding=1)
    )
    assert dataset.held_out_batch("test", torch.arange(40)).inputs.unique().tolist() == [2.0]
    trained = dataset.train_batch(torch.arange(40), generator(0)).inputs
    assert trained.unique().tolist() == [-2.0, 2.0]
    same = dataset.train_batch(torch.arange(40), generator(0)).inputs
    assert torch.equal(trained, same)


def test_every_setting_of_the_sharing_arrives(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10")
    write_idx(tmp_path, "MNIST")
    given = {"partition": "iid", "alpha": 0.5, "reshard": "epoch", "drop_last": True}
    for factory, settings in (
        (digits, {}),
        (breast_cancer, {}),
        (mnist, {"root": str(tmp_path)}),
        (cifar10, {"root": str(tmp_path)}),
    ):
        assert factory(**settings, **given).sharing == Sharing(**given)
