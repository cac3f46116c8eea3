"""Small files in the formats of MNIST, Fashion-MNIST and CIFAR, and facts about the real files."""

import gzip
from pathlib import Path

import torch
from torch import Tensor

from compressors.core.randomness import generator
from data.classification import Split
from data.images.cifar import cifar10, cifar100
from data.images.mnist import fashion_mnist, mnist

IDX = {"mnist": (mnist, "MNIST"), "fashion_mnist": (fashion_mnist, "FashionMNIST")}
CIFAR = {
    "cifar10": (
        cifar10,
        "cifar-10-batches-bin",
        [f"data_batch_{i}.bin" for i in range(1, 6)],
        "test_batch.bin",
    ),
    "cifar100": (cifar100, "cifar-100-binary", ["train.bin"], "test.bin"),
}
NUMBERS = {
    "mnist": (10, (0.1307,), (0.3081,)),
    "fashion_mnist": (10, (0.2860,), (0.3530,)),
    "cifar10": (10, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": (100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def pixels(*shape: int, salt: str = "") -> Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=generator("pixels", salt))


def idx_bytes(array: Tensor) -> bytes:
    """An idx file of unsigned bytes: 0, 0, type 8, dimensions, the lengths big endian, the data."""
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.dim()]) + lengths + array.numpy().tobytes()


def write_idx(
    root: Path, folder: str, zipped: bool = False, train: int = 7, test: int = 4
) -> dict[str, Tensor]:
    """Write the four files of one dataset to ``root``; returns the arrays by part and kind."""
    raw = root / folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    held = {}
    for part, count in (("train", train), ("t10k", test)):
        for kind, array in (
            ("images-idx3", pixels(count, 28, 28, salt=part)),
            ("labels-idx1", torch.arange(count, dtype=torch.uint8) * 3 % 10),
        ):
            content = idx_bytes(array)
            name = f"{part}-{kind}-ubyte"
            (raw / (f"{name}.gz" if zipped else name)).write_bytes(
                gzip.compress(content) if zipped else content
            )
            held[f"{part}-{kind[:6]}"] = array
    return held


def write_cifar(root: Path, name: str, per_file: int = 3) -> tuple[Tensor, Tensor]:
    """Write all files of one dataset; returns images and fine labels of train and test in file order."""
    _, folder, train, test = CIFAR[name]
    (root / folder).mkdir()
    images = pixels(per_file * (len(train) + 1), 3, 32, 32)
    labels = (torch.arange(len(images)) * 7 % NUMBERS[name][0]).to(torch.uint8)
    for i, file in enumerate([*train, test]):
        content = b""
        for j in range(i * per_file, (i + 1) * per_file):
            coarse = [19] if name == "cifar100" else []
            content += bytes([*coarse, int(labels[j])]) + images[j].numpy().tobytes()
        (root / folder / file).write_bytes(content)
    return images, labels


def check_split(part: Split, images: Tensor, labels: Tensor) -> None:
    assert part.inputs.dtype == torch.uint8
    assert part.targets.dtype == torch.int64
    assert torch.equal(part.inputs, images)
    assert part.targets.tolist() == labels.tolist()
