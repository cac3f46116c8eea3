"""SST-2 and BERT's uncased vocabulary, fetched from their homes."""

import hashlib
import io
import zipfile
from pathlib import Path
from urllib.request import urlopen

_SST2 = "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip"
_SST2_ROWS = {"train.tsv": 67_349, "dev.tsv": 872}
_VOCABULARY = "https://huggingface.co/google-bert/bert-base-uncased/resolve/main/vocab.txt"
_VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
_TIMEOUT_SECONDS = 60


def fetch_sst2(folder: Path) -> None:
    """Write train.tsv and dev.tsv to ``folder``.

    GLUE publishes no checksum; the rows are counted instead, before anything is written. Raises
    ``OSError`` for an archive that cannot be fetched, ``ValueError`` for one that is not SST-2.
    """
    contents = {}
    try:
        with zipfile.ZipFile(io.BytesIO(_read(_SST2))) as archive:
            for name in _SST2_ROWS:  # named members only: no path of the archive reaches the disk
                contents[name] = archive.read(f"SST-2/{name}")
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"{_SST2} is not the archive of SST-2: {error}") from error
    for name, rows in _SST2_ROWS.items():
        found = len(contents[name].splitlines()) - 1
        if found != rows:
            raise ValueError(f"{_SST2}: {name} must have {rows} rows, got {found}")
    for name, content in contents.items():
        _write(folder / name, content)


def fetch_vocabulary(path: Path) -> None:
    """Write the vocabulary of bert-base-uncased to ``path``.

    Raises ``OSError`` if it cannot be fetched, ``ValueError`` if its checksum is another one.
    """
    content = _read(_VOCABULARY)
    found = hashlib.sha256(content).hexdigest()
    if found != _VOCABULARY_SHA256:
        raise ValueError(f"{_VOCABULARY} must have the SHA-256 {_VOCABULARY_SHA256}, got {found}")
    _write(path, content)


def _read(address: str) -> bytes:
    try:
        with urlopen(address, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.read()
    except OSError as error:
        raise OSError(f"{address} cannot be fetched: {error}") from error


def _write(path: Path, content: bytes) -> None:
    """Under another name first, so that an interrupted write leaves no half a file behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".part")
    partial.write_bytes(content)
    partial.replace(path)
