"""MNIST and Fashion-MNIST, from idx files in ``data.root`` or downloaded ones.

Images stay uint8 in memory.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data.checks import require_flag
from data.classification import ClassificationDataset, Split, require_labels
from data.download import fetch
from data.files import find, not_downloaded, opened, path_of
from data.partition import Sharing

SUFFIXES = ("", ".gz")
_MNIST_HOME = "https://ossci-datasets.s3.amazonaws.com/mnist"  # torchvision's mirror of the authors' site
_MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
# The authors' repository; their other site has no https.
_FASHION_MNIST_HOME = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_FASHION_MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}


def mnist(**settings: Any) -> ClassificationDataset:
    """70,000 handwritten digits of 28 x 28 pixels, 10 classes (LeCun et al., 1998)."""
    return _idx_dataset("mnist", "MNIST", _MNIST_HOME, _MNIST_MD5, mean=0.1307, std=0.3081, **settings)


def fashion_mnist(**settings: Any) -> ClassificationDataset:
    """70,000 articles of clothing of 28 x 28 pixels, 10 classes (Xiao et al., 2017)."""
    home, md5 = _FASHION_MNIST_HOME, _FASHION_MNIST_MD5
    return _idx_dataset("fashion_mnist", "FashionMNIST", home, md5, mean=0.2860, std=0.3530, **settings)


def _idx_dataset(
    name: str,
    folder: str,
    home: str,
    md5: dict[str, str],
    *,
    mean: float,
    std: float,
    root: str,
    download: bool = False,
    **sharing: Any,
) -> ClassificationDataset:
    require_flag("data.download", download)
    raw = path_of("data.root", root) / folder / "raw"
    stems = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    for stem in stems:
        if download and find(raw, stem, SUFFIXES) is None:
            file = f"{stem}.gz"
            fetch(f"{home}/{file}", raw / file, md5[file], files=[raw / name for name in stems])
    found = {stem: find(raw, stem, SUFFIXES) for stem in stems}
    paths = [path for path in found.values() if path is not None]
    if len(paths) < len(stems):
        missing = next(stem for stem, path in found.items() if path is None)
        raise not_downloaded(name, raw.parents[1], raw / missing)
    train, test = (_idx_split(images, labels, num_classes=10) for images, labels in (paths[:2], paths[2:]))
    return ClassificationDataset(
        train=train,
        test=test,
        num_classes=10,
        sharing=Sharing(**sharing),
        mean=(mean,),
        std=(std,),
    )


def _idx_split(images_path: Path, labels_path: Path, num_classes: int) -> Split:
    images, labels = read_idx(images_path), read_idx(labels_path)
    if images.shape[1:] != (28, 28):
        raise ValueError(f"{images_path} must hold images of 28 x 28 pixels, got {list(images.shape)}")
    if labels.shape != images.shape[:1]:
        raise ValueError(
            f"{labels_path} must hold a label for each of {len(images)} images, got {list(labels.shape)}"
        )
    require_labels(labels_path, labels, num_classes)
    return Split(images[:, None], labels.long())


def read_idx(path: Path) -> Tensor:
    """A uint8 tensor from an idx file, gzipped or not. Raises ``ValueError`` for another format."""
    with opened(path) as file:
        content = bytearray(file.read())
    start = 4 + 4 * content[3] if len(content) > 3 else 4
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    if content[:3] != b"\0\0\x08" or not 0 < math.prod(shape) == len(content) - start:
        raise ValueError(
            f"{path} is not an idx file of bytes: its header says {str(shape)[:80]}, "
            f"and it has {len(content)} bytes"
        )
    return torch.frombuffer(content, dtype=torch.uint8, offset=start).view(shape)
