"""SST-2 and BERT's uncased vocabulary, fetched from their homes."""

import zipfile
from pathlib import Path

from data.download import fetch

_SST2 = "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip"
_SST2_ROWS = {"train.tsv": 67_349, "dev.tsv": 872}
_VOCABULARY = "https://huggingface.co/google-bert/bert-base-uncased/resolve/main/vocab.txt"
_VOCABULARY_MD5 = "64800d5d8528ce344256daf115d4965e"


def fetch_vocabulary(path: Path) -> None:
    """Write the vocabulary of bert-base-uncased to ``path``; raises as ``data.download.fetch``."""
    fetch(_VOCABULARY, path, _VOCABULARY_MD5)


def fetch_sst2(folder: Path) -> None:
    """Write train.tsv and dev.tsv to ``folder``.

    GLUE publishes no checksum; the rows are counted instead, before either file is written. Raises
    as ``data.download.fetch``, and ``ValueError`` for an archive that does not hold SST-2.
    """
    packed = folder / "SST-2.zip"
    fetch(_SST2, packed, md5=None)
    try:
        contents = _members(packed)
    finally:
        packed.unlink()
    for name, content in contents.items():
        arriving = folder / f"{name}.arriving"
        arriving.write_bytes(content)
        arriving.replace(folder / name)


def _members(packed: Path) -> dict[str, bytes]:
    """The two files by name, so that no path in the archive reaches the disk."""
    try:
        with zipfile.ZipFile(packed) as archive:
            contents = {name: archive.read(f"SST-2/{name}") for name in _SST2_ROWS}
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"{_SST2} is not the archive of SST-2: {error}") from error
    for name, rows in _SST2_ROWS.items():
        found = contents[name].count(b"\n") - 1
        if found != rows:
            raise ValueError(f"{_SST2}: {name} must have {rows} rows, got {found}")
    return contents
