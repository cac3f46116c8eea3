"""Process groups: the backend, and the GPU that NCCL is told of."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from trainers.launch import process_group


@pytest.mark.parametrize(
    ("device", "backend", "told"),
    [
        (torch.device("cuda", 1), "nccl", torch.device("cuda", 1)),
        (torch.device("cpu"), "gloo", None),
    ],
)
def test_nccl_is_told_its_gpu(
    device: torch.device, backend: str, told: torch.device | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it guesses one from the rank at the first barrier, and says so."""
    joined: list[tuple] = []

    def join(backend: str, **settings: object) -> None:
        joined.append((backend, settings["device_id"], settings["rank"], settings["world_size"]))

    monkeypatch.setattr(process_group, "_meeting_point", lambda processes, timeout: dist.HashStore())
    monkeypatch.setattr(dist, "init_process_group", join)
    process_group._join(device, 1, 2, timedelta(seconds=1))
    assert joined == [(backend, told, 1, 2)]
