"""MNIST and Fashion-MNIST from files that the tests write byte by byte."""

import gzip
import os
from pathlib import Path

import pytest
import torch
from dataset_files import IDX, NUMBERS, check_split, idx_bytes, pixels, write_idx

from data.images.mnist import mnist, read_idx


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", IDX)
def test_idx_files_are_read(name: str, zipped: bool, tmp_path: Path) -> None:
    factory, folder = IDX[name]
    held = write_idx(tmp_path, folder, zipped)
    dataset = factory(root=str(tmp_path))
    check_split(dataset.train, held["train-images"][:, None], held["train-labels"])
    check_split(dataset.test, held["t10k-images"][:, None], held["t10k-labels"])
    assert dataset.model_arguments() == {"input_shape": (1, 28, 28), "num_classes": 10}
    assert (dataset.num_classes, dataset.mean, dataset.std) == NUMBERS[name]
    assert dataset.augmentation is None


def test_idx_of_any_shape(tmp_path: Path) -> None:
    path = tmp_path / "cube"
    for array in (pixels(5), pixels(2, 300), pixels(3, 4, 5), pixels(1, 1, 1, 2)):
        path.write_bytes(idx_bytes(array))
        assert torch.equal(read_idx(path), array)


PLAIN = idx_bytes(pixels(3, 28, 28))
ZIPPED = gzip.compress(PLAIN, mtime=0)
DAMAGED_IDX = {
    "header-cut": PLAIN[:10],
    "one-byte-short": PLAIN[:-1],
    "one-byte-long": PLAIN + b"\0",
    "floats": b"\0\0\x0d" + PLAIN[3:],
    "zipped-without-gz": ZIPPED,
    "not-gzip.gz": PLAIN,
    "checksum.gz": ZIPPED[:-8] + bytes(4) + ZIPPED[-4:],
    "of-no-sample": idx_bytes(torch.empty(0, 28, 28, dtype=torch.uint8)),
}


@pytest.mark.parametrize(
    ("images", "labels", "problem"),
    [
        ((7, 1, 784), (7,), "train-images-idx3-ubyte must hold images of 28 x 28"),
        ((7, 28), (7,), "train-images-idx3-ubyte must hold images of 28 x 28"),
        ((7, 28, 28), (7, 1), "train-labels-idx1-ubyte must hold a label for each of 7 images"),
    ],
)
def test_shapes(images: tuple, labels: tuple, problem: str, tmp_path: Path) -> None:
    write_idx(tmp_path, "MNIST")
    for name, shape in (("images-idx3", images), ("labels-idx1", labels)):
        (tmp_path / f"MNIST/raw/train-{name}-ubyte").write_bytes(
            idx_bytes(torch.zeros(shape, dtype=torch.uint8))
        )
    with pytest.raises(ValueError, match=problem):
        mnist(root=str(tmp_path))


@pytest.mark.parametrize(("file", "content"), DAMAGED_IDX.items(), ids=DAMAGED_IDX.keys())
def test_damaged_idx_file_is_named(file: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be read|is not an idx file") as refusal:
        read_idx(path)
    assert str(path) in str(refusal.value)


def test_as_many_labels_as_images(tmp_path: Path) -> None:
    write_idx(tmp_path, "MNIST")
    labels = tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(torch.zeros(6, dtype=torch.uint8)))  # for 7 images
    with pytest.raises(ValueError, match=rf"{labels} must hold a label for each of 7 images, got \[6\]"):
        mnist(root=str(tmp_path))


def test_labels_are_classes(tmp_path: Path) -> None:
    write_idx(tmp_path, "MNIST")
    labels = tmp_path / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    labels.write_bytes(idx_bytes(torch.tensor([0, 9, 10, 3], dtype=torch.uint8)))
    with pytest.raises(ValueError, match=f"{labels} must hold labels from 0 to 9, got 10"):
        mnist(root=str(tmp_path))


def test_real_mnist() -> None:
    """MNIST has its published label counts, and the preset's mean and deviation; needs files in DATA_DIR."""
    root = Path(os.environ.get("DATA_DIR", ""))
    if not list(root.glob("MNIST/raw/train-images-idx3-ubyte*")):
        pytest.skip("no MNIST in $DATA_DIR")
    dataset = mnist(root=str(root))
    assert dataset.train.inputs.shape == (60000, 1, 28, 28)
    assert dataset.test.inputs.shape == (10000, 1, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert dataset.train.targets.bincount().tolist() == counts
    assert dataset.test.targets.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    histogram = dataset.train.inputs.flatten().bincount(minlength=256).double()
    levels = torch.arange(256, dtype=torch.float64) / 255
    mean = (histogram @ levels) / histogram.sum()
    std = ((histogram @ levels**2) / histogram.sum() - mean**2).sqrt()
    assert (mean.item(), std.item()) == (pytest.approx(0.1307, abs=1e-4), pytest.approx(0.3081, abs=1e-4))
