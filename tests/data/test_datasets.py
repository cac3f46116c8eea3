"""Batches of datasets, and settings that all datasets check."""

from pathlib import Path

import pytest
import torch
from dataset_files import pixels, write_cifar, write_idx

from compressors.core.randomness import generator
from data.classification import ClassificationDataset, Split
from data.convex.breast_cancer import breast_cancer
from data.images.augment import Augmentation
from data.images.cifar import cifar10
from data.images.digits import digits
from data.images.mnist import mnist


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


def test_partition_is_checked_at_construction(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10")
    write_idx(tmp_path, "MNIST")
    for factory, settings in (
        (digits, {}),
        (breast_cancer, {}),
        (mnist, {"root": str(tmp_path)}),
        (cifar10, {"root": str(tmp_path)}),
    ):
        with pytest.raises(ValueError, match=r"data\.partition must be one of"):
            factory(partition="random", **settings)
        with pytest.raises(ValueError, match=r"data\.alpha"):
            factory(partition="dirichlet", **settings)
        assert factory(partition="dirichlet", alpha=0.5, **settings).alpha == 0.5
