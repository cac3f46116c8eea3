"""CIFAR-10 and CIFAR-100 from files that the tests write byte by byte."""

from collections.abc import Callable
from pathlib import Path

import pytest
from dataset_files import CIFAR, NUMBERS, check_split, write_cifar

from data.images.augment import Augmentation
from data.images.cifar import cifar10, read_cifar


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_files_are_read(name: str, tmp_path: Path) -> None:
    factory = CIFAR[name][0]
    images, labels = write_cifar(tmp_path, name)
    dataset = factory(root=str(tmp_path))
    check_split(dataset.train, images[:-3], labels[:-3])
    check_split(dataset.test, images[-3:], labels[-3:])
    assert (dataset.num_classes, dataset.mean, dataset.std) == NUMBERS[name]
    assert dataset.model_arguments() == {"input_shape": (3, 32, 32), "num_classes": NUMBERS[name][0]}


def test_cifar_augmentation_is_the_papers(tmp_path: Path) -> None:
    for name, rotation in (("cifar10", 0), ("cifar100", 15)):
        write_cifar(tmp_path, name)
        factory = CIFAR[name][0]
        expected = Augmentation(padding=4, flip=True, rotation=rotation)
        assert factory(root=str(tmp_path)).augmentation == expected
        assert factory(root=str(tmp_path), augment=False).augmentation is None


@pytest.mark.parametrize("label_bytes", [1, 2])
@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b"", lambda b: b[:100]])
def test_damaged_cifar_file_is_named(label_bytes: int, change: Callable, tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(change(bytes(2 * (label_bytes + 3072))))
    with pytest.raises(ValueError, match="is not a CIFAR file") as refusal:
        read_cifar(path, label_bytes)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [([10], "0 to 9, got 10"), ([20, 0], "0 to 19, got 20"), ([0, 100], "0 to 99, got 100")],
)
def test_labels_are_classes(labels: list[int], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(bytes(len(labels) + 3072) + bytes(labels) + bytes(3072))
    with pytest.raises(ValueError, match=f"{path} must hold labels from {problem}"):
        read_cifar(path, len(labels))


def test_the_python_version_is_not_read_and_why(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"is the Python version, which is not read, .* the binary version"
    ):
        cifar10(root=str(tmp_path))
