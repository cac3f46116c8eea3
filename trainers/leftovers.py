"""What a run leaves that finished and was killed before it had put away its checkpoints."""

from pathlib import Path

import yaml


def clear_leftovers(folder: Path) -> None:
    """Remove what the run that finished in ``folder`` did not come to remove.

    It keeps its last checkpoint if that was asked for then; if what was asked for cannot be read, all.
    """
    checkpoints = folder / "checkpoint"
    if checkpoints.is_symlink() or not checkpoints.is_dir():
        return
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        keep = int(config["checkpoint"]["at_end"])
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        return
    if keep == 0 or len(list(checkpoints.iterdir())) > keep:
        from trainers.checkpoints import forget  # which needs torch

        forget(checkpoints, keep)
