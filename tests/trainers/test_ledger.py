"""Totals of the ledger, compared with hand-computed sums."""

import math

import pytest
import torch
from torch import nn

from compressors.api import Step, inputs_of
from compressors.build import build_reducer
from compressors.core.codec import Codec
from compressors.deft import DEFT
from compressors.ef_sign import EFSign
from compressors.encoding.settings import PLAIN, Encoding
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.micro import MiCRO
from compressors.random_k import RandomK
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger


def ledger_after(
    gradients: list[torch.Tensor],
    method: object,
    scope: str,
    feedback=ErrorFeedback,
    wire: Encoding = PLAIN,
    num_workers: int | None = None,
) -> Ledger:
    """The ledger of two layers of 3 and 1 elements after some steps; ``gradients`` are [W, 4]."""
    model = nn.Linear(3, 1)
    layout = Layout(dict(model.named_parameters()), scope)
    communicator = Communicator(num_workers or len(gradients[0]))
    reducer = build_reducer(method, 4, feedback, encoding=wire)
    flat = layout.new_buffer(communicator.size)
    segments = layout.segments(flat)
    state = reducer.init(segments)
    ledger = Ledger(layout, communicator, reducer)
    for step, gradient in enumerate(gradients):
        flat.copy_(gradient)
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step), communicator)
        ledger.record(reduced)
        ledger.close_step()
    return ledger


STEPS = [
    torch.tensor([[3.0, 1.0, 0.5, 0.25], [0.5, 0.25, 5.0, 2.0]]),
    torch.tensor([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]),
]


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_hard_threshold_by_hand(scope: str) -> None:
    """Threshold 2. Step 1: worker 0 sends 3, worker 1 sends 5 and 2. Step 2: worker 0 sends 1 + 2 = 3."""
    ledger = ledger_after(STEPS, HardThreshold(threshold=2.0), scope)
    first = ((1 + 0.25 + 0.0625) + (0.25 + 0.0625)) / 2
    second = ((0.25 + 0.0625) + (0.25 + 0.0625)) / 2
    segments = 2 if scope == "layer" else 1
    metrics = ledger.metrics()
    assert metrics == {
        "compression/input_norm_squared": ((9 + 0.25 + 0.0625) + (0.25 + 0.0625)) / 2,
        "compression/error": second,
        "compression/total_error": first + second,
        "compression/density": 0.5 / 4,
        "compression/density_mean": (3 / 2 + 1 / 2) / 8,
        "comm/bytes_sent": (8 + 0) / 2 + 4 * segments,
        "comm/bytes_sent_total": 8 * 4 / 2 + 8 * segments,
        "comm/bits_per_parameter": 8 * (8 * 4 / 2 + 8 * segments) / (2 * 4),
        # Each of 2 workers sends its payload to the other.
        "comm/link_bytes_sent": 8 / 2 + 4 * segments,
        "comm/link_bytes_sent_total": 8 * 4 / 2 + 8 * segments,
        "comm/link_bytes_sent_largest": 2 * 8 + 4 * segments,  # of worker 1 in step 1
        "comm/link_bytes_received": 8 / 2 + 4 * segments,
        "comm/link_bytes_received_total": 8 * 4 / 2 + 8 * segments,
        "comm/compression_ratio": 2 * 4 * 4 / (8 * 4 / 2 + 8 * segments),  # 4 values of 4 bytes in 2 steps
        "comm/values_bytes_total": 4 * 4 / 2,
        "comm/indices_bytes_total": 4 * 4 / 2,
        "comm/padding_bytes_total": 0.0,
        "comm/metadata_bytes_total": 8.0 * segments,
        # Step 1: 1 and 2 of 4 entries, log2 4 and log2 6 bits for their positions. Step 2: 1 and 0.
        "comm/entropy_bound_bytes": pytest.approx((4 + 2 / 8) / 2),
        "comm/entropy_bound_bytes_total": pytest.approx((16 + (2 + math.log2(6) + 2) / 8) / 2),
        "comm/paper_bits_total": 32 * 4 / 2,
        "comm/largest_sent_total": 2 + 1,  # worker 1 in step 1, worker 0 in step 2
    }
    layers = ledger.layers()
    assert layers["weight"]["elements"] == 3
    assert layers["weight"]["total_error"] == ((1 + 0.25) + (0.25 + 0.0625) + 0.25 + (0.25 + 0.0625)) / 2
    assert layers["bias"]["total_error"] == (0.0625 + 0 + 0.0625 + 0) / 2
    of_weight = (9 + 1 + 0.25) + (0.25 + 0.0625 + 25) + (9 + 0.25) + (0.25 + 0.0625)
    assert layers["weight"]["total_input_norm_squared"] == of_weight / 2
    assert layers["bias"]["total_input_norm_squared"] == (0.0625 + 4 + 0.0625 + 0) / 2
    assert layers["weight"]["density_mean"] == (3 / 2) / (3 * 2)
    assert layers["bias"]["density_mean"] == (1 / 2) / (1 * 2)


