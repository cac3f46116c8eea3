"""Loss and gradient of a worker under precision settings and micro-batches."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from training import flat_of

from trainers.comm.communicator import Communicator
from trainers.step.forward import cut, in_precision, require_bf16
from trainers.step.gradients import WorkerGradients
from trainers.step.layout import Layout

CPU = torch.device("cpu")


class Points(NamedTuple):
    """Samples of a straight line, and a flag for the whole batch."""

    x: Tensor
    y: Tensor
    first: bool


class Line(nn.Module):
    """y = w x"""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0]))


def signed(model: Line, batch: Points, memory: float | None = None) -> tuple[Tensor, float]:
    """A loss whose gradient is the mean of x, and the number of samples seen so far."""
    return (model.w * batch.x).mean(), (memory or 0) + len(batch.x)


def workers_of(count: int = 1, **settings: object) -> WorkerGradients:
    model = Line()
    layout = Layout(dict(model.named_parameters()), "layer")
    return WorkerGradients(model, signed, layout, Communicator(count), seed=0, **settings)


def test_cut_splits_tensors_and_repeats_the_rest() -> None:
    batch = Points(torch.arange(6), torch.arange(12).view(6, 2), True)
    pieces = cut(batch, 2)
    assert [piece.x.tolist() for piece in pieces] == [[0, 1], [2, 3], [4, 5]]
    assert torch.equal(torch.cat([piece.y for piece in pieces]), batch.y)
    assert all(piece.first is True and type(piece) is Points for piece in pieces)
    assert cut(batch, None) == [batch]


def test_micro_batches_add_up_to_the_batch_each_with_its_own_memory() -> None:
    x = torch.tensor([1.0, 3.0, 5.0, 11.0])
    workers = workers_of(micro_batch_size=2)
    loss = workers.compute([Points(x, x, True)], step=0)
    assert flat_of(workers).tolist() == [[5.0]]
    assert loss.tolist() == [10.0]
    workers.compute([Points(x, x, False)], step=1)
    assert workers.carries == [[4, 4]]
    two, more = workers_of(count=2), torch.ones(5)
    for step in range(2):
        two.compute([Points(x, x, True), Points(more, more, True)], step)
    assert two.carries == [[8], [10]], "of each worker"


def test_clipping_sees_the_whole_batch_not_its_pieces() -> None:
    x = torch.tensor([10.0, 10.0, -9.0, -9.0])
    workers = workers_of(micro_batch_size=2, clip_norm=1.0)
    workers.compute([Points(x, x, True)], step=0)
    assert flat_of(workers).tolist() == [[0.5]]  # if clipped separately, the pieces would cancel


def test_bf16_computes_in_bf16_and_leaves_the_gradient_in_fp32() -> None:
    torch.manual_seed(0)
    model, seen = nn.Linear(64, 64), []

    def loss(model: nn.Module, batch: Tensor, memory: None) -> tuple[Tensor, None]:
        outputs = model(batch)
        seen.append(outputs.dtype)
        return outputs.sum(), None

    inputs = torch.randn(8, 64)
    found = {}
    for precision in ("fp32", "bf16"):
        value, _ = in_precision(loss, CPU, precision)(model, inputs, None)
        assert value.dtype == torch.float32
        found[precision] = torch.autograd.grad(value, list(model.parameters()))
    assert seen == [torch.float32, torch.bfloat16]
    for exact, rounded in zip(found["fp32"], found["bf16"], strict=True):
        assert rounded.dtype == torch.float32
        torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.1)
    assert not torch.equal(found["fp32"][0], found["bf16"][0])


def test_bf16_needs_a_device_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "An old GPU")
    require_bf16(CPU)
    with pytest.raises(ValueError, match=r"trainer\.precision=bf16: An old GPU does not support it"):
        require_bf16(torch.device("cuda"))


@pytest.mark.parametrize("size", [0, 3, 8, 2.0, True])
def test_micro_batch_size_must_divide_the_batch(size: object) -> None:
    from trainers.settings import TrainerSettings

    settings = {"epochs": 1, "steps": None, "batch_size": 4, "log_every": 1, "evaluate_every": 1}
    settings |= {"evaluation_batch_size": 4, "clip_norm": None}
    with pytest.raises(
        ValueError, match=r"trainer\.micro_batch_size must be a divisor of trainer\.batch_size"
    ):
        TrainerSettings(**settings, micro_batch_size=size)
