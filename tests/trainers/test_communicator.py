"""Collectives and the bytes charged for them, in one process and in several gloo processes."""

import numpy as np
import pytest
import torch
from processes import run_in_processes
from talking import add_up, means_of_two, talk, talk_in_rounds

from compressors.kernels.choice import backend_of
from trainers.comm.communicator import Communicator
from trainers.comm.slices import adds_in_order, slices, strided


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_processes_hear_what_one_process_hears(processes: int) -> None:
    """Eight processes are four nodes of two."""
    alone, on_links = talk(0, 1), []
    for number, heard in enumerate(run_in_processes(talk, processes)):
        assert heard.keys() == alone.keys()
        for name, value in heard.items():
            if name == "charges":  # [W, kinds] of the local workers, equal for all workers
                assert value[0] == alone[name][0]
            elif name == "link":
                on_links += value if processes < 8 or number % 2 == 0 else []
            elif "all-reduced" in name:
                torch.testing.assert_close(value, alone[name], rtol=1e-2, atol=1e-2)
            else:
                assert torch.equal(value, alone[name]), name
    assert on_links == alone["link"]  # [n, 2], workers in order


@pytest.mark.parametrize("processes", [2, 4, 8])
def test_processes_hear_in_rounds_what_one_process_hears(processes: int) -> None:
    alone, together = talk_in_rounds(0, 1), {}
    found = run_in_processes(talk_in_rounds, processes)
    if processes == 8:  # four nodes of two processes
        assert found[::2] == found[1::2]
    for heard in found[:: max(1, processes // 4)]:
        for name, rows in heard.items():
            together.setdefault(name, []).extend(rows)
    assert together == alone


def test_rounds_move_and_charge_what_their_definitions_say() -> None:
    heard = talk_in_rounds(0, 1)
    assert heard["from 2"] == [[2.0, 3.0, 4.0]] * 4
    assert heard["from 2, bytes"] == [0, 0, 12, 0]
    # Worker 2 sends to worker 3, then both send: to workers 0 and 1.
    assert heard["from 2, link"] == [[0, 12], [0, 12], [24, 0], [12, 12]]
    assert heard["to all"] == [[[10.0 * v + w] * 2 for v in range(4)] for w in range(4)]
    assert heard["to all, bytes"] == [32] * 4
    assert heard["to all, link"] == [[24, 24]] * 4
    assert heard["from [2, 3, 0, 1]"] == [[2.0] * 5, [3.0] * 5, [0.0] * 5, [1.0] * 5]
    assert heard["from [3, 1, 2, 0]"] == [[3.0] * 5, [1.0] * 5, [2.0] * 5, [0.0] * 5]
    assert heard["from [3, 1, 2, 0], bytes"] == [20, 0, 0, 20]
    assert heard["from [3, 1, 2, 0], link"] == [[20, 20], [0, 0], [0, 0], [20, 20]]
    # Worker 1 sends to two others, and worker 3 to none.
    assert heard["from [1, 0, 1, 2]"] == [[1.0] * 5, [0.0] * 5, [1.0] * 5, [2.0] * 5]
    assert heard["from [1, 0, 1, 2], bytes"] == [20, 20, 20, 0]
    assert heard["from [1, 0, 1, 2], link"] == [[20, 20], [40, 20], [20, 20], [0, 20]]
    with pytest.raises(ValueError, match=r"sources must be one of 3 workers for each, got \[1, 3, 0\]"):
        Communicator(3).exchange([torch.ones(3, 1)], [1, 3, 0], ["values"])
    with pytest.raises(ValueError, match="kind 'signs' is not declared"):
        Communicator(2).broadcast_from(0, torch.ones(1), "signs")


def test_charges_and_links_by_hand() -> None:
    """Bytes per worker and kind; links assume one host per worker, although all are in one process."""
    communicator = Communicator(4)
    communicator.all_reduce_mean([torch.zeros(4, 20), torch.zeros(4, 10, dtype=torch.float16)], add_up)
    assert communicator.take_charges().tolist() == [[100, 0, 0, 0]] * 4
    assert communicator.take_link_bytes().tolist() == [[150.0, 150.0]] * 4  # 2 x 3 pieces of 25 bytes
    communicator.all_gather(torch.zeros(4, 5, dtype=torch.int32), "metadata")
    communicator.all_gather_fields([torch.zeros(4 * 2), torch.zeros(4 * 3)], "values")
    communicator.all_gather_counts(np.array([[7, 1, 2, 3], [0, 1, 1, 1]]), 100)
    assert communicator.take_charges().tolist() == [[20, 0, 0, 28]] * 4
    assert communicator.take_link_bytes().tolist() == [[3 * (20 + 20 + 8)] * 2] * 4
    lengths = np.array([[4, 0, 0, 1], [0, 0, 1, 0]])
    fields = [[torch.zeros(5), torch.zeros(1)], [torch.zeros(5).int(), torch.zeros(1).int()]]
    communicator.all_gather_ragged(fields, lengths, ["values", "indices"])
    assert communicator.take_charges()[:, :2].tolist() == [[16, 16], [0, 0], [4, 4], [4, 4]]
    assert communicator.take_link_bytes().tolist() == [[96, 16], [0, 48], [24, 40], [24, 40]]
    assert communicator.take_charges().sum() == communicator.take_link_bytes().sum() == 0


def test_messages_are_charged_part_by_part() -> None:
    """A message leaves for all others, with its length."""
    communicator = Communicator(2)
    head, values = np.zeros(3, dtype=np.uint8), np.ones(5, dtype=np.uint8)
    messages = [[("metadata", head), ("values", values)], [("metadata", head), ("indices", head)]]
    assert [len(message) for message in communicator.all_gather_messages(messages, 100)] == [8, 6]
    assert communicator.take_charges().tolist() == [[5, 0, 0, 7], [0, 3, 0, 7]]
    assert communicator.take_link_bytes().tolist() == [[4 + 8, 4 + 6], [4 + 6, 4 + 8]]
    communicator.all_gather_messages(messages, 2**31)  # too large for a length of 4 bytes
    assert communicator.take_charges()[:, 3].tolist() == [11, 11]


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("reduction", ["worker_order", "all_reduce"])
def test_two_workers_in_two_processes_have_the_bits_of_one(processes: int, reduction: str) -> None:
    alone = means_of_two(0, 1, reduction)
    for heard in run_in_processes(means_of_two, processes, reduction):
        for name, value in heard.items():
            assert torch.equal(value.view(torch.uint8), alone[name].view(torch.uint8)), name


def test_counts_that_may_exceed_two_to_the_31_take_8_bytes() -> None:
    communicator = Communicator(2)
    counts = np.array([[2**31 + 5, 1]])
    assert communicator.all_gather_counts(counts, 2**32).tolist() == counts.tolist()
    assert communicator.take_charges()[:, 3].tolist() == [8, 8]


def test_measurement_is_not_charged() -> None:
    communicator = Communicator(2)
    communicator.collect(torch.zeros(2, 3))
    communicator.sum(torch.zeros(3))
    communicator.broadcast([torch.zeros(3)])
    assert communicator.all_reduce_max(5) == 5
    assert communicator.take_charges().sum() == 0


def test_workers_must_divide() -> None:
    with pytest.raises(ValueError, match=r"workers must be a multiple of processes \(3\), got 4"):
        Communicator(4, world_size=3)


SIZES = ([0], [1], [2, 0, 1], [127, 128, 129], [31, 4099, 5, 1, 1000], [2**20 + 1, 3, 700])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_workers", [3, 4, 8, 16, 20])
def test_slices_of_a_sum_are_the_sum_of_slices(dtype: torch.dtype, num_workers: int) -> None:
    """torch uses another order for the sums of columns that do not fill a vector register."""
    generator = torch.Generator().manual_seed(0)
    for sizes in SIZES:
        flat = torch.randn(num_workers, sum(sizes) + 7, dtype=dtype, generator=generator)[:, 3:-4]
        expected = torch.cat([rows.sum(0) for rows in flat.split(sizes, 1)])
        for processes in (2, 4):
            found = torch.empty_like(expected)
            for of_round in slices(sizes, processes):
                for own in of_round:
                    stack = flat[:, own.start : own.stop].contiguous()
                    for start, stop in own.blocks:
                        block = stack[:, start - own.start : stop - own.start].contiguous()
                        found[start:stop] = strided(block).sum(0)
                        if adds_in_order(num_workers, start, stop):
                            mean = torch.empty(stop - start, dtype=dtype)
                            assert backend_of(mean.device).mean_in_order(block.split(2), mean)
                            assert torch.equal(mean, found[start:stop] / num_workers)
            assert torch.equal(found, expected), (sizes, processes)


@pytest.mark.parametrize("processes", [2, 3, 4, 7])
def test_slices_are_all_columns_in_about_equal_parts(processes: int) -> None:
    for sizes in SIZES:
        rounds = slices(sizes, processes)
        assert {len(of_round) for of_round in rounds} == {processes}
        in_order = [own for of_round in rounds for own in of_round]
        blocks = [block for own in in_order for block in own.blocks]
        assert [column for start, stop in blocks for column in range(start, stop)] == list(range(sum(sizes)))
        assert max(map(len, in_order)) <= -(-sum(sizes) // len(in_order)) + 128


def test_after_an_error_the_thread_reduces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    communicator, began = Communicator(4, world_size=4, reduction="worker_order"), []

    def fail(*_: object) -> None:
        began.append(1)
        raise ConnectionError("the other one is gone")

    monkeypatch.setattr(communicator._means, "_by_slices", fail)
    ends = [communicator.all_reduce_mean_later([torch.ones(1, 3)]) for _ in range(3)]
    for end in ends:
        with pytest.raises(ConnectionError, match="the other one is gone"):
            end()
    assert began == [1]
