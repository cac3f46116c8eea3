"""The device of a process."""

import torch


def choose_device(wanted: str, processes: int, local_process: int) -> torch.device:
    """The torch device of this process. Raises ``ValueError`` for a device that the machine does not have."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cuda" and count == 0:
        raise ValueError("device=cuda: torch finds no CUDA device")
    if wanted == "cpu" or count == 0:
        return torch.device("cpu")
    if local_process >= count:
        if wanted == "auto" and processes > 1:
            raise ValueError(
                f"{processes} processes but {count} CUDA device(s): use fewer processes or device=cpu"
            )
        raise ValueError(f"device=cuda needs a GPU per process, got {count} for {processes} processes")
    torch.cuda.set_device(local_process)
    return torch.device("cuda", local_process)