def test_a_count_that_is_not_defined_is_absent_before_the_first_step() -> None:
    """A record of a run's first step, which was skipped."""
    ledger = ledger_after([], EFSign(), "layer", num_workers=2)
    found = ledger.metrics()
    assert found["comm/bytes_sent_total"] == 0
    assert not {"comm/paper_bits_total", "comm/entropy_bound_bytes_total"} & found.keys()


def test_the_compression_ratio_goes_over_a_change_of_the_number_of_workers() -> None:
    """The bytes of dense training are summed with each step's number of workers."""
    method = RandomK(density=0.5)  # 2 of 4 values of 4 bytes, all-reduced
    of_two = ledger_after(STEPS[:1], method, "global")
    of_four = ledger_after([STEPS[1].repeat(2, 1)], method, "global")
    assert of_two.metrics()["comm/compression_ratio"] == of_four.metrics()["comm/compression_ratio"] == 2
    for name, total in of_four.totals().items():
        total += of_two.totals()[name].mean(0)
    of_four.steps += of_two.steps
    assert of_four.metrics()["comm/compression_ratio"] == 2


@pytest.mark.parametrize(
    ("values", "num_bytes"),
    [
        # Worker 0 sends 1 entry, worker 1 sends 2 of different layers; an index takes 4 bytes, a length 4.
        ("fp32", (4 + 4) * 1.5 + 4),
        ("bf16", (4 + 2) * 1.5 + 4 + 2),  # + 2 for the header of a message
        ("int8", (4 + 1) * 1.5 + 4 + 2 + 4 * (1 + 2) / 2),  # + a scale for each layer
    ],
)
def test_the_compression_ratio_has_the_size_of_the_gradient_whatever_is_sent(
    values: str, num_bytes: float
) -> None:
    """The bytes of a worker in dense training, 4 elements of 4 bytes, over the bytes that leave it."""
    ledger = ledger_after(STEPS[:1], HardThreshold(threshold=2.0), "global", wire=Encoding(values=values))
    assert ledger.metrics()["comm/compression_ratio"] == pytest.approx(4 * 4 / num_bytes)


def test_total_error_without_feedback_is_what_was_lost() -> None:
    ledger = ledger_after(STEPS, TopK(density=0.25), "global", feedback=lambda inner: inner)
    lost = [(1 + 0.25 + 0.0625) + (0.25 + 0.0625 + 4), 0.0]
    assert ledger.metrics()["compression/total_error"] == sum(lost) / 2


@pytest.mark.parametrize("codec", [DEFT(density=0.5), MiCRO(density=0.5, first_threshold=1.0)])
def test_workers_that_choose_for_each_other_send_equally_many(codec: Codec) -> None:
    """Each worker sends its values at the positions that all of them chose."""
    metrics = ledger_after(STEPS, codec, "global").metrics()
    assert metrics["comm/largest_sent_total"] == 2 * 4 * metrics["compression/density_mean"] > 0


@pytest.mark.parametrize("shared", [False, True])
def test_no_bound_on_indices_that_follow_from_the_seed(shared: bool) -> None:
    metrics = ledger_after(STEPS, RandomK(density=0.5, shared_coordinates=shared), "layer").metrics()
    assert metrics["comm/entropy_bound_bytes"] == 4 * 2  # 1 of 3 elements and 1 of 1
    assert metrics["comm/entropy_bound_bytes_total"] == 2 * 4 * 2
