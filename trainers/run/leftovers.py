"""Removal of the checkpoints of a run that was killed after it had finished but before it removed them."""

from pathlib import Path

from trainers.files.files import UnreadableFileError, read_config


def clear_leftovers(folder: Path) -> None:
    """Remove the remaining checkpoints of the finished run in ``folder``.

    The last one is kept if the run's config says so; all are kept if the config cannot be read.
    """
    checkpoints = folder / "checkpoint"
    if checkpoints.is_symlink() or not checkpoints.is_dir():
        return
    try:
        keep = int(read_config(folder)["checkpoint"]["at_end"])
    except (UnreadableFileError, ValueError, TypeError, KeyError):
        return
    if keep == 0 or len(list(checkpoints.iterdir())) > keep:
        from trainers.checkpoint.saving import forget  # imports torch

        forget(checkpoints, keep)
