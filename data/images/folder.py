"""Images in one folder per class, kept in memory if they fit; includes ImageNet."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor

from data.checks import is_number, require_count, require_flag, shown
from data.classification import ClassificationDataset, Split
from data.files import path_of
from data.images.augment import Augmentation
from data.images.reader import ImageReader, read_headers
from data.images.streamed import StreamedImages
from data.images.tree import ImageTree, read_tree
from data.partition import Sharing

MEASURED = 10_000  # images from which mean and std are computed
CHUNK = 500  # images in memory at once
CHUNK_BYTES = 2**28  # bytes of images in memory at once
SMALLEST_STD = 1e-6  # pixel values are in [0, 1], in steps of 1 / 255
LARGEST_SIDE = 4096  # pixels, of a data.image_size
MOST_DECODERS = 1024  # threads


def image_folder(
    *,
    name: str,
    root: str,
    image_size: int | None = None,
    channels: int | None = None,
    held_out: float | None = None,
    augment: bool = True,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    memory_gib: float = 4,
    decoders: int = 4,
    **sharing: Any,
) -> ClassificationDataset | StreamedImages:
    """The images in ``root``/``name``: train/CLASS/IMAGE and test/ or val/, or CLASS/IMAGE to be split.

    With ``image_size`` None all images must have one size; ``augment`` then crops after padding by an
    eighth of the side and flips, as for CIFAR. An ``image_size`` N resizes images to N x N pixels;
    ``augment`` then takes a random part of the image and flips, as for ImageNet. ``channels`` None
    means 1 if all images are grey, else 3. ``held_out`` is the fraction of every class that becomes
    the test split if there is no train folder. With ``mean`` or ``std`` None they are computed from up
    to 10,000 evenly spaced training images.

    Images that need no random crop and fit in ``memory_gib`` GiB are decoded once, into a
    ``ClassificationDataset``. Others are decoded batch by batch by ``decoders`` threads. Both give the
    same batches.

    Raises ``ValueError`` for invalid settings, and ``OSError`` for missing folders and for images read
    before training that cannot be decoded.
    """
    _check(image_size, channels, held_out, memory_gib, decoders)
    require_flag("data.augment", augment)
    shared = Sharing(**sharing)
    tree = read_tree(path_of("data.root", root) / str(name), held_out)
    with ThreadPoolExecutor(decoders) as pool:
        reader = _reader(pool, tree, image_size, channels)
        read = partial(reader.read_all, pool)
        for setting, values in (("mean", mean), ("std", std)):
            _check_channels(setting, values, reader.channels)
        pixels = reader.channels * reader.height * reader.width
        crops = augment and image_size is not None
        num_images = sum(map(len, tree.splits.values()))
        in_memory = not crops and num_images * pixels <= memory_gib * 2**30
        images = {split: read(files.paths) for split, files in tree.splits.items()} if in_memory else {}
        if mean is None or std is None:
            paths = tree.splits["train"].paths
            at_once = max(1, min(CHUNK, CHUNK_BYTES // pixels))
            chunks = _evenly_spaced(len(paths), MEASURED).split(at_once)
            if in_memory:
                samples = (images["train"][places] for places in chunks)
            else:
                samples = (read([paths[i] for i in places.tolist()]) for places in chunks)
            found = _mean_and_std(torch.stack([*map(_histograms, samples)]).sum(0))
            if std is None and 0 in found[1]:
                channel = found[1].index(0)
                raise ValueError(
                    f"data.std must be given: channel {channel} of the training images is constant"
                )
            mean, std = mean or found[0], std or found[1]
    padding = 0 if crops else min(reader.height, reader.width) // 8
    common: dict[str, Any] = {
        "num_classes": len(tree.classes),
        "sharing": shared,
        "mean": tuple(mean),
        "std": tuple(std),
        "augmentation": Augmentation(padding=padding, flip=True) if augment else None,
    }
    if in_memory:
        common |= {split: Split(images[split], files.targets) for split, files in tree.splits.items()}
        return ClassificationDataset(**common)
    parts = dict(tree.splits)
    return StreamedImages(
        train=parts.pop("train"), held_out=parts, reader=reader, decoders=decoders, crops=crops, **common
    )


def imagenet(**settings: Any) -> ClassificationDataset | StreamedImages:
    """ImageNet's 1.28 million training and 50,000 validation images of 1000 classes (Deng et al., 2009).

    Settings and errors as in ``image_folder``; also ``ValueError`` for another number of classes. The
    images are not downloaded, because users must accept their terms first.
    """
    folder = path_of("data.root", str(settings["root"])) / str(settings["name"])
    if not folder.is_dir():
        raise FileNotFoundError(
            f"data=imagenet: no folder {folder}; put the images from https://image-net.org into "
            f"{folder / 'train'}/CLASS and {folder / 'val'}/CLASS; data.root=DIR names another folder"
        )
    dataset = image_folder(**settings)
    if dataset.num_classes != 1000:
        raise ValueError(f"{folder} must have ImageNet's 1000 classes, got {dataset.num_classes}")
    return dataset


def _reader(
    pool: ThreadPoolExecutor, tree: ImageTree, image_size: int | None, channels: int | None
) -> ImageReader:
    """The image reader. Channels and size come from every file's header, unless both are given."""
    paths = [path for files in tree.splits.values() for path in files.paths]
    headers = [] if image_size is not None and channels is not None else read_headers(pool, paths)
    if channels is None:
        channels = 1 if all(header.is_grey for header in headers) else 3
    if image_size is not None:
        return ImageReader(channels=channels, size=image_size, height=image_size, width=image_size)
    first = headers[0]
    for path, header in zip(paths, headers, strict=True):
        if header[1:] != first[1:]:
            raise ValueError(
                f"data.image_size must be given, or all images have one size: {paths[0]} is "
                f"{first.width}x{first.height}, {path} {header.width}x{header.height}"
            )
    return ImageReader(channels=channels, size=None, height=first.height, width=first.width)


