"""Division of means: in place, and for several tensors at once."""

import torch
from pretended_device import pretended_device
from processes import run_in_processes

from compressors.core.payloads import divide, divide_all

DIVISORS = (1, 3, 7, 0.1)


def drawn(dtype: torch.dtype) -> list[torch.Tensor]:
    return [
        torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=dtype) for size in (0, 1, 999)
    ]


def divided_there(process: int, processes: int) -> list[bool]:
    """Whether the tensors were divided in place, with the CPU's bits, on the pretended device."""
    found = []
    for dtype in (torch.float32, torch.float64):
        for divisor in DIVISORS:
            expected = [divide(x, divisor) for x in drawn(dtype)]
            with pretended_device() as waits:
                there = [x.to("cuda") for x in drawn(dtype)]
                one = [divide(x.clone(), divisor) for x in there]
                waits.clear()
                given = divide_all(there, divisor)
                found.append(not waits and all(x is y for x, y in zip(given, there, strict=True)))
                back = [[x.cpu() for x in own] for own in (one, there)]
            found += [torch.equal(x, y) for own in back for x, y in zip(own, expected, strict=True)]
    return found


def test_tensors_on_a_gpu_are_divided_in_place_without_a_wait() -> None:
    """The pretended device has a CPU's arithmetic: its bits say nothing about those of a GPU."""
    (found,) = run_in_processes(divided_there, 1)
    assert len(found) == 2 * len(DIVISORS) * 7 and all(found)


def test_several_tensors_are_divided_as_each_alone() -> None:
    for divisor in DIVISORS:
        given = drawn(torch.float32)
        expected = [x / divisor for x in given]
        assert all(map(torch.equal, divide_all(given, divisor), expected))
        assert all(map(torch.equal, given, expected))
