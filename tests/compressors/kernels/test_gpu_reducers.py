"""Reductions by Triton's kernels against the reference, bit for bit, for every method with GPU kernels.

On a GPU, or in Triton's interpreter without one; see ``test_gpu_kernels.py``.
"""

import interpreter
import pytest
import torch
from few_digits import DEVICE, few_digits
from methods import Case, cases, is_exact, segment

from compressors.api import Codec, Step, inputs_of
from compressors.build import build_reducer
from compressors.core.rules import SignsAtLeast
from compressors.feedback import ErrorFeedback
from compressors.kernels import choice
from trainers.comm.communicator import Communicator

pytest.importorskip("triton", reason="a GPU's kernels are Triton's")

from compressors.kernels.gpu.backend import RULES, GpuKernels

interpreter.install()
KERNELS = GpuKernels()
W = 2


def has_a_rule(case: Case) -> bool:
    """Whether Triton's kernels support a case: its codec has one of their rules or a rounding, or chooses
    other codecs."""
    codec = case.method()
    if not isinstance(codec, Codec):
        return False
    known = codec.for_model(301)
    if not is_exact(codec):
        return known.rounding(300, Step(0, 0)) is not None or isinstance(
            known.rule(300, Step(0, 0), range(1)), SignsAtLeast
        )
    return type(known).choose is not Codec.choose or isinstance(known.rule(300, Step(0, 0), range(1)), RULES)


CASES = [case for case in cases() if has_a_rule(case)]
# One method for each rule of the kernels, a quantiser, and methods that choose codecs from the inputs
QUICK = ("accordion", "hard_threshold", "qsgd", "random_block", "random_k", "redsync", "strom", "top_k")
FIRST = {case.source: case for case in reversed(CASES) if case.name in QUICK}.values()


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=str(c), marks=[] if c in FIRST else pytest.mark.slow) for c in CASES]
)
def test_reducers(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean, residual, error, counts and bytes after two steps with error feedback."""
    found = []
    for kernels in ("auto", "reference"):
        with monkeypatch.context() as patch:
            patch.setattr(choice, "_of_type", lambda device: (KERNELS, ""))
            patch.setattr(choice, "_choice", kernels)
            reducer = build_reducer(case.method(), 301, ErrorFeedback)
            flat = torch.zeros(W, 301, device=DEVICE)
            segments = [segment(rows, str(i)) for i, rows in enumerate(flat.split([300, 1], 1))]
            state, communicator = reducer.init(segments), Communicator(W)
            communicator.declare_kinds(reducer.kinds)
            for step in range(2):
                flat.copy_(few_digits(W, 301, seed=step))
                reduced, state = reducer.reduce(inputs_of(segments), state, Step(3, step), communicator)
            by_kernel = all(len(own.payloads) == 1 for own in reduced.compressed.values())
            assert by_kernel == (kernels == "auto")
            found.append(
                [torch.as_tensor(communicator.take_charges())]
                + [
                    torch.as_tensor(x)
                    for name, own in reduced.compressed.items()
                    for x in (
                        reduced.mean[name],
                        reduced.residual[name],
                        own.sent,
                        own.error,
                        own.input_norm,
                    )
                ]
            )
    for ours, reference in zip(*found, strict=True):
        assert torch.equal(ours, reference)
