"""Folders of versions: deltas, and the whole weights from time to time, for processes that follow a training.

FOLDER/000000012.delta.safetensors changes version 11 to version 12. 000000012.whole.safetensors has all
tensors of version 12 by their own names, as a checkpoint has them. Both have the fingerprint of the version.
"""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from compressors.core.checks import is_count, require
from trainers.deltas.delta import (
    Delta,
    DeltaError,
    as_seen,
    encode_from,
    ends_of,
    fingerprint,
    load_metadata,
    load_whole,
    save_whole,
)

LOG = logging.getLogger("total_error")
VERSION = "total_error.version"  # the key of the fingerprint in the metadata of a whole version
_NAME = re.compile(r"(\d{9,})\.(delta|whole)\.safetensors")


class Written(NamedTuple):
    """A version that was written."""

    number: int
    density: float  # the share of the entries that changed; 1 without an earlier version
    delta_bytes: int  # of the file; 0 without an earlier version
    whole_bytes: int  # of the weights, whether they were written or not
    is_anchor: bool  # whether they were written


class DeltaWriter:
    """Writes versions of weights to ``folder``, each as a delta from the one before it.

    Every ``anchor_every``-th version is written whole too, for a reader that begins, or that was away while
    files were deleted. So is the first version of each writer: it does not read what an earlier one wrote.
    With ``dtype``, such as torch.bfloat16, versions are the weights as seen in it. A copy of the last version
    stays in CPU memory; during ``write`` there are two. Raises ``ValueError`` for an ``anchor_every`` that is
    not a whole number >= 1.
    """

    def __init__(
        self, folder: Path | str, *, anchor_every: int = 50, dtype: torch.dtype | None = None
    ) -> None:
        fits = is_count(anchor_every) and anchor_every >= 1
        require(fits, "DeltaWriter.anchor_every", "a whole number >= 1", anchor_every)
        self.folder = Path(folder)
        self.anchor_every = anchor_every
        self.dtype = dtype
        self.folder.mkdir(parents=True, exist_ok=True)
        found = _numbers_in(self.folder)
        self._next = max(found["delta"] | found["whole"], default=-1) + 1
        self._anchor: int | None = None
        self._last: dict[str, Tensor] = {}
        self._version = ""

    def write(self, tensors: Mapping[str, Tensor]) -> Written:
        """Write the next version: ``tensors`` by name, such as a state dict, on any device.

        A file that cannot be written raises ``OSError``; the next call goes on from the last version that was
        written, which is this one if only its whole file is missing. Raises ``ValueError`` for tensors that
        are not plain and dense.
        """
        number, anchor = self._next, self._anchor
        new = as_seen(tensors, self.dtype, copy=True)
        version, density, delta_bytes = fingerprint(new), 1.0, 0
        if anchor is not None:
            delta = encode_from(self._last, self._version, new, version)
            path = _path(self.folder, number, "delta")
            delta.save(path)
            density, delta_bytes = delta.density, path.stat().st_size
            self._take(number, new, version)
        is_anchor = anchor is None or number - anchor >= self.anchor_every
        if is_anchor:
            # Tools for checkpoints expect the format.
            metadata = {"format": "pt", VERSION: version}
            save_whole(new, _path(self.folder, number, "whole"), metadata)
            self._take(number, new, version)
            self._anchor = number
        written = Written(number, density, delta_bytes, sum(x.nbytes for x in new.values()), is_anchor)
        LOG.info(f"total_error: {written}")
        return written

    def _take(self, number: int, new: dict[str, Tensor], version: str) -> None:
        """The files of ``new`` are written: the next delta begins there."""
        self._next, self._last, self._version = number + 1, new, version


class DeltaReader:
    """Follows the versions in ``folder``: ``tensors``, by name and on the CPU, are those of ``number``."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.number: int | None = None
        self.tensors: dict[str, Tensor] = {}
        self._version = ""

    def read(self) -> set[str]:
        """Go on to the newest version; returns the names of the tensors that are new or were changed.

        It applies the deltas since the last call if all are there, else those since the newest whole version.
        It also starts from there if another training began in the emptied folder, with numbers from 0 on.
        Every version is compared with its fingerprint. Raises ``FileNotFoundError`` for a folder without a
        whole version, and ``DeltaError`` for missing, damaged and wrong files; then nothing has changed.
        """
        found = _numbers_in(self.folder)
        if not found["whole"]:
            raise FileNotFoundError(f"no whole version of weights in {self.folder}")
        anchor, newest = max(found["whole"]), max(found["whole"] | found["delta"])
        number, tensors, version, changed = self.number, self.tensors, self._version, set[str]()
        if number is None or not self._leads_on(number, newest, found):
            number, (tensors, version) = anchor, _whole(_path(self.folder, anchor, "whole"))
            changed = set(tensors)
        for following in range(number + 1, newest + 1):
            path = _path(self.folder, following, "delta")
            if following not in found["delta"]:
                raise DeltaError(f"{path} is missing")
            delta = Delta.load(path)
            try:
                tensors, version = delta.apply_to(tensors, version), delta.version
            except DeltaError as error:
                raise DeltaError(f"{path}: {error}") from error
            changed |= {*delta.changed, *delta.whole}
        self.number, self.tensors, self._version = newest, tensors, version
        return changed & tensors.keys()

    def _leads_on(self, number: int, newest: int, found: dict[str, set[int]]) -> bool:
        """Whether ``number`` is still the version in memory, and all deltas from it to ``newest`` are there.

        Another training has the same numbers with other fingerprints. If the file of ``number`` was deleted,
        the base of the next delta tells.
        """
        if number > newest or not found["delta"].issuperset(range(number + 1, newest + 1)):
            return False
        if number in found["delta"]:
            known = ends_of(_path(self.folder, number, "delta"))[1]
        elif number in found["whole"]:
            known = load_metadata(_path(self.folder, number, "whole")).get(VERSION, "")
        else:
            known = ends_of(_path(self.folder, number + 1, "delta"))[0]
        return known == self._version


def _whole(path: Path) -> tuple[dict[str, Tensor], str]:
    tensors, metadata = load_whole(path)
    version = fingerprint(tensors)
    if metadata.get(VERSION) != version:
        raise DeltaError(f"{path} was changed after it was written")
    return tensors, version


def _numbers_in(folder: Path) -> dict[str, set[int]]:
    """The numbers of the versions with a file, by kind."""
    found: dict[str, set[int]] = {"delta": set(), "whole": set()}
    for path in folder.iterdir():
        if match := _NAME.fullmatch(path.name):
            found[match[2]].add(int(match[1]))
    return found


def _path(folder: Path, number: int, kind: str) -> Path:
    return folder / f"{number:09d}.{kind}.safetensors"
