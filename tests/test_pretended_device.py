"""The pretended device: detection of all planted faults, and of no others."""

import re
from pathlib import Path

import pytest
from planted_faults import HANDED_OVER, REFUSED, WAITED_FOR, cross, hand_over_all, line_of, try_all
from pretended_device import DeviceFault
from pretended_nccl import Call, as_groups, require_met
from processes import run_in_processes


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    return run_in_processes(try_all, 1)[0]


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gpu_refuses_is_an_error_with_its_line(found: dict[str, list[str]], name: str) -> None:
    (said,) = found[name]
    assert said.startswith("fault: ")
    assert said.endswith(f", at {line_of(REFUSED[name])}")


@pytest.mark.parametrize("name", WAITED_FOR)
def test_what_the_host_waits_for_is_noted_with_its_line(found: dict[str, list[str]], name: str) -> None:
    (said,) = found[name]
    assert re.match(r"(aten::\w+|copy to the (CPU|device))(: [\w ]+)?, at ", said)
    assert said.endswith(f", at {line_of(WAITED_FOR[name])}")


def test_what_a_gpu_does_by_itself_is_not(found: dict[str, list[str]]) -> None:
    assert found["allowed"] == []


def test_what_nccl_refuses_is_an_error(tmp_path: Path) -> None:
    for of_process in run_in_processes(hand_over_all, 2, str(tmp_path)):
        assert "before any collective" in of_process["too early"]
        for rule, function in HANDED_OVER.items():
            assert rule in of_process[rule]
            assert of_process[rule].endswith(f", at {line_of(function)}")


def test_a_message_around_a_collective_is_a_deadlock(tmp_path: Path) -> None:
    processes = [as_groups(plain) for plain in run_in_processes(cross, 2, str(tmp_path))]
    with pytest.raises(DeviceFault, match=r"process 0 waits at .*send.*process 1 waits at .*all_reduce"):
        require_met(processes)


A, B = Call("all_reduce", "float32", (3,)), Call("all_reduce", "float32", (2,))
DOUBLE, GATHER = Call("all_reduce", "float64", (3,)), Call("all_gather", "float32", (3,))


@pytest.mark.parametrize("other", [[[B], [A]], [[A]], [[A], [B], [A]], [[A], [DOUBLE]], [[GATHER], [B]]])
def test_collectives_in_another_order_or_unlike_are_refused(other: list[list[Call]]) -> None:
    require_met([[[A], [B]], [[A], [B]]])
    with pytest.raises(DeviceFault, match="waits at"):
        require_met([[[A], [B]], other])


def send(peer: int, size: int = 2) -> Call:
    return Call("send", "float32", (size,), peer)


def receive(peer: int, size: int = 2) -> Call:
    return Call("recv", "float32", (size,), peer)


def test_messages_meet_in_a_batch_but_not_one_behind_the_other() -> None:
    require_met([[[send(1), receive(1)], [A]], [[send(0), receive(0)], [A]]])
    with pytest.raises(DeviceFault, match="waits at"):
        require_met([[[send(1)], [receive(1)]], [[send(0)], [receive(0)]]])


def test_a_message_is_received_as_it_was_sent() -> None:
    with pytest.raises(DeviceFault, match=r"sends .* awaits"):
        require_met([[[send(1, 2)]], [[receive(0, 3)]]])
