"""CIFAR-10 and CIFAR-100, from files of the binary version in ``data.root`` or downloaded ones.

Images stay uint8 in memory. The binary version holds only bytes. The Python version, which torchvision
reads, is a pickle and could run code.
"""

import os
from pathlib import Path
from typing import Any

import torch

from data.checks import require_flag
from data.classification import ClassificationDataset, Split, require_labels
from data.download import fetch, take_from_tar
from data.files import not_downloaded, opened, path_of
from data.images.augment import Augmentation
from data.partition import Sharing

_HOME = "https://www.cs.toronto.edu/~kriz"


def cifar10(**settings: Any) -> ClassificationDataset:
    """60,000 colour images of 32 x 32 pixels, 10 classes (Krizhevsky, 2009)."""
    return _cifar_dataset(
        "cifar10",
        "cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
        [
            f"cifar-10-batches-bin/{part}.bin"
            for part in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
        ],
        num_classes=10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
        augmentation=Augmentation(padding=4, flip=True),
        **settings,
    )


def cifar100(**settings: Any) -> ClassificationDataset:
    """60,000 colour images of 32 x 32 pixels, 100 classes (Krizhevsky, 2009)."""
    return _cifar_dataset(
        "cifar100",
        "cifar-100-binary.tar.gz",
        "03b5dce01913d631647c71ecec9e9cb8",
        [f"cifar-100-binary/{part}.bin" for part in ("train", "test")],
        num_classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        augmentation=Augmentation(padding=4, flip=True, rotation=15),
        **settings,
    )


def _cifar_dataset(
    name: str,
    archive: str,
    md5: str,
    files: list[str],  # the last one holds the test split
    *,
    num_classes: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    augmentation: Augmentation,
    root: str,
    download: bool = False,
    augment: bool = True,
    **sharing: Any,
) -> ClassificationDataset:
    require_flag("data.download", download)
    require_flag("data.augment", augment)
    folder = path_of("data.root", root)
    paths = [folder / file for file in files]
    missing = [path for path in paths if not path.is_file()]
    if missing and download:
        packed = folder / f"arriving-{os.getpid()}.tar.gz"
        try:
            fetch(f"{_HOME}/{archive}", packed, md5, files=paths)
            take_from_tar(packed, dict(zip(files, paths, strict=True)))
        finally:
            packed.unlink(missing_ok=True)
    elif missing:
        pickled = folder / ("cifar-10-batches-py" if name == "cifar10" else "cifar-100-python")
        if pickled.is_dir():
            raise FileNotFoundError(
                f"data={name}: no file {missing[0]}; {pickled} is the Python version, which is not read, "
                f"because a pickle can run code; data.download=true downloads the binary version, {archive}"
            )
        raise not_downloaded(name, folder, missing[0])
    label_bytes = 2 if num_classes == 100 else 1  # CIFAR-100 has a coarse label before the fine one
    *train, test = [read_cifar(path, label_bytes) for path in paths]
    return ClassificationDataset(
        train=Split(torch.cat([part.inputs for part in train]), torch.cat([part.targets for part in train])),
        test=test,
        num_classes=num_classes,
        sharing=Sharing(**sharing),
        mean=mean,
        std=std,
        augmentation=augmentation if augment else None,
    )


def read_cifar(path: Path, label_bytes: int) -> Split:
    """Images [N, 3, 32, 32] uint8 and labels from a file of CIFAR's binary version.

    A record is ``label_bytes`` labels and 3,072 pixels; the last label is the class. Raises
    ``ValueError`` for a file that does not consist of such records, and for labels out of range.
    """
    record = label_bytes + 3 * 32 * 32
    with opened(path) as file:
        content = bytearray(file.read())
    if not content or len(content) % record:
        rule = f"its size must be a multiple of {record} bytes"
        raise ValueError(f"{path} is not a CIFAR file: {rule}, got {len(content)}")
    table = torch.frombuffer(content, dtype=torch.uint8).view(-1, record)
    for column, num_classes in enumerate((20, 100) if label_bytes == 2 else (10,)):
        require_labels(path, table[:, column], num_classes)
    return Split(table[:, label_bytes:].reshape(-1, 3, 32, 32), table[:, label_bytes - 1].long())
