"""A delta: the lossless difference between two versions of a model's weights.

Tensors are compared by their bits. After a step of an optimizer with a small rate, most weights round to the
same bf16 number as before (Miahi and Belilovsky, 2026, https://arxiv.org/abs/2602.03839, find some 99 % in
reinforcement learning of language models), so a delta has a few percent of the bytes of the weights.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from compressors.core.checks import require
from compressors.encoding.all_gather import index_codes
from compressors.encoding.changes import apply_changes, write_changes
from compressors.encoding.index_codes import BadMessageError
from trainers.checkpoint.tree import described
from trainers.files.atomic import replacing

FACTS = "total_error.delta"  # the key of a delta's facts in the metadata of its file
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
_CHANGED, _WHOLE = "changed/", "whole/"


class DeltaError(ValueError):
    """A delta that does not fit its base, or a damaged file, in one line."""


class Change(NamedTuple):
    """The difference between two versions of one tensor."""

    content: Tensor  # a message of ``changes.py``, [...] uint8; the new tensor if that is smaller
    is_whole: bool
    num_words: int  # of the new tensor
    num_changed: int


@dataclass(frozen=True, eq=False)
class Delta:
    """What changes the weights of fingerprint ``base`` to those of fingerprint ``version``."""

    base: str
    version: str
    changed: dict[str, Tensor]  # messages of ``changes.py``, [...] uint8
    whole: dict[
        str, Tensor
    ]  # tensors that are new, have another dtype or shape, or are smaller than messages
    removed: tuple[str, ...]
    num_words: int  # of the new version: elements, and halves of elements of 8 bytes
    num_changed: int  # of these words, with all of the added tensors

    @property
    def density(self) -> float:
        """The share of the words that changed."""
        return self.num_changed / self.num_words if self.num_words else 0.0

    @property
    def num_bytes(self) -> int:
        """Bytes of all messages and whole tensors; a file's header has some 100 bytes for each."""
        return sum(tensor.nbytes for tensor in (*self.changed.values(), *self.whole.values()))

    def apply(self, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The new version, on the CPU; tensors without a change are those of ``base``, which is not changed.

        Raises ``DeltaError`` for weights other than those from which the delta was made, and if the result is
        not the new version, bit by bit.
        """
        plain = as_seen(base)
        return self.apply_to(plain, fingerprint(plain))

    def apply_to(self, base: Mapping[str, Tensor], known: str) -> dict[str, Tensor]:
        """``apply`` for a base from ``as_seen`` whose fingerprint ``known`` is not computed again."""
        if known != self.base:
            raise DeltaError(f"the base of this delta must have the fingerprint {self.base}, got {known}")
        found = {name: tensor for name, tensor in base.items() if name not in self.removed} | self.whole
        codes = index_codes()
        for name, message in self.changed.items():
            if name not in base:
                raise DeltaError(f"{name}: the base of this delta has no such tensor")
            found[name] = base[name].clone()
            try:
                apply_changes(message.numpy(), _words_of(found[name]), codes)
            except BadMessageError as error:
                raise DeltaError(f"{name}: its message cannot be decoded: {error}") from error
        if fingerprint(found) != self.version:
            raise DeltaError(
                "the result of this delta is not the version that it was made for: it is damaged"
            )
        return found

    def save(self, path: Path | str) -> None:
        """Write a safetensors file; a crash leaves the old file or the new one. Raises ``OSError``."""
        facts = {
            "base": self.base,
            "version": self.version,
            "removed": self.removed,
            "num_words": self.num_words,
            "num_changed": self.num_changed,
        }
        tensors = {f"{_CHANGED}{name}": tensor for name, tensor in self.changed.items()}
        tensors |= {f"{_WHOLE}{name}": tensor for name, tensor in self.whole.items()}
        save_whole(tensors, Path(path), {FACTS: json.dumps(facts)})

    @classmethod
    def load(cls, path: Path | str) -> "Delta":
        """The delta in a file. Raises ``DeltaError`` for another or a damaged file."""
        tensors, metadata = load_whole(Path(path))
        try:
            facts = json.loads(metadata[FACTS])
            removed = tuple(facts.pop("removed"))
            parts: list[dict[str, Tensor]] = [
                {name.removeprefix(kind): x for name, x in tensors.items() if name.startswith(kind)}
                for kind in (_CHANGED, _WHOLE)
            ]
            delta = cls(changed=parts[0], whole=parts[1], removed=removed, **facts)
        except (KeyError, TypeError, ValueError) as error:
            raise DeltaError(f"{path} is not a delta") from error
        if any(message.dtype != torch.uint8 or message.dim() != 1 for message in delta.changed.values()):
            raise DeltaError(f"{path} is not a delta: its messages must be bytes")
        return delta


def encode(
    old: Mapping[str, Tensor], new: Mapping[str, Tensor], *, dtype: torch.dtype | None = None
) -> Delta:
    """The delta from ``old`` to ``new``, tensors by name on any device, such as two state dicts.

    With ``dtype``, such as torch.bfloat16, both are compared as seen in it, and the delta's base is
    ``as_seen(old, dtype)``. The delta shares no memory with ``new``. Raises ``ValueError`` for tensors that
    are not plain and dense.
    """
    before, after = as_seen(old, dtype), as_seen(new, dtype)
    delta = encode_from(before, fingerprint(before), after, fingerprint(after))
    return replace(delta, whole={name: tensor.clone() for name, tensor in delta.whole.items()})


def encode_from(old: Mapping[str, Tensor], base: str, new: Mapping[str, Tensor], version: str) -> Delta:
    """``encode`` for tensors from ``as_seen`` with known fingerprints; whole ones are those of ``new``."""
    changes = {name: change_of(old.get(name), tensor) for name, tensor in new.items()}
    moved = {name: change for name, change in changes.items() if change.num_changed or name not in old}
    return Delta(
        base=base,
        version=version,
        changed={name: change.content for name, change in moved.items() if not change.is_whole},
        whole={name: change.content for name, change in moved.items() if change.is_whole},
        removed=tuple(sorted(old.keys() - new.keys())),
        num_words=sum(change.num_words for change in changes.values()),
        num_changed=sum(change.num_changed for change in changes.values()),
    )


def change_of(old: Tensor | None, new: Tensor) -> Change:
    """The change from ``old`` to ``new``, tensors from ``as_seen``."""
    words = _words_of(new)
    if old is None or described(old) != described(new):
        return Change(new, True, len(words), len(words))
    message, changed = write_changes(_words_of(old), words, index_codes())
    is_whole = len(message) >= new.nbytes
    return Change(new if is_whole else torch.from_numpy(message), is_whole, len(words), changed)


def as_seen(
    tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None, *, copy: bool = False
) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous; floating-point tensors with more bytes are rounded to ``dtype``.

    With ``copy`` they share no memory with ``tensors``. Raises ``ValueError`` for tensors that are not plain
    and dense, such as shards.
    """
    fits = dtype is None or dtype.is_floating_point
    require(fits, "dtype", "a floating-point dtype or None", dtype)
    return {name: _seen(name, tensor, dtype, copy) for name, tensor in tensors.items()}


def _seen(name: str, tensor: Tensor, dtype: torch.dtype | None, copy: bool) -> Tensor:
    is_plain = type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided
    require(is_plain, name, "a plain dense tensor: gather a sharded one first", type(tensor).__name__)
    is_wide = dtype is not None and tensor.is_floating_point() and tensor.itemsize > dtype.itemsize
    require(tensor.dtype != torch.complex128, name, "of a dtype that safetensors has", tensor.dtype)
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.to("cpu", dtype if is_wide else tensor.dtype, copy=copy).contiguous()


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """32 hexadecimal digits that depend on names, dtypes, shapes and bits of tensors from ``as_seen``."""
    names = sorted(tensors)
    with ThreadPoolExecutor() as pool:  # hashlib releases the interpreter's lock
        digests = list(pool.map(_digest, [tensors[name] for name in names]))
    lines = [f"{name} {described(tensors[name])} {own}\n" for name, own in zip(names, digests, strict=True)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:32]


def _digest(tensor: Tensor) -> str:
    # Twice as fast as BLAKE2b where the processor has instructions for it.
    return hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy().data).hexdigest()


