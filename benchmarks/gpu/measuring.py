"""Times, memory and process groups on a GPU, with equivalents on a CPU."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist

MOST_ROUNDS, SECONDS = 50, 1.0  # maximum rounds of one measurement, and maximum seconds of all rounds
_groups: list[dist.ProcessGroup] = []  # of ``lone_group``, kept until the process ends


class Record(Protocol):
    """Writes a row of a table immediately."""

    def __call__(self, table: str, /, **row: object) -> None: ...


class Options(NamedTuple):
    """Options of a part."""

    device: torch.device
    quick: bool  # small sizes and few rounds, to check that the code works
    ends: float  # end of the part's time, by ``time.monotonic``

    @property
    def seconds_left(self) -> float:
        return self.ends - time.monotonic()


class Times(NamedTuple):
    """Milliseconds of the rounds of a measurement."""

    median: float
    lowest: float
    highest: float
    rounds: int


def attempt(record: Record, what: str, work: Callable[[], object]) -> bool:
    """Whether ``work`` succeeded. After an error a row has the reason, and the measurement continues."""
    try:
        work()
    except Exception as error:  # compilers, libraries and drivers raise many types of errors
        reason = (str(error).splitlines() or [""])[0]
        record("failures", what=what, error=f"{type(error).__name__}: {reason}"[:300])
        return False
    return True


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def milliseconds(
    work: Callable[[], object],
    device: torch.device,
    before: Callable[[], object] = lambda: None,
    *,
    rounds: int = MOST_ROUNDS,
    seconds: float = SECONDS,
) -> Times:
    """Times of ``work`` in milliseconds; ``before`` runs first in each round and is not timed.

    The first two rounds, which compile and allocate, are left out; only the first one if it takes longer
    than ``seconds``. Except for the first one, no round begins after ``seconds``. On a GPU the time is that
    between two events, including time in which the GPU waits for the host.
    """
    started = time.perf_counter()
    _round(work, device, before)
    if time.perf_counter() - started < seconds:
        _round(work, device, before)
    taken: list[float] = []
    started = time.perf_counter()
    while not taken or (len(taken) < rounds and time.perf_counter() - started < seconds):
        taken.append(_round(work, device, before))
    return Times(statistics.median(taken), min(taken), max(taken), len(taken))


def _round(work: Callable[[], object], device: torch.device, before: Callable[[], object]) -> float:
    before()
    synchronize(device)
    if device.type != "cuda":
        started = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - started)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    synchronize(device)
    return begin.elapsed_time(end)


def kernel_milliseconds(work: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Milliseconds of each GPU kernel in one call of ``work``, longest first; empty on a CPU.

    The time of the call minus their sum is the idle time of the GPU.
    """
    if device.type != "cuda":
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        synchronize(device)
    found = {event.key: event.self_device_time_total / 1e3 for event in profile.key_averages()}
    return dict(sorted(((k, v) for k, v in found.items() if v > 0), key=lambda pair: -pair[1]))


def free_bytes(device: torch.device) -> int:
    """Free bytes of the device's memory, including torch's unused reserve."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    fields = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in fields if line.startswith("MemAvailable"))


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Peak memory during ``work``: torch's tensors on a GPU, resident memory on a CPU."""
    if device.type == "cuda":
        synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
    work()
    return resident("VmHWM")


def resident(field: str) -> int:
    """Resident bytes of this process: VmRSS is the current value, VmHWM the maximum since the last reset."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


@contextmanager
def lone_group(device: torch.device) -> Iterator[None]:
    """A process group with only this process, over the loopback interface: NCCL on a GPU, gloo on a CPU."""
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    on_gpu = device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=dist.FileStore(str(Path(folder) / "store"), 1),
            rank=0,
            world_size=1,
            device_id=device if on_gpu else None,
        )
        # One of gloo's threads can release a hook's last callback after the group has been destroyed. If this
        # were the last reference to the group, the thread would wait for itself, and the process would abort.
        _groups.append(dist.group.WORLD)
        try:
            yield
        finally:
            dist.destroy_process_group()