def _evenly_spaced(count: int, wanted: int) -> Tensor:
    return torch.arange(count) if count <= wanted else torch.arange(wanted) * count // wanted


def _histograms(images: Tensor) -> Tensor:
    """[C, 256] int64, counts of the pixel values of each channel of ``images`` [N, C, H, W]."""
    return torch.stack([torch.bincount(pixels.flatten(), minlength=256) for pixels in images.unbind(1)])


def _mean_and_std(histograms: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels in [0, 1]; ``histograms`` is [C, 256]."""
    levels = torch.arange(256, dtype=torch.float64) / 255
    shares = histograms.double() / histograms.sum(1, keepdim=True)
    mean = shares @ levels
    std = (shares * (levels - mean[:, None]) ** 2).sum(1).sqrt()
    return tuple(mean.tolist()), tuple(std.tolist())


def _check(
    image_size: object, channels: object, held_out: object, memory_gib: object, decoders: object
) -> None:
    if image_size is not None:
        require_count("data.image_size", image_size, maximum=LARGEST_SIDE)
    require_count("data.decoders", decoders, maximum=MOST_DECODERS)
    rules = {
        "channels": (channels in (None, 1, 3) and not isinstance(channels, bool), "1, 3 or null", channels),
        "held_out": (
            held_out is None or (is_number(held_out) and 0 < held_out < 1),
            "in (0, 1) or null",
            held_out,
        ),
        "memory_gib": (is_number(memory_gib) and memory_gib >= 0, "a number >= 0", memory_gib),
    }
    for name, (valid, rule, value) in rules.items():
        if not valid:
            raise ValueError(f"data.{name} must be {rule}, got {shown(value)}")


def _check_channels(setting: str, values: Any, channels: int) -> None:
    """Raise ``ValueError`` unless ``values`` has one valid number per channel."""
    if values is None:
        return
    least = -math.inf if setting == "mean" else SMALLEST_STD
    is_list = isinstance(values, Sequence) and not isinstance(values, str) and len(values) == channels
    if not (is_list and all(is_number(value) and value >= least for value in values)):
        rule = "finite numbers" if setting == "mean" else f"numbers >= {SMALLEST_STD:g}"
        raise ValueError(f"data.{setting} must be a list of {channels} {rule} or null, got {shown(values)}")
