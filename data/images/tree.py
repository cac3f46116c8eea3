"""Image files in one folder per class, with their classes and splits."""

import os
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import data.torchvision_shim  # noqa: F401  must precede the first import of torchvision
from data.stratified import held_out_mask

SPLITS = {"test": "test", "val": "validation"}  # folders beside train, and their names in metrics


@dataclass(frozen=True)
class ImageFiles:
    """Images of one split, sorted by class and then by path."""

    paths: tuple[str, ...]  # N
    targets: Tensor  # [N] int64

    def __len__(self) -> int:
        return len(self.paths)


class ImageTree(NamedTuple):
    """Class names, sorted, and the files of the splits: "train", "test", perhaps "validation"."""

    classes: tuple[str, ...]
    splits: dict[str, ImageFiles]


def read_tree(folder: Path, held_out: float | None) -> ImageTree:
    """The images under ``folder``, which holds either train/ and test/ or val/, or one folder per class.

    If there is no test folder, val is the test split. Without a train folder, ``held_out`` is the
    fraction of every class that becomes the test split. Raises ``FileNotFoundError`` for missing
    folders. Raises ``ValueError`` for a single class, for classes that differ between splits or have no
    images, and for a ``held_out`` that is missing, has no effect, or leaves a split without images. Names
    that begin with a dot, such as .ipynb_checkpoints, are skipped.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no folder {folder}; data.root and data.name must name the folder of the images"
        )
    if not (folder / "train").is_dir():
        return _split_folder(folder, held_out)
    if held_out is not None:
        raise ValueError(
            f"data.held_out must be null for {folder}, which has a train folder, got {held_out!r}"
        )
    folders = {name: folder / part for part, name in SPLITS.items() if (folder / part).is_dir()}
    if not folders:
        raise FileNotFoundError(f"{folder} has a train folder, but neither a test nor a val folder")
    if "test" not in folders:
        folders = {"test": folders["validation"]}
    classes = _classes(folder / "train")
    splits = {"train": _files(folder / "train", classes)}
    for name, part in folders.items():
        found = _classes(part)
        for verb, names in (("lacks", set(classes) - set(found)), ("adds", set(found) - set(classes))):
            if names:
                raise ValueError(
                    f"{part} must have the classes of {folder / 'train'}, but {verb} {_some(names)}"
                )
        splits[name] = _files(part, classes)
    return ImageTree(classes, splits)


def _split_folder(folder: Path, held_out: float | None) -> ImageTree:
    if held_out is None:
        raise ValueError(
            f"{folder} has no train folder: give data.held_out, the share of every class to test on"
        )
    classes = _classes(folder)
    files = _files(folder, classes)
    mask = held_out_mask(files.targets, held_out)
    for name, part in (("training", ~mask), ("test", mask)):
        missing = set(range(len(classes))) - set(files.targets[part].tolist())
        if missing:
            names = _some({classes[label] for label in missing})
            raise ValueError(f"data.held_out={held_out} leaves the {name} split without images of {names}")
    splits = {
        name: ImageFiles(tuple(compress(files.paths, part.tolist())), files.targets[part])
        for name, part in (("train", ~mask), ("test", mask))
    }
    return ImageTree(classes, splits)


def _classes(folder: Path) -> tuple[str, ...]:
    from torchvision.datasets.folder import find_classes

    classes = tuple(name for name in find_classes(folder)[0] if not name.startswith("."))
    if len(classes) < 2:
        raise ValueError(
            f"{folder} must have a folder for each of two classes or more, got {_some({*classes})}"
        )
    return classes


def _files(folder: Path, classes: tuple[str, ...]) -> ImageFiles:
    """The images in the classes' folders and their subfolders, as torchvision's ImageFolder lists them."""
    from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset

    def is_image(path: str) -> bool:
        return path.lower().endswith(IMG_EXTENSIONS) and f"{os.sep}." not in path[len(str(folder)) :]

    numbers = {name: label for label, name in enumerate(classes)}
    found = make_dataset(folder, numbers, is_valid_file=is_image, allow_empty=True)
    targets = torch.tensor([label for _, label in found], dtype=torch.int64)
    empty = {
        name
        for name, count in zip(classes, targets.bincount(minlength=len(classes)), strict=True)
        if not count
    }
    if empty:
        raise ValueError(f"{folder} has no images ({' '.join(IMG_EXTENSIONS)}) of {_some(empty)}")
    return ImageFiles(tuple(path for path, _ in found), targets)


def _some(names: set[str]) -> str:
    """The first three names and the number of the others."""
    first = sorted(names)[:3] or ["none"]
    return ", ".join(first) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
