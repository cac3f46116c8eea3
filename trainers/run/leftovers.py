"""Removal of checkpoints of a run that finished and was killed before it removed them."""

from pathlib import Path

from trainers.records.files import UnreadableFileError, read_config


def clear_leftovers(folder: Path) -> None:
    """Remove what the run that finished in ``folder`` did not come to remove.

    Its last checkpoint stays if that was asked for; all of them do if what was asked for cannot be read.
    """
    checkpoints = folder / "checkpoint"
    if checkpoints.is_symlink() or not checkpoints.is_dir():
        return
    try:
        keep = int(read_config(folder)["checkpoint"]["at_end"])
    except (UnreadableFileError, ValueError, TypeError, KeyError):
        return
    if keep == 0 or len(list(checkpoints.iterdir())) > keep:
        from trainers.checkpoint.saving import forget  # which needs torch

        forget(checkpoints, keep)
