"""Hostile zip and tar files."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from file_damage import gzip_bomb
from hostile_files import FORMATS, Damage, Format, put

from data.download import take_from_tar, take_from_zip

MOST_BYTES = 2**26  # largest size of a member


def take(archive: Path) -> None:
    """Extract two members from ``archive``, as the datasets do, and check the files."""
    root = archive.parent
    take_it = take_from_zip if archive.suffix == ".zip" else take_from_tar
    targets = {name: root / "out" / name for name in ("in/a", "in/b")}
    take_it(archive, targets, MOST_BYTES)
    assert {
        path.relative_to(root / "out").as_posix() for path in (root / "out").rglob("*") if path.is_file()
    } == set(targets)
    assert all(path.stat().st_size <= MOST_BYTES for path in targets.values())


def packed_zip(
    content: bytes = b"content\n" * 50, kind: int = zipfile.ZIP_DEFLATED, names: tuple = ("in/a", "in/b")
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name in names:
            archive.writestr(name, content)
    return file.getvalue()


def packed_tar(*members: tarfile.TarInfo, mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for info in members or (member("in/a"), member("in/b")):
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 400, **more: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    for key, value in more.items():
        setattr(info, key, value)
    return info


def directory(field: int, value: bytes) -> Damage:
    """Damage that changes a field in the first entry of a zip file's directory."""

    def change(content: bytes) -> bytes:
        start = content.index(b"PK\x01\x02") + field
        return content[:start] + value + content[start + len(value) :]

    return put(change)


ZIP: dict[str, Damage] = {
    "a member of 1 GB": put(lambda content: packed_zip(bytes(2**30))),
    "a member of 50 MB": put(lambda content: packed_zip(bytes(50 * 10**6))),
    **{
        f"packed as {kind}": put(lambda content, kind=kind: packed_zip(kind=kind))
        for kind in (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    },
    "damaged lzma": put(
        lambda content: packed_zip(kind=zipfile.ZIP_LZMA).replace(
            b"\x09\x04\x05\0", b"\x09\x04\x05\0\xff\xff\xff\xff\xff", 1
        )
    ),
    "damaged bzip2": put(lambda content: packed_zip(kind=zipfile.ZIP_BZIP2).replace(b"BZh", b"BZx")),
    "smaller than it is": directory(24, struct.pack("<I", 3)),
    "larger than it is": directory(24, struct.pack("<I", 2**25)),
    "somewhere else": directory(42, struct.pack("<I", 2**31)),
    "encrypted": directory(8, b"\x01\0"),
    "of version 99": directory(6, b"\x63\0"),
    "packed in a way unknown": directory(10, b"\x63\0"),
    "without a member": put(lambda content: packed_zip(names=("in/a",))),
    "with a member twice": put(lambda content: packed_zip(names=("in/a", "in/a", "in/b"))),
    "with names that lead outside": put(lambda content: packed_zip(names=("../x", "/tmp/x", "in/a", "in/b"))),
    "folders in their place": put(lambda content: packed_zip(names=("in/a/", "in/b/"))),
}
TAR: dict[str, Damage] = {
    "a member of 1 GB": put(lambda content: packed_tar(member("in/a", size=2**30))),
    "1 GB in front": put(lambda content: packed_tar(member("x", size=2**30), member("in/a"), member("in/b"))),
    "3 GB behind": put(lambda content: gzip_bomb(gzip.decompress(content)[:-1024])),
    **{
        f"a member of type {kind.decode()!r}": put(
            lambda content, kind=kind: packed_tar(
                member("in/a", kind, linkname="/etc/passwd"), member("in/b")
            )
        )
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)
    },
    "packed as xz": put(lambda content: packed_tar(mode="w:xz")),
    "packed as bzip2": put(lambda content: packed_tar(mode="w:bz2")),
    "not packed": put(lambda content: packed_tar(mode="w:")),
    "a name of 1 GB": put(
        lambda content: packed_tar(member("././@LongLink", b"L", size=2**30), member("in/a"))
    ),
    "a thousand long names": put(
        lambda content: packed_tar(*[member("././@LongLink", b"L", size=600)] * 3000)
    ),
    "attributes of 1 GB": put(lambda content: packed_tar(member("x", b"x", size=2**30), member("in/a"))),
    "attributes that are none": put(lambda content: packed_tar(member("x", b"x"), member("in/a"))),
    "with names that lead outside": put(
        lambda content: packed_tar(*(member(name) for name in ("../x", "/tmp/x", "in/a", "in/b")))
    ),
}


def write(name: str, content: Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda root: (root / name).write_bytes(content()) and None


FORMATS["zip"] = Format(("archive=ROOT/few.zip",), write("few.zip", packed_zip), "few.zip", ZIP)
FORMATS["tar"] = Format(("archive=ROOT/few.tar.gz",), write("few.tar.gz", packed_tar), "few.tar.gz", TAR)
