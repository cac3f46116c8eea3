"""Steps that reduce bucket by bucket: buckets, their order, unusual gradients."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compressors.build import build_reducer
from compressors.feedback import ErrorFeedback
from compressors.none import NoCompression
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.step.explicit import ExplicitStep
from trainers.step.gradients import WorkerGradients
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger
from trainers.step.overlapped import Buckets, OverlappedStep, buckets_of
from trainers.training import Training

SIZES = [3, 200_000, 5, 300_000, 7, 1]


class Odd(nn.Module):
    """The forward pass uses its second-last parameter first, and its last parameter not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3)
        self.linear = nn.Linear(16, 2)
        self.early = nn.Conv2d(1, 4, 3)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, images: Tensor) -> Tensor:
        return self.linear(self.convolution(self.early(images)).flatten(1))


def loss_of(model: nn.Module, batch: Any, memory: Any) -> tuple[Tensor, None]:
    return model(batch.images).square().mean(), None


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(size)) for size in SIZES]


@pytest.mark.parametrize("megabytes", [1e-6, 0.5, 1.0, 25])
def test_buckets_hold_all_parameters_from_the_last_to_the_first(megabytes: float) -> None:
    buckets = buckets_of(parameters(), megabytes)
    assert [position for own in buckets for position in own] == [5, 4, 3, 2, 1, 0]
    held = [sum(4 * SIZES[position] for position in own) / 2**20 for own in buckets]
    assert all(size >= megabytes for size in held[1:-1])
    last = [4 * SIZES[own[-1]] / 2**20 for own in buckets]
    assert all(size - of_last < megabytes for size, of_last in zip(held, last, strict=True)), (
        "one was full before"
    )
    assert (len(buckets[0]) == 1) == (megabytes == 1e-6)


def test_buckets_are_launched_in_one_order_whatever_comes_first() -> None:
    first, second, unused = (nn.Parameter(torch.ones(1)) for _ in range(3))
    launched: list[int] = []
    buckets = Buckets([first, second, unused], 1e-6, launched.append)
    (second * 2 + first).sum().backward()
    assert launched == [], "nobody has opened them"
    for loss in ((second * 2 * first).sum(), (first * second.exp()).sum()):
        launched.clear()
        buckets.open()
        loss.backward()
        assert launched == [], "the first bucket has no gradient"
        buckets.close()
        assert launched == [0, 1, 2]
    assert buckets.positions == [[2], [1], [0]]


def trained(*, overlap: bool, channels_last: bool) -> list[Tensor]:
    torch.manual_seed(0)
    model = Odd()
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    layout, communicator = Layout(dict(model.named_parameters()), "layer"), Communicator(1)
    reducer = NoCompression()
    ledger = Ledger(layout, communicator, reducer)
    if overlap:
        step: Any = OverlappedStep(
            model, loss_of, reducer, communicator, ledger, seed=1, bucket_megabytes=1e-4
        )
    else:
        gradients = WorkerGradients(model, loss_of, layout, communicator, seed=1)
        step = ExplicitStep(gradients, reducer, layout, communicator, ledger, seed=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(3):
        images = torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(number))
        step.run([SimpleNamespace(images=images)], number, 0.1)
        ledger.close_step()
        optimizer.step()
    return [p.detach() for p in model.parameters()] + [
        ledger.total_error,
        ledger.input_norm,
        torch.from_numpy(ledger.total_counts.sent),
    ]


@pytest.mark.parametrize("channels_last", [False, True])
def test_odd_gradients_are_reduced_as_without_overlap(channels_last: bool) -> None:
    one, other = (trained(overlap=o, channels_last=channels_last) for o in (False, True))
    for expected, found in zip(one, other, strict=True):
        assert torch.equal(found, expected)


def test_every_layer_is_a_row_of_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of additions of many workers depends on where a layer ends."""
    shapes, begin = [], Communicator.all_reduce_mean_later

    def noted(self: Communicator, rows: list[Tensor], add_up: Any) -> Any:
        shapes.append([list(row.shape) for row in rows])
        return begin(self, rows, add_up)

    monkeypatch.setattr(Communicator, "all_reduce_mean_later", noted)
    trained(overlap=True, channels_last=False)
    sizes = [[1, p.numel()] for p in Odd().parameters()][::-1]
    assert [shape for of_bucket in shapes for shape in of_bucket] == 3 * sizes
    assert 2 < len(shapes) < 3 * len(sizes)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"clip_norm": 1.0}, False),
        ({"scope": "global"}, False),
        ({"method": build_reducer(TopK(density=0.3), 100, ErrorFeedback)}, False),
        ({"nodes": object()}, False),
    ],
)
def test_dense_steps_overlap_by_themselves_where_pieces_will_do(
    change: dict[str, Any], expected: bool
) -> None:
    case = {
        "clip_norm": None,
        "nonfinite": "stop",
        "scope": "layer",
        "processes": 4,
        "method": NoCompression(),
    }
    case = {**case, "diagnostics": (), "nodes": None, **change}
    trainer = SimpleNamespace(
        settings=SimpleNamespace(clip_norm=case["clip_norm"], nonfinite=case["nonfinite"]),
        communicator=SimpleNamespace(size=4, world_size=case["processes"]),
        layout=SimpleNamespace(scope=case["scope"], device=torch.device("cpu")),
        reducer=case["method"],
        diagnostics=SimpleNamespace(names=case["diagnostics"]),
        is_analytic=False,
        local=None,
        nodes=case["nodes"],
    )
    assert Training.overlaps.fget(trainer) is expected
