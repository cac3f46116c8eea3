"""Hostile folders of images: other formats, decompression bombs, endless folders."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

from file_damage import DAMAGE, EPS
from hostile_files import FORMATS, MLP, Damage, Format, put
from image_files import write_tree
from PIL import Image


def png(width: int, height: int, bits: int = 1, colour: int = 0, rows: int | None = None) -> bytes:
    """A PNG of zeros; with ``rows``, the later rows are missing."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    row = bytes(1 + (width * bits * (3 if colour == 2 else 1) + 7) // 8)
    packer = zlib.compressobj(1)
    packed = [packer.compress(row) for _ in range(height if rows is None else rows)] + [packer.flush()]
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), chunk(b"IDAT", b"".join(packed)), chunk(b"IEND", b""))
    )


def saved(kind: str, mode: str = "RGB", size: tuple[int, int] = (8, 6), **settings: object) -> Damage:
    """Damage that replaces a file by an image in Pillow's format ``kind``, with the same name."""

    def damage(path: Path, draw: Random) -> None:
        with path.open("wb") as file:
            Image.new(mode, size).save(file, kind, **settings)

    return damage


def pixmap(header: str) -> Damage:
    return put(header.encode() + bytes(144))


def _loop(path: Path, draw: Random) -> None:
    """Two links to their own folder: each level of links doubles the number of files."""
    for name in ("again", "once_more"):
        (path.parent / name).symlink_to(path.parent)


def _ladder(path: Path, draw: Random) -> None:
    """Folders with two links each to the next one: no loop, but 2^30 paths to the last."""
    folders = [path.parent.parent.parent.parent / f"rung{number}" for number in range(30)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        if number:
            for name in "ab":
                (folders[number - 1] / name).symlink_to(folder)
    (path.parent / "ladder").symlink_to(folders[0])


def _beside(name: str, damage: Damage) -> Damage:
    """``damage`` to a copy of the file with this name in the same folder."""

    def damaged(path: Path, draw: Random) -> None:
        other = path.parent / name
        other.write_bytes(path.read_bytes())
        damage(other, draw)

    return damaged


IMAGES: dict[str, Damage] = {
    "eps": put(EPS),
    "eps beside it": _beside("zzz.jpg", put(EPS)),
    "eps in a dos header": put(struct.pack("<IIIIIIIH", 0xC6D3D0C5, 30, len(EPS), 0, 0, 0, 0, 0) + EPS),
    **{f"saved as {kind}": saved(kind) for kind in ("PDF", "PCX", "TGA", "SGI", "ICNS", "ICO", "DDS")},
    "animation": saved("GIF", save_all=True, append_images=[Image.new("RGB", (8, 6), 9)] * 3),
    "laboratory colours": saved("TIFF", "LAB"),
    "print colours": saved("JPEG", "CMYK"),
    "palette": saved("PNG", "P"),
    "16 bits": saved("PNG", "I;16"),
    "floats": saved("TIFF", "F"),
    "another size": saved("PNG", size=(9, 6)),
    "a pixel": saved("PNG", size=(1, 1)),
    "400 million pixels in 50 kB": put(lambda content: png(20_000, 20_000)),
    "100 million pixels": put(lambda content: png(10_000, 10_000)),
    "a header of 4e18 pixels": put(
        lambda content: content[:16] + struct.pack(">II", 2**31 - 1, 2**31 - 1) + content[24:]
    ),
    "5 million times 1 pixels": put(lambda content: png(5_000_000, 1)),
    "1 times 5 million pixels": put(lambda content: png(1, 5_000_000)),
    "no pixels": put(lambda content: png(0, 0)),
    "rows that are missing": put(lambda content: png(8, 6, bits=8, rows=2)),
    "pixmap of 3e9 rows": pixmap("P6 8 3000000000 255\n"),
    "pixmap of no size": pixmap("P6 0 0 255\n"),
    "pixmap with a long comment": put(b"P6 #" + b"x" * 10**7),
    "bitmap of 2^31 columns": put(
        b"BM"
        + struct.pack("<IHHIIiiHHIIiiII", 198, 0, 0, 54, 40, 2**31 - 1, 6, 1, 24, 0, 144, 0, 0, 0, 0)
        + bytes(144)
    ),
    "tiff with a tag of 2^32 numbers": put(
        b"II*\0\x08\0\0\0\x01\0\0\x01\x04\0\xff\xff\xff\xff\x10\0\0\0" + bytes(40)
    ),
    "folders in a loop": _loop,
    "a ladder of links": _ladder,
    "a name that is no text": _beside("a\udcff\x1b[31m\n.png", put(b"no image")),
    "a pipe beside it": _beside("zzz.png", DAMAGE["pipe"]),
}


def write(suffix: str) -> Callable[[Path], None]:
    def write_root(root: Path) -> None:
        for split in ("train", "test"):
            write_tree(root / "few" / split, {"ant": 3, "bee": 3})
            for path in (root / "few" / split).rglob("*.png"):
                if suffix != "png":
                    with Image.open(path) as image:
                        image.save(path.with_suffix(f".{suffix}"))
                    path.unlink()

    return write_root


FOLDER = ("data=image_folder", "data.name=few", *MLP)
for suffix in ("png", "jpg", "bmp", "tif", "webp", "ppm"):
    FORMATS[f"images {suffix}"] = Format(
        FOLDER, write(suffix), "few/t*/*/*", IMAGES if suffix == "png" else {}
    )
FORMATS["images resized"] = Format((*FOLDER, "data.image_size=8"), write("png"), "few/t*/*/*", IMAGES)
FORMATS["images cut out"] = Format(
    (*FOLDER, "data.image_size=8", "data.channels=3", "data.augment=false"),
    write("jpg"),
    "few/t*/*/*",
    IMAGES,
)


def fake_ghostscript(folder: Path, marker: Path) -> Path:
    """A folder with a program ``gs`` that creates the file ``marker``."""
    program = folder / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o700)
    return program.parent
