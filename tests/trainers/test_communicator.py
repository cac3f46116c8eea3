"""Collectives and what they charge, in one process and over real gloo processes."""

import numpy as np
import pytest
import torch
from processes import run_in_processes
from talking import talk

from trainers.communicator import Communicator

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_hear_what_one_process_hears(processes: int) -> None:
    alone = talk(0, 1)
    for heard in run_in_processes(talk, processes):
        assert heard.keys() == alone.keys()
        for name, value in heard.items():
            if name == "charges":  # [W, kinds] of the local workers, the same for each
                assert value[0] == alone[name][0]
            elif "mean" in name:
                torch.testing.assert_close(value, alone[name], rtol=1e-2, atol=1e-2)
            else:
                assert torch.equal(value, alone[name]), name


def test_charges_are_per_worker_and_kind() -> None:
    communicator = Communicator(3)
    communicator.mean([torch.zeros(10), torch.zeros(5, dtype=torch.float16)])
    communicator.gather(torch.zeros(3, 2, dtype=torch.int32), "metadata")
    tensors, lengths = [torch.zeros(4), torch.zeros(1)], np.array([[4, 0, 0], [0, 0, 1]])
    fields = [tensors, [tensor.int() for tensor in tensors]]
    communicator.gather_ragged(fields, lengths, ["values", "indices"])
    assert communicator.take_charges().tolist() == [[66, 16, 0, 8], [50, 0, 0, 8], [54, 4, 0, 8]]
    assert communicator.take_charges().sum() == 0


def test_messages_are_charged_part_by_part() -> None:
    communicator = Communicator(2)
    head, values = np.zeros(3, dtype=np.uint8), np.ones(5, dtype=np.uint8)
    messages = [[("metadata", head), ("values", values)], [("metadata", head), ("indices", head)]]
    assert [len(message) for message in communicator.gather_messages(messages, 100)] == [8, 6]
    assert communicator.take_charges().tolist() == [[5, 0, 0, 7], [0, 3, 0, 7]]
    communicator.gather_messages(messages, 2**31)  # which a length of 4 bytes could not tell
    assert communicator.take_charges()[:, 3].tolist() == [11, 11]


def test_counts_that_may_exceed_two_to_the_31_take_8_bytes() -> None:
    communicator = Communicator(2)
    counts = np.array([[2**31 + 5, 1]])
    assert communicator.gather_counts(counts, 2**32).tolist() == counts.tolist()
    assert communicator.take_charges()[:, 3].tolist() == [8, 8]


def test_lengths_must_be_those_of_the_tensors() -> None:
    with pytest.raises(RuntimeError, match="values: the lengths are not those of the tensors"):
        Communicator(2).gather_ragged([[torch.zeros(3)]], np.array([[1, 1]]), ["values"])


def test_measurement_is_not_charged() -> None:
    communicator = Communicator(2)
    communicator.collect(torch.zeros(2, 3))
    communicator.sum(torch.zeros(3))
    communicator.broadcast([torch.zeros(3)])
    assert communicator.largest(5) == 5
    assert communicator.take_charges().sum() == 0


def test_workers_must_divide() -> None:
    with pytest.raises(ValueError, match=r"workers must be a multiple of processes \(3\), got 4"):
        Communicator(4, processes=3)
