"""Datasets of the papers' sizes in little memory: one black image, repeated."""

from typing import Any

import pytest
import torch

from data.classification import ClassificationDataset, Split
from data.images.augment import Augmentation
from data.partition import Sharing

SHAPES = {  # shape of an image, number of classes and of training images
    "mnist": ((1, 28, 28), 10, 60_000),
    "cifar10": ((3, 32, 32), 10, 50_000),
    "cifar100": ((3, 32, 32), 100, 50_000),
}


def black(
    *, name: str, partition: str, alpha: float | None, reshard: str, drop_last: bool, **_: Any
) -> ClassificationDataset:
    """Black training images and 10,000 black test images in the shape of dataset ``name``."""
    shape, classes, count = SHAPES[name]

    def part(count: int) -> Split:
        images = torch.zeros(1, *shape, dtype=torch.uint8).expand(count, *shape)
        return Split(images, torch.arange(count) % classes)

    return ClassificationDataset(
        train=part(count),
        test=part(10_000),
        num_classes=classes,
        sharing=Sharing(partition=partition, alpha=alpha, reshard=reshard, drop_last=drop_last),
        augmentation=Augmentation(padding=4, flip=True),
    )


def has_images(data: dict[str, Any]) -> bool:
    """Whether ``stub`` can replace the dataset of this config."""
    return _name(data) in SHAPES


def stub(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the factory of a dataset by ``black``, which needs no files."""
    name = _name(data)

    def factory(**settings: Any) -> ClassificationDataset:
        return black(name=name, **settings)

    module = data["_target_"].rpartition(".")[0]
    factory.__module__ = module  # a config may name only functions that their module defines
    monkeypatch.setattr(f"{module}.{name}", factory)


def _name(data: dict[str, Any]) -> str:
    return data["_target_"].rsplit(".", 1)[1]
