"""Random accidental damage to files."""

from collections.abc import Callable
from pathlib import Path
from random import Random


def flip(content: bytes, draw: Random) -> bytes:
    """Change one bit, often of the header."""
    changed = bytearray(content)
    changed[draw.randrange(min(len(content), draw.choice([16, 100, len(content)])))] ^= 1 << draw.randrange(8)
    return bytes(changed)


DAMAGE: dict[str, Callable[[bytes, Random], bytes]] = {
    "cut": lambda content, draw: content[: draw.choice([1, len(content) - 1, draw.randrange(len(content))])],
    "flipped bit": flip,
    "zeros": lambda content, draw: content[: len(content) // 2] + bytes(len(content) // 2),
    "more": lambda content, draw: content + draw.randbytes(draw.randrange(1, 50)),
    "empty": lambda content, draw: b"",
}


def damage(path: Path, kind: str, seed: int) -> None:
    path.write_bytes(DAMAGE[kind](path.read_bytes(), Random(seed)))


def swap(one: Path, other: Path) -> None:
    """Exchange the contents of two files."""
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
