"""Process groups: the backend, NCCL's GPU, separate stores of a sweep's jobs, and ranks from SLURM."""

import os
from collections.abc import Iterator
from datetime import timedelta
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

from trainers.launch import process_group
from trainers.launch.processes import PeerLostError
from trainers.launch.slurm import take_ranks


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
    """Without ``device_id`` NCCL guesses the GPU from the rank at the first barrier, with a warning."""
    joined: list[tuple] = []

    def join(backend: str, **settings: object) -> None:
        joined.append((backend, settings["device_id"], settings["rank"], settings["world_size"]))

    monkeypatch.setattr(process_group, "_rendezvous_store", lambda processes, timeout: dist.HashStore())
    monkeypatch.setattr(dist, "init_process_group", join)
    process_group._join(device, 1, 2, timedelta(seconds=1))
    assert joined == [(backend, told, 1, 2)]


def test_jobs_of_a_sweep_below_torchrun_do_not_read_each_others_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All jobs use torchrun's single store, in which the first job's addresses remain."""
    shared = dist.HashStore()

    def rendezvous(*_: object, **__: object) -> Iterator[tuple[dist.Store, int, int]]:
        yield shared, 0, 2

    monkeypatch.setattr(process_group, "rendezvous", rendezvous)
    monkeypatch.delenv(process_group.RENDEZVOUS_FILE, raising=False)
    first, second = (process_group._rendezvous_store(2, timedelta(seconds=1)) for _ in range(2))
    first.set("address", "here")
    assert first.check(["address"]) and not second.check(["address"])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]"),
            PeerLostError,
        ),
        (dist.DistNetworkError("Broken pipe"), PeerLostError),
        (RuntimeError("CUDA error: the launch timed out and was terminated"), RuntimeError),
        (RuntimeError("the layers are disconnected"), RuntimeError),
    ],
    ids=["gloo", "torch", "CUDA", "own code"],
)
def test_other_errors_are_not_those_of_a_lost_process(
    error: Exception, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(process_group, "_join", lambda *_: None)
    one = process_group.process_group(torch.device("cpu"), timeout_seconds=3)
    with pytest.raises(expected) as caught, one:
        raise error
    assert type(caught.value) is expected


OF_SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
RANKS = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (OF_SLURM | {"WORLD_SIZE": "8"}, ("5", "1", "4", "8")),
        (OF_SLURM, (None, None, None, None)),  # a job of one process
        (OF_SLURM | {"WORLD_SIZE": "8", "RANK": "2"}, ("2", None, None, "8")),  # torchrun in a SLURM job
    ],
)
def test_ranks_are_taken_where_a_batch_script_asks(
    given: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    others = {name: value for name, value in os.environ.items() if name not in (*RANKS, *OF_SLURM)}
    with patch.dict(os.environ, others | given, clear=True):
        take_ranks()
        assert tuple(os.environ.get(name) for name in RANKS) == expected
