"""Fetching a published file, whole or not at all."""

import hashlib
import os
from pathlib import Path

import torch


def fetch(url: str, target: Path, md5: str | None) -> None:
    """Download ``url`` to ``target``, which appears there only if its MD5 is the published one.

    Without one, None, it is for the caller to look at what came. Raises ``OSError`` for a home that
    does not answer and for a file that did not arrive whole.
    """
    arriving = target.with_name(f"arriving-{os.getpid()}-{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(arriving), progress=False)
        with arriving.open("rb") as file:
            found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if md5 is not None and found != md5:
            raise OSError(f"its MD5 is {found}, not {md5}")
        arriving.replace(target)
    except OSError as error:
        raise OSError(f"data.download: {url} did not arrive whole: {error}") from error
    finally:
        arriving.unlink(missing_ok=True)
