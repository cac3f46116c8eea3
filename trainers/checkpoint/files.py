"""Files of a checkpoint: one part per process, each with a description of its content.

CHECKPOINT/step-000000123/part-0-of-2.safetensors contains the state of process 0; the first part also
contains the shared state. part-0-of-2.json describes it: the checksum of its file, the step, the workers, and
in the second line the checksum of the first line. A description is written after its part is on disk, so a
checkpoint is complete if all descriptions exist and are correct.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from trainers.checkpoint.facts import Facts, PartDescription
from trainers.checkpoint.state import Snapshot, WorkerState
from trainers.files.atomic import replacing, write_all
from trainers.files.files import CHECKPOINT_FORMAT, UnreadableFileError, printable, read_description

_SPARE_BYTES = 2**20  # kept free on a disk for the records
_NAME = re.compile(r"step-(\d{9,})(?:\.(\d+))?")
_PART = re.compile(r"part-\d+-of-([1-9]\d*)\.json")


class DamagedCheckpointError(ValueError):
    """A damaged or incomplete checkpoint, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with all of its parts."""

    path: Path
    descriptions: tuple[PartDescription, ...]  # one per part, in the order of the processes

    @property
    def facts(self) -> Facts:
        """The facts from the first process."""
        facts = self.descriptions[0]["facts"]
        assert facts is not None  # checked by ``describe_checkpoint``
        return facts

    @property
    def run(self) -> str:
        """The id of the checkpoint's run."""
        return self.descriptions[0]["run"]

    @property
    def step(self) -> int:
        return self.descriptions[0]["step"]

    @property
    def num_workers(self) -> int:
        return sum(len(description["memories"]) for description in self.descriptions)

    @property
    def identity(self) -> str:
        """The identity of the checkpoint: a checksum of its parts' checksums."""
        return _digest_of(" ".join(description["blake2b"] for description in self.descriptions))

    def load(self, workers: Iterable[int]) -> Snapshot:
        """The shared state and the state of these workers, on the CPU. Raises ``DamagedCheckpointError``."""
        try:
            shared = self._read(self.descriptions[0], "shared/")
            found = {}
            for worker in workers:
                part = next(d for d in self.descriptions if str(worker) in d["memories"])
                tensors = self._read(part, f"worker/{worker}/")
                found[worker] = WorkerState(tensors, part["memories"][str(worker)])
        except (SafetensorError, OSError) as error:
            raise DamagedCheckpointError(f"{self.path}: its tensors cannot be read: {error}") from error
        return Snapshot(shared, found, self.facts, str(self.path))

    def _read(self, description: PartDescription, prefix: str) -> dict[str, torch.Tensor]:
        with safe_open(self.path / description["file"], framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 (not a dict)
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


def step_folder(root: Path, step: int, searched: int = 0) -> Path:
    """The folder of the checkpoint after ``step`` training steps and ``searched`` steps of trials."""
    return root / (f"step-{step:09d}.{searched}" if searched else f"step-{step:09d}")


def write_part(root: Path, snapshot: Snapshot, run: str, process: int, processes: int) -> None:
    """Write this process's part of a checkpoint below ``root``.

    Raises ``OSError`` and removes partial files if this fails.
    """
    folder = step_folder(root, snapshot.facts["step"], snapshot.facts["search"].get("steps", 0))
    name = f"part-{process}-of-{processes}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_part(folder, name, snapshot, run, process, processes)
        _sync(root)
    except (OSError, SafetensorError) as error:
        for left in folder.glob(f"{name}.*"):
            left.unlink(missing_ok=True)
        with suppress(OSError):  # another process may be writing to it
            folder.rmdir()
        raise error if isinstance(error, OSError) else OSError(str(error)) from error


def _write_part(folder: Path, name: str, snapshot: Snapshot, run: str, process: int, processes: int) -> None:
    tensors = {
        f"worker/{worker}/{key}": tensor.cpu()
        for worker, state in snapshot.workers.items()
        for key, tensor in state.tensors.items()
    }
    if process == 0:
        tensors |= {f"shared/{key}": tensor.cpu() for key, tensor in snapshot.shared.items()}
    partial = folder / f"{name}.partial"
    partial.unlink(missing_ok=True)
    needed = sum(tensor.nbytes for tensor in tensors.values()) + _SPARE_BYTES
    if shutil.disk_usage(folder).free < needed:  # a partial file would fill the disk for other writers
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}, {needed:,} bytes needed", str(partial))
    save_file(tensors, partial)
    description: PartDescription = {
        "format": CHECKPOINT_FORMAT,
        "run": run,
        "step": snapshot.facts["step"],
        "searched": snapshot.facts["search"].get("steps", 0),
        "process": process,
        "processes": processes,
        "file": f"{name}.safetensors",
        "bytes": partial.stat().st_size,
        "blake2b": _digest(partial),
        "memories": {str(worker): state.carries for worker, state in snapshot.workers.items()},
        "facts": snapshot.facts if process == 0 else None,
    }
    _sync(partial)
    partial.replace(folder / description["file"])
    line = json.dumps(description, allow_nan=False)
    with replacing(folder / f"{name}.json", partial) as file:
        write_all(file, f"{line}\n{_digest_of(line)}\n".encode(), partial)
    file.close()
    _sync(folder)


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in this folder; every part is compared with its checksum.

    Raises ``DamagedCheckpointError`` with the fault unless the checkpoint is complete.
    """
    checkpoint = describe_checkpoint(folder)
    for description in checkpoint.descriptions:
        file = folder / description["file"]
        try:
            is_whole = file.is_file() and file.stat().st_size == description["bytes"]
            if not is_whole or _digest(file) != description["blake2b"]:
                raise DamagedCheckpointError(f"{folder.name}: {file.name} was changed after it was written")
        except OSError as error:
            raise DamagedCheckpointError(f"{folder.name}: {file.name} cannot be read: {error}") from error
    return checkpoint


def describe_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in this folder from its descriptions, without reading tensors.

    Raises ``DamagedCheckpointError`` for missing or wrong descriptions.
    """
    processes = _newest_set(folder)
    descriptions = [_read_description(folder / name) for name in _description_names(processes)]
    workers = [int(worker) for d in descriptions for worker in d["memories"]]
    if workers != list(range(len(workers))) or not workers:
        raise DamagedCheckpointError(f"{folder.name}: its parts do not have the workers in order")
    step, searched = _moment_of(folder)
    for process, found in enumerate(descriptions):
        file = f"part-{process}-of-{processes}.safetensors"
        expected = {"run": descriptions[0]["run"], "step": step, "searched": searched}
        expected |= {"process": process, "processes": processes, "file": file}
        for key, value in expected.items():
            if found[key] != value:  # type: ignore[literal-required]
                where = f"{folder.name}: {key} of part {process}"
                raise DamagedCheckpointError(f"{where} is {found[key]!r}, not {value!r}")  # type: ignore[literal-required]
        if (found["facts"] is not None) != (process == 0):
            raise DamagedCheckpointError(f"{folder.name}: facts must be in part 0 only, see part {process}")
    return Checkpoint(folder, tuple(descriptions))


