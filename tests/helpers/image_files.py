"""Folder trees of small images."""

from pathlib import Path

import numpy as np
from PIL import Image


def write_image(path: Path, seed: int, *, mode: str = "RGB", size: tuple[int, int] = (8, 6)) -> np.ndarray:
    """Write noise of ``size`` (width, height) to ``path``; returns the pixels."""
    width, height = size
    depth = len(Image.new(mode, (1, 1)).getbands())
    shape = (height, width) if depth == 1 else (height, width, depth)
    pixels = np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels, mode if mode != "1" else "L").convert(mode).save(path)
    return pixels


def write_tree(
    folder: Path, counts: dict[str, int], *, mode: str = "RGB", size: tuple[int, int] = (8, 6)
) -> list[np.ndarray]:
    """Write ``counts`` images of every class to FOLDER/CLASS/N.png; returns the pixels of all."""
    return [
        write_image(folder / name / f"{number}.png", 1000 * label + number, mode=mode, size=size)
        for label, name in enumerate(sorted(counts))
        for number in range(counts[name])
    ]
