"""The reducer with encoded messages: conservation, errors, bytes, refused settings and messages."""

import math

import numpy as np
import pytest
import torch
from methods import Case, cases, is_codec, segment

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.core.norms import layer_norms
from compressors.encoding.settings import VALUES, Encoding, EncodingError
from compressors.feedback import ErrorFeedback
from compressors.gtop_k import GTopK
from compressors.hard_threshold import HardThreshold
from compressors.kernels.choice import chosen
from compressors.none import NoCompression
from compressors.random_block import RandomBlock
from compressors.random_k import RandomK
from compressors.top_k import TopK
from contract.cases import weights_of
from trainers.comm.communicator import Communicator

W, D = 3, 500
GATHERED = [
    case
    for case in cases()
    if is_codec(case.method()) and case.method().traits.exact
    if not (case.method().traits.linear or case.method().traits.of_senders)
]
every_case = pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in GATHERED])
# Codes of values do not depend on the method: one code with every method, and one method with every code
both = pytest.mark.parametrize(
    ("case", "values"),
    [
        *(pytest.param(case, "int8", id=f"{case}-int8") for case in GATHERED),
        *(pytest.param(GATHERED[0], values, id=values) for values in VALUES if values != "int8"),
    ],
)


def gradients(step: int = 0, workers: int = W, size: int = D) -> torch.Tensor:
    return torch.randn(workers, size, generator=torch.Generator().manual_seed(step))


def segments_of(rows: torch.Tensor, *sizes: int) -> list[Segment]:
    """Views of ``rows`` as segments; the second segment has two layers, the others have one."""
    found = []
    for number, part in enumerate(rows.split(sizes, 1)):
        size, third = part.shape[1], part.shape[1] // 3
        shapes = ((third,), (size - third,)) if number == 1 else ((size,),)
        found.append(Segment(f"s{number}", part, shapes, weights_of(shapes)))
    return found


@both
def test_conservation(case: Case, values: str) -> None:
    """sent + residual = gradient + old residual, exactly, over several steps and segments."""
    reducer = build_reducer(case.method(), D, ErrorFeedback, Encoding(indices="auto", values=values))
    residual, state = torch.zeros(1, D), None
    for step in range(4):
        g = gradients(step, workers=1)
        p = residual + g
        segments = segments_of(g, 100, 399, 1)
        state = state or reducer.init(segments)
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step), Communicator(1))
        sent = torch.cat([reduced.mean[s.name] for s in segments])
        residual = torch.cat([state.residual[s.name] for s in segments], 1)
        assert torch.equal(sent.double() + residual.double(), p.double())


@both
def test_errors_and_counts_of_kernels_and_reference(case: Case, values: str) -> None:
    """Errors are the squared norms of the residual per layer; kernels and reference give the same bits."""
    outcomes = []
    for kernels in ("auto", "reference"):
        rows = gradients()
        segments, communicator = segments_of(rows, 100, 399, 1), Communicator(W)
        reducer = build_reducer(case.method(), D, encoding=Encoding(indices="auto", values=values))
        with chosen(kernels):
            reduced, _ = reducer.reduce(inputs_of(segments), reducer.init(segments), Step(0, 0), communicator)
        for s in segments:
            left = layer_norms(reduced.residual[s.name], s.edges)
            assert torch.equal(reduced.compressed[s.name].error, left)
        sent = np.concatenate([reduced.compressed[s.name].sent for s in segments], 1)
        outcomes.append((rows, *reduced.mean.values(), torch.from_numpy(communicator.take_charges()), sent))
    for one, other in zip(*outcomes, strict=True):
        assert np.array_equal(one, other)


