"""Download of SST-2 and of BERT's uncased vocabulary."""

import os
from pathlib import Path

from data.download import fetch, take_from_zip

_SST2 = "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip"
_SST2_ROWS = {"train.tsv": 67_349, "dev.tsv": 872}
_VOCABULARY = "https://huggingface.co/google-bert/bert-base-uncased/resolve/main/vocab.txt"
_VOCABULARY_MD5 = "64800d5d8528ce344256daf115d4965e"


def fetch_vocabulary(path: Path) -> None:
    """Write the vocabulary of bert-base-uncased to ``path``; raises like ``data.download.fetch``."""
    fetch(_VOCABULARY, path, _VOCABULARY_MD5)


def fetch_sst2(folder: Path) -> None:
    """Write train.tsv and dev.tsv to ``folder``.

    GLUE publishes no checksum, so the numbers of rows are checked before either file is written. Raises
    like ``data.download.fetch``, and ``ValueError`` for an archive that does not hold SST-2.
    """
    packed = folder / f"arriving-{os.getpid()}.zip"
    new = {name: folder / f"{name}.arriving-{os.getpid()}" for name in _SST2_ROWS}
    try:
        files = [folder / name for name in _SST2_ROWS]
        fetch(_SST2, packed, md5=None, files=files)
        take_from_zip(packed, {f"SST-2/{name}": path for name, path in new.items()})
        for name, rows in _SST2_ROWS.items():
            found = new[name].read_bytes().count(b"\n") - 1
            if found != rows:
                raise ValueError(f"{name} must have {rows} rows, got {found}")
        for name, path in new.items():
            path.replace(folder / name)
    except ValueError as error:
        raise ValueError(f"{_SST2} is not the archive of SST-2: {error}") from error
    finally:
        for path in (packed, *new.values()):
            path.unlink(missing_ok=True)
