"""Decoding of an image file to a uint8 tensor of the model's input shape."""

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import data.torchvision_shim  # noqa: F401  has to come before the first import of torchvision
from data.files import require_file
from data.images.resized_crop import crop_box

GREY_MODES = ("1", "L", "LA")
# Those of the file names that are looked for, and GIF, which some collections hide behind them. Pillow knows
# forty more, among them EPS, for which it starts Ghostscript.
FORMATS = ("JPEG", "PNG", "PPM", "BMP", "TIFF", "WEBP", "GIF")
MOST_PIXELS = 2**26  # of a decoded image: a few kilobytes may claim thousands of millions
MOST_BYTES = 2**28  # of a file
_AT_ONCE = 64  # images per task of a thread, as small ones take no longer to read than to hand out


# What Pillow warns of, as metadata that make no sense, is either an error below or does not touch the pixels.
warnings.filterwarnings("ignore", module=r"PIL\.")


class ImageHeader(NamedTuple):
    """What a file says of its image before any pixel."""

    is_grey: bool
    height: int
    width: int


def read_header(path: str) -> ImageHeader:
    """Raises ``OSError`` for what is no image, and for one with more than 8 bits per channel."""
    with _open(path) as image:
        return ImageHeader(image.mode in GREY_MODES, image.height, image.width)


@dataclass(frozen=True, kw_only=True)
class ImageReader:
    """Reads images as uint8 [channels, height, width].

    One channel is grey, three are RGB; transparency is dropped. With a ``size`` images become square:
    the shorter side is resized to 8/7 of it and the middle cut out, as is the custom with ImageNet
    (256 and 224). Without one they all must have ``height`` and ``width``.
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

        Raises ``OSError`` for an image that cannot be read, has another shape, or is so long and narrow that
        it would have more than ``MOST_PIXELS`` when it is resized.
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
            shorter = round(self.size * 8 / 7)
            ratio = max(pixels.width, pixels.height) / min(pixels.width, pixels.height)
            if shorter * shorter * ratio > MOST_PIXELS:
                raise OSError(f"{path} is too narrow to be resized: {pixels.width}x{pixels.height} pixels")
            pixels = functional.resize(pixels, shorter)
            pixels = functional.center_crop(pixels, [self.size, self.size])
        array = np.array(pixels).reshape(pixels.height, pixels.width, self.channels)
        return torch.from_numpy(array).permute(2, 0, 1)

    def read_all(self, pool: Executor, paths: Sequence[str]) -> Tensor:
        """[N, channels, height, width], read by ``pool``; raises as ``read``."""
        images = torch.empty(len(paths), *self.shape, dtype=torch.uint8)

        def fill(start: int) -> None:
            some = [self.read(path) for path in paths[start : start + _AT_ONCE]]
            torch.stack(some, out=images[start : start + len(some)])

        list(pool.map(fill, range(0, len(paths), _AT_ONCE)))
        return images


def read_headers(pool: Executor, paths: Sequence[str]) -> list[ImageHeader]:
    """One for each of ``paths``; raises as ``read_header``."""
    chunks = [paths[start : start + _AT_ONCE] for start in range(0, len(paths), _AT_ONCE)]
    return [header for chunk in pool.map(lambda part: [*map(read_header, part)], chunks) for header in chunk]


@contextmanager
def _open(path: str) -> Iterator[Any]:
    from PIL import Image

    try:
        require_file(Path(path), MOST_BYTES)
        with Image.open(path, formats=FORMATS) as image:
            if not 0 < image.width * image.height <= MOST_PIXELS:
                raise OSError(
                    f"it must have from 1 to {MOST_PIXELS} pixels, got {image.width}x{image.height}"
                )
            if image.mode[0] in "IF":  # Pillow's conversion would cut them off at 255
                raise OSError(f"pixels of mode {image.mode}, where 8 bits per channel are expected")
            yield image
    except Exception as error:  # decoders of a dozen formats raise whatever comes to them
        reason: object = error
        if isinstance(error, Image.UnidentifiedImageError):
            reason = f"none of {', '.join(FORMATS)}"
        raise OSError(f"{path} cannot be read as an image: {reason}") from error
