"""Command that uploads the offline parts of Weights & Biases runs."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from trainers.files.files import read_wandb_id

WANDB_ID = Path("wandb", "run-id.txt")  # in a run folder: the id of its W&B run, for all its parts
_HEADER = 7  # bytes of a part's log before its first record


def sync_command(folders: Sequence[Path]) -> str | None:
    """One command that uploads all offline parts of these run folders; None if there are none.

    W&B orders the parts of one run itself. If the parent folders have no other parts, the command uses a
    shell pattern.
    """
    parts = {part for folder in folders for part in offline_parts(folder)}
    if not parts:
        return None
    words = sorted(map(_quoted, parts))
    if len(parts) > 2:
        for levels in (1, 0):
            above = {folder.parents[levels] for folder in folders}
            pattern = "*/" * (levels + 1) + "wandb/offline-run-*"
            if {part for folder in above for part in folder.glob(pattern)} == parts:
                words = sorted(f"{_quoted(folder)}/{pattern}" for folder in above)
                break
    return " ".join(["wandb sync", *words])


def offline_parts(folder: Path) -> list[Path]:
    """The offline W&B folders of a run folder, in their order.

    A process that is killed in its first seconds leaves a folder without a record. `wandb sync` uploads
    nothing at all if it is given such a folder, so it is left out, unless it is the last: that one may be
    about to get its first record.
    """
    name = read_wandb_id(folder / WANDB_ID)
    parts = sorted((folder / "wandb").glob(f"offline-run-*-{name}")) if name else []
    return [part for part in parts if part == parts[-1] or not _is_empty(part)]


def _is_empty(part: Path) -> bool:
    sizes = [log.stat().st_size for log in part.glob("run-*.wandb")]
    return bool(sizes) and max(sizes) <= _HEADER


def unfinished_part(folder: Path) -> str | None:
    """The last online W&B folder of a run, quoted; it has all records, also those not yet uploaded."""
    name = read_wandb_id(folder / WANDB_ID)
    parts = sorted((folder / "wandb").glob(f"run-*-{name}")) if name else []
    return _quoted(parts[-1]) if parts else None


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
