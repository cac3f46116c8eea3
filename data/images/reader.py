"""Decoding of an image file to a uint8 tensor of the model's input shape."""

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import data.torchvision_shim  # noqa: F401  must precede the first import of torchvision
from data.images.resized_crop import crop_box

GREY_MODES = ("1", "L", "LA")
# The formats of the accepted file names, and GIF, which some collections store under these names. Pillow
# reads forty more formats; for EPS it starts Ghostscript.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
_AT_ONCE = 64  # images per task of a thread; for small images, a task costs as much time as reading an image


# Pillow's warnings, for example about invalid metadata, either become errors below or do not affect pixels.
warnings.filterwarnings("ignore", module=r"PIL\.")


class ImageHeader(NamedTuple):
    """Size and channels of an image, from the file's header."""

    is_grey: bool
    height: int
    width: int


def read_header(path: str) -> ImageHeader:
    """The header of the image at ``path``.

    Raises ``OSError`` for a file that is not an image, and for more than 8 bits per channel."""
    with _open(path) as image:
        return ImageHeader(image.mode in GREY_MODES, image.height, image.width)


@dataclass(frozen=True, kw_only=True)
class ImageReader:
    """Reads images as uint8 [channels, height, width].

    One channel is grey, three are RGB; transparency is dropped. With a ``size`` images become square:
    the shorter side is resized to 8/7 of ``size`` and the middle is cut out, as is usual for ImageNet
    (256 and 224). Without a ``size`` every image must have ``height`` and ``width``.
    """

    channels: int
    size: int | None
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    def read(self, path: str, draws: Tensor | None = None) -> Tensor:
        """The image at ``path``; with ``draws`` [TRIES, 4] a random part of it, resized to ``size``.

        Raises ``OSError`` for an image that cannot be read or has another shape.
        """
        from torchvision.transforms import functional

        with _open(path) as image:
            pixels = image.convert("L" if self.channels == 1 else "RGB")
        if self.size is None:
            if (pixels.height, pixels.width) != (self.height, self.width):
                raise OSError(
                    f"{path} is {pixels.width}x{pixels.height} pixels, the first image "
                    f"{self.width}x{self.height}: data.image_size=N resizes them all"
                )
        elif draws is not None:
            box = crop_box(draws, pixels.width, pixels.height)
            pixels = functional.resized_crop(pixels, *box, [self.size, self.size])
        else:
            pixels = functional.resize(pixels, round(self.size * 8 / 7))
            pixels = functional.center_crop(pixels, [self.size, self.size])
        array = np.array(pixels).reshape(pixels.height, pixels.width, self.channels)
        return torch.from_numpy(array).permute(2, 0, 1)

    def read_all(self, pool: Executor, paths: Sequence[str]) -> Tensor:
        """The images at ``paths``, [N, channels, height, width], read by ``pool``; raises like ``read``."""
        images = torch.empty(len(paths), *self.shape, dtype=torch.uint8)

        def fill(start: int) -> None:
            some = [self.read(path) for path in paths[start : start + _AT_ONCE]]
            torch.stack(some, out=images[start : start + len(some)])

        list(pool.map(fill, range(0, len(paths), _AT_ONCE)))
        return images


def read_headers(pool: Executor, paths: Sequence[str]) -> list[ImageHeader]:
    """The header of each image in ``paths``; raises like ``read_header``."""
    chunks = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    return [header for chunk in pool.map(lambda part: [*map(read_header, part)], chunks) for header in chunk]


@contextmanager
def _open(path: str) -> Iterator[Any]:
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.mode[0] in "IF":  # Pillow's conversion would clip them at 255
                raise OSError(f"pixels of mode {image.mode}, where 8 bits per channel are expected")
            yield image
    except Exception as error:  # image decoders raise many types of errors
        reason: object = error
        if isinstance(error, Image.UnidentifiedImageError):
            reason = f"none of {', '.join(FORMATS)}"
        raise OSError(f"{path} cannot be read as an image: {reason}") from error