@every_case
def test_exact_values_give_what_the_plain_wire_gives(case: Case) -> None:
    outcomes = []
    for wire in (Encoding(), Encoding(indices="auto")):
        reducer = build_reducer(case.method(), D, ErrorFeedback, encoding=wire)
        state = None
        for step in range(3):
            segments = segments_of(gradients(step), 100, 399, 1)
            state = state or reducer.init(segments)
            context = Step(0, step)
            reduced, state = reducer.reduce(inputs_of(segments), state, context, Communicator(W))
        outcomes.append(reduced)
    plain, coded = outcomes
    for name in plain.mean:
        assert torch.equal(plain.mean[name], coded.mean[name])
        assert torch.equal(plain.residual[name], coded.residual[name])
        own, other = plain.compressed[name], coded.compressed[name]
        assert np.array_equal(own.sent, other.sent)
        assert torch.equal(own.positions(D), other.positions(D))
        assert torch.equal(own.error, other.error)


@pytest.mark.parametrize("values", ["fp32", "bf16"])
def test_bytes_per_kept_element(values: str) -> None:
    """At density 0.1 %: at most 0.03 bytes above the entropy bound, 5.43 (fp32) and 3.43 (bf16) bytes."""
    size, kept = 3_100_000, 3100
    rows = torch.zeros(1, size)
    where = torch.from_numpy(np.random.default_rng(0).choice(size, kept, replace=False))
    rows[0, where] = torch.randn(kept).abs() + 1
    pieces = rows.split(size // 62, 1)
    segments = [segment(piece, f"{number}") for number, piece in enumerate(pieces)]
    reducer = build_reducer(
        HardThreshold(threshold=1.0), size, encoding=Encoding(indices="auto", values=values)
    )
    communicator = Communicator(1)
    reducer.reduce(inputs_of(segments), (), Step(0, 0), communicator)
    per_element = communicator.take_charges().sum() / kept
    nats = math.lgamma(size + 1) - math.lgamma(kept + 1) - math.lgamma(size - kept + 1)
    bound = {"fp32": 4, "bf16": 2}[values] + nats / math.log(2) / 8 / kept
    assert bound < per_element < bound + 0.03


class Tampering(Communicator):
    """The message of worker 1 arrives without its last byte."""

    def all_gather_messages(self, messages, largest):
        received = super().all_gather_messages(messages, largest)
        received[1] = received[1][:-1]
        return received


def test_an_error_names_worker_and_step() -> None:
    reducer = build_reducer(TopK(density=0.1), D, encoding=Encoding(indices="auto"))
    reason = "the message of worker 1 in step 8 cannot be decoded: it ends after [0-9]+ bytes, 1 too early"
    with pytest.raises(EncodingError, match=reason):
        reducer.reduce(inputs_of([segment(gradients())]), (), Step(0, 7), Tampering(W))


@pytest.mark.parametrize("method", [NoCompression(), RandomK(density=0.1), RandomBlock(density=0.1)])
def test_a_wire_that_does_not_fit_is_refused(method: object) -> None:
    with pytest.raises(
        ValueError, match=r"wire.values must be fp32 with \w+, got 'bf16': an all-reduce adds"
    ):
        build_reducer(method, D, encoding=Encoding(values="bf16"))
    with pytest.raises(
        ValueError, match=r"wire.indices=auto has no effect with \w+: its values are sent by an all-reduce"
    ):
        build_reducer(method, D, encoding=Encoding(indices="auto"))


def test_a_wire_is_refused_for_a_method_with_collectives_of_its_own() -> None:
    said = r"GTopK.*: it has collectives of its own, without encoded messages$"
    for encoding in (Encoding(values="bf16"), Encoding(indices="rice")):
        with pytest.raises(ValueError, match=said):
            build_reducer(GTopK(density=0.1), D, encoding=encoding)


@pytest.mark.parametrize("kind", [RandomK, RandomBlock])
def test_drawn_indices_need_no_code(kind: type) -> None:
    method = kind(density=0.1, shared_coordinates=False)
    with pytest.raises(ValueError, match=r"wire.indices must be auto with .* follow from the seed"):
        build_reducer(method, D, encoding=Encoding(indices="rice"))
    reducer = build_reducer(method, D, encoding=Encoding(indices="auto"))
    communicator = Communicator(W)
    reducer.reduce(inputs_of([segment(gradients())]), (), Step(0, 0), communicator)
    assert communicator.take_charges().tolist() == [[200, 0, 0, 6]] * W
