"""Random damage to files of any format."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

Damage = Callable[[Path, Random], None]

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 6\n%%EndComments\nshowpage\n%%EOF\n"
STRANGERS = {
    "page": b"<!DOCTYPE html><html><body>404 Not Found</body></html>\n",
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 11490434\n",
    "pickle": b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.",
    "gzip": gzip.compress(b"x" * 100, mtime=0),
    "eps": EPS,
    "numbers": b"1 2 3 4\n5 6 7 8\n",
    "json": b'{"a": [1, 2, {"b": null}]}\n',
}


def _edit(change: Callable[[bytes, Random], bytes]) -> Damage:
    def damage(path: Path, draw: Random) -> None:
        path.write_bytes(change(path.read_bytes(), draw))

    return damage


def _some(content: bytes, draw: Random) -> slice:
    """A non-empty range of bytes, sometimes at the start or end, where headers and checksums are."""
    length = min(len(content), 1 + int(draw.expovariate(1 / draw.choice([2, 16, 200]))))
    start = draw.choice([0, len(content) - length, draw.randrange(len(content) - length + 1)])
    return slice(start, start + length)


def _cut(content: bytes, draw: Random) -> bytes:
    return content[: draw.choice([draw.randrange(len(content)), len(content) - 1, 1, 7])]


def _flip(content: bytes, draw: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 3, 30])):
        changed[draw.randrange(min(len(content), draw.choice([16, 100, len(content)])))] ^= (
            1 << draw.randrange(8)
        )
    return bytes(changed)


def _insert(content: bytes, draw: Random, what: bytes) -> bytes:
    place = draw.choice([0, len(content), draw.randrange(len(content) + 1)])
    return content[:place] + what + content[place:]


def _delete(content: bytes, draw: Random) -> bytes:
    piece = _some(content, draw)
    return content[: piece.start] + content[piece.stop :]


def _repeat(content: bytes, draw: Random) -> bytes:
    piece = _some(content, draw)
    return content[: piece.stop] + content[piece] * draw.choice([1, 2, 1000]) + content[piece.stop :]


def _fill(content: bytes, draw: Random) -> bytes:
    piece = _some(content, draw)
    filler = bytes([draw.choice([0, 255, 0x30])]) * (piece.stop - piece.start)
    return content[: piece.start] + filler + content[piece.stop :]


def _swap_lines(content: bytes, draw: Random) -> bytes:
    lines = content.split(b"\n")
    draw.shuffle(lines)
    return b"\n".join(lines)


def _number(content: bytes, draw: Random) -> bytes:
    """Replace one digit by an unusual number."""
    places = [place for place, byte in enumerate(content) if 0x30 <= byte <= 0x39]
    place = draw.choice(places or [0])
    strange = [
        b"-1",
        b"99999999999",
        b"2147483647",
        b"1e309",
        b"nan",
        b"0x10",
        b"9" * 5000,
        "\u0661".encode(),
        b"1_0",
    ]
    return content[:place] + draw.choice(strange) + content[place + 1 :]


def _sparse(path: Path, draw: Random) -> None:
    """Extend the file to 8 GiB or 1 TiB without using blocks on the disk."""
    os.truncate(path, draw.choice([2**33, 2**40]))


def _replace(make: Callable[[Path], object]) -> Damage:
    def damage(path: Path, draw: Random) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGED_BYTES: dict[str, Callable[[bytes, Random], bytes]] = {
    "cut": _cut,
    "flipped bits": _flip,
    "piece lost": _delete,
    "piece repeated": _repeat,
    "piece filled": _fill,
    "noise within": lambda content, draw: _insert(content, draw, draw.randbytes(draw.choice([1, 40, 4000]))),
    "nul within": lambda content, draw: _insert(content, draw, b"\0"),
    "no utf-8 within": lambda content, draw: _insert(
        content, draw, draw.choice([b"\xff", b"\xed\xa0\x80", b"\xc3"])
    ),
    "strange sign within": lambda content, draw: _insert(
        content, draw, draw.choice(["\u2028", "\ufeff", "\x1b[31m", "\r", "\x85"]).encode()
    ),
    "strange number": _number,
    "utf-16": lambda content, draw: content.decode("latin-1").encode("utf-16"),
    "lines in another order": _swap_lines,
    "other line ends": lambda content, draw: content.replace(b"\n", draw.choice([b"\r\n", b"\r", b"\n\n"])),
    "empty": lambda content, draw: b"",
    "noise": lambda content, draw: draw.randbytes(draw.choice([1, 100, 10_000])),
    "another file": lambda content, draw: draw.choice(list(STRANGERS.values())),
    "endless line": lambda content, draw: content + draw.choice([b"a", b"1", b" ", b","]) * 2**26,
}
DAMAGE: dict[str, Damage] = {
    **{name: _edit(change) for name, change in DAMAGED_BYTES.items()},
    "sparse": _sparse,
    "folder": _replace(lambda path: path.mkdir()),
    "pipe": _replace(lambda path: os.mkfifo(path)),
    "endless device": _replace(lambda path: path.symlink_to("/dev/zero")),
    "link to itself": _replace(lambda path: path.symlink_to(path.name)),
    "link to nothing": _replace(lambda path: path.symlink_to("nothing")),
    "gone": _replace(lambda path: None),
}


def gzip_bomb(content: bytes, zeros: int = 3 * 2**30, what: bytes = b"\0") -> bytes:
    """Gzip data of ``content`` and about ``zeros`` bytes of repeated ``what``, a thousandth of their size."""
    block = 2**25 // len(what)
    packed = gzip.compress(what * block, compresslevel=9, mtime=0)
    return gzip.compress(content, mtime=0) + packed * (zeros // (block * len(what)))


def copy(source: Path, target: Path) -> None:
    """Copy a folder."""
    shutil.copytree(source, target, symlinks=True)
