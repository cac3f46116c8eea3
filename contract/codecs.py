"""The part of the contract for codecs: what ``encode`` sends and leaves, and the declared traits."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from compressors.api import Codec, Step, inputs_of
from compressors.core.fields import KINDS, declared
from compressors.core.norms import squared_norm
from compressors.kernels.choice import backend_of
from contract.cases import (
    Case,
    communicator_for,
    is_codec,
    layer_shape,
    reduce_once,
    reducer_of,
    segment,
    weights_of,
)

W, D = 3, 500
DRAWS = 100  # draws of a seeded method, for averages of its error and mean
METADATA, VALUES = KINDS.index("metadata"), KINDS.index("values")


def gradients(step: int = 0, workers: int = W, size: int = D) -> Tensor:
    return torch.randn(workers, size, generator=torch.Generator().manual_seed(step))


def current(codec: Codec, rows: Tensor, step: Step) -> Codec:
    """The codec that ``choose`` returns in the first step, ``step``, for workers with ``rows`` [W, d]."""
    segments = [segment(rows.clone())]
    communicator = communicator_for(reducer_of(codec, rows.shape[1]), len(rows))
    (own,), _ = codec.choose(inputs_of(segments), codec.init(segments), step, communicator)
    return own


def step_of(x: Tensor, number: int = 0, **changes: Any) -> Step:
    """The step that ``encode`` gets for a segment of one layer."""
    shapes = (layer_shape(x.numel()),)
    return Step(0, number, segment="a", shapes=shapes, weights=weights_of(shapes), **changes)


def codec_of(case: Case) -> Codec:
    """The codec of a case. Skips the test if the method is a reducer."""
    method = case.method()
    if not is_codec(method):
        pytest.skip(f"{case} is not a codec")
    return method


class CodecContract:
    """Tests of each of ``cases`` that is a codec."""

    cases: ClassVar[Sequence[Case]] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", [pytest.param(case, id=str(case)) for case in self.cases])

    def test_error_bound(self, case: Case) -> None:
        """||x - C(x)||^2 stays below the declared bound; for a random method, on average over draws."""
        codec = codec_of(case)
        if math.isinf(codec.error_bound(gradients(1)[0], step_of(gradients()[0]))):
            pytest.skip(f"{case} declares no bound")
        for x in (gradients(1)[0], gradients(2)[0] ** 3, torch.linspace(-1, 1, D)):
            errors = []
            for number in range(DRAWS if codec.traits.seeded else 1):
                rest = x.clone()
                current(codec, rest[None], step_of(x)).encode(rest, step_of(x, number))
                errors.append(squared_norm(rest).item())
            mean = sum(errors) / len(errors)
            standard_error = math.sqrt(
                sum((e - mean) ** 2 for e in errors) / max(1, len(errors) - 1) / len(errors)
            )
            assert mean <= codec.error_bound(x, step_of(x)) + 5 * standard_error + 1e-6
            assert mean > 0

    def test_unbiased(self, case: Case) -> None:
        """The squared error of the mean of C(x) over ``DRAWS`` draws is about the variance / ``DRAWS``.

        An entry's mean is nearly Gaussian: the sum over D = 500 independent entries exceeds twice its
        expectation with a probability below 1e-6.
        """
        codec = codec_of(case)
        if not codec.traits.unbiased:
            pytest.skip(f"{case} is not declared unbiased")
        for x in (gradients(1)[0], gradients(2)[0] ** 3):
            total, variance = torch.zeros(D, dtype=torch.float64), 0.0
            for number in range(DRAWS):
                rest = x.clone()
                codec.encode(rest, step_of(x, number))
                total += rest
                variance += squared_norm(rest).item() / DRAWS
            assert squared_norm(total / DRAWS).item() <= 2 * variance / DRAWS

    def test_traits_of_what_is_sent(self, case: Case) -> None:
        """``linear``, ``ragged``, ``drawn`` and ``dense`` hold for workers with different inputs."""
        a, b = gradients(1)[0], 10 * gradients(2)[0]
        traits, step = codec_of(case).traits, step_of(a)
        codec = current(codec_of(case), torch.stack([a, a]), step)
        own = [codec.encode(x.clone(), step._replace(worker=w)) for w, x in enumerate((a, b))]
        first, second = (codec.positions(payload, D, step) for payload in own)
        assert (len(first) == len(second) == D) == traits.dense, (
            f"trait dense: two workers sent {len(first)} and {len(second)} of {D} elements"
        )
        if traits.dense:
            return
        ragged = len(first) != len(second)
        assert ragged == traits.ragged, (
            f"trait ragged: two workers sent {len(first)} and {len(second)} elements"
        )
        if not traits.ragged:
            are_equal = torch.equal(first, second)
            assert are_equal == traits.linear, (
                f"trait linear: two workers chose {'the same' if are_equal else 'different'} elements"
            )
        if codec.traits.drawn:
            again = codec.encode(b.clone(), step)
            assert torch.equal(codec.positions(again, D, step), first), (
                "trait drawn: the elements sent depend on the input"
            )

    def test_a_payload_of_several_workers_is_theirs_in_a_row(self, case: Case) -> None:
        """A backend's payloads and residuals of all workers equal those of ``encode``, bit for bit."""
        rows, workers = gradients(1), range(W)
        step = step_of(rows[0], 5)._replace(seed=3)
        codec = current(codec_of(case), rows, step._replace(number=0))
        left = rows.clone()
        alone = [codec.encode(x, step._replace(worker=w)) for x, w in zip(left, workers, strict=True)]
        together = segment(rows.clone())
        (found,) = backend_of(rows.device).compress([codec], inputs_of([together]), step, workers)
        assert torch.equal(together.rows, left)
        assert found.counts.tolist() == [codec.num_sent(payload, D, step) for payload in alone]
        assert torch.equal(found.positions(D), torch.cat([codec.positions(p, D, step) for p in alone]))
        sums = [torch.zeros(D), torch.zeros(D)]
        for total, payloads in zip(sums, (found.payloads, alone), strict=True):
            for worker, payload in zip(workers, payloads, strict=False):
                codec.add(payload, total, step._replace(worker=worker))
        assert torch.equal(*sums)
        if declared(codec.payload).joins and len(found.payloads) == 1:
            for field, pieces in zip(found.payloads[0], zip(*alone, strict=True), strict=True):
                assert torch.equal(field, torch.cat(pieces))

    def test_bytes_are_those_of_the_payloads(self, case: Case) -> None:
        """Charges are the bytes of the payload's fields, by declared kind, and of a ragged method's counts.

        If all workers select the same elements, only values are sent.
        """
        own = codec_of(case)
        if type(own).choose is not Codec.choose:
            pytest.skip(f"{case} also sends data for choose()")
        reducer = reducer_of(own, D)
        reduced, _, communicator = reduce_once(reducer, gradients())
        codec, _ = reduced.compressed["a"].origin
        expected = np.zeros((W, len(communicator.kinds)), dtype=int)
        for worker, x in enumerate(gradients()):
            step = step_of(x, worker=worker)
            payload = codec.encode(x, step)
            sent = codec.num_sent(payload, D, step)
            assert reduced.compressed["a"].counts[worker] == sent == len(codec.positions(payload, D, step))
            for tensor, field in zip(payload, declared(codec.payload).fields.values(), strict=True):
                if field.elements_per_entry is not None:
                    assert len(tensor) == -(-sent // field.elements_per_entry)
                if field.kind == "values" or not codec.traits.linear:
                    expected[worker, communicator.kinds.index(field.kind)] += tensor.nbytes
            expected[worker, METADATA] += 4 * codec.traits.ragged
        assert communicator.take_charges().tolist() == expected.tolist()