def step_folders(root: Path) -> list[Path]:
    """The folders of checkpoints below ``root``, newest first, complete or not."""
    return sorted((p for p in root.glob("step-*") if _NAME.fullmatch(p.name)), key=_moment_of, reverse=True)


def is_complete(folder: Path) -> bool:
    """Whether all descriptions exist, by their names."""
    return None in _missing_parts(folder).values()


def _missing_parts(folder: Path) -> dict[int, str | None]:
    """By number of processes, the first missing description of the parts that so many processes write."""
    names = {path.name for path in folder.glob("part-*-of-*.json")}
    counts = {int(found[1]) for name in names if (found := _PART.fullmatch(name))}
    return {count: next((n for n in _description_names(count) if n not in names), None) for count in counts}


def _description_names(processes: int) -> Iterator[str]:
    return (f"part-{process}-of-{processes}.json" for process in range(processes))


def _newest_set(folder: Path) -> int:
    """How many processes wrote the newest complete set; a resumed run may have written a second one."""
    missing = _missing_parts(folder)
    complete = [count for count, name in missing.items() if name is None]
    if not complete:
        first = missing[min(missing)] if missing else "every part"
        raise DamagedCheckpointError(f"{folder.name} is not complete: {first} is missing")
    return max(complete, key=lambda count: (folder / f"part-0-of-{count}.json").stat().st_mtime_ns)


def _read_description(path: Path) -> PartDescription:
    try:
        return cast(PartDescription, read_description(path))
    except UnreadableFileError as error:
        raise DamagedCheckpointError(f"{path.parent.name}: {error}") from error


def _moment_of(folder: Path) -> tuple[int, int]:
    found = _NAME.fullmatch(folder.name)
    if found is None:
        raise DamagedCheckpointError(f"{folder.name} is not the name of a checkpoint (step-000000123)")
    return int(found[1]), int(found[2] or 0)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _digest_of(line: str) -> str:
    return hashlib.blake2b(line.encode()).hexdigest()


def _sync(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