def _words_of(tensor: Tensor) -> np.ndarray:
    """The bit patterns of a contiguous tensor as signed numbers, [d]; they share its memory."""
    return tensor.reshape(-1).view(_WORDS[min(tensor.itemsize, 4)]).numpy()


def save_whole(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Write a safetensors file that replaces ``path`` when it is complete. Raises ``OSError``."""
    partial = path.with_name(f"{path.name}.partial")
    with replacing(path, partial) as file:
        try:
            save_file(tensors, partial, metadata)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written: {error}") from error
    file.close()


def load_whole(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file. Raises ``DeltaError`` for a damaged one."""
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return tensors, file.metadata() or {}


def load_metadata(path: Path) -> dict[str, str]:
    """The metadata alone, without a read of the tensors. Raises ``DeltaError`` for a damaged file."""
    with _opened(path) as file:
        return file.metadata() or {}


def ends_of(path: Path) -> tuple[str, str]:
    """``base`` and ``version`` of the delta in a file. Raises ``DeltaError`` as ``Delta.load`` does."""
    metadata = load_metadata(path)
    try:
        facts = json.loads(metadata[FACTS])
        return facts["base"], facts["version"]
    except (KeyError, TypeError, ValueError) as error:
        raise DeltaError(f"{path} is not a delta") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise DeltaError(f"{path} cannot be read: {error}") from error
