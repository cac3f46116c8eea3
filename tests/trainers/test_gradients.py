"""Gradients of workers: independent of the other workers; errors name non-finite gradients."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from training import SmallNet, batch_of, flat_of, loss_of

from trainers.comm.communicator import Communicator
from trainers.step.gradients import AnalyticGradients, NonFiniteGradientError, WorkerGradients, seed_worker
from trainers.step.layout import Layout


def workers_of(model: nn.Module, count: int, clip_norm: float | None = None, loss=loss_of) -> WorkerGradients:
    layout = Layout(dict(model.named_parameters()), "layer")
    return WorkerGradients(model, loss, layout, Communicator(count), seed=3, clip_norm=clip_norm)


def small_net() -> SmallNet:
    torch.manual_seed(0)
    return SmallNet()


def test_each_worker_computes_as_if_alone() -> None:
    """The first two workers have equal batches and weights, and drop different units."""
    workers, batches = workers_of(small_net(), 3), [batch_of(0, w) for w in (0, 0, 1)]
    workers.compute(batches, step=5)
    for worker, batch in enumerate(batches):
        alone = small_net()
        seed_worker(3, 5, worker)
        loss_of(alone, batch)[0].backward()
        expected = torch.cat([p.grad.flatten() for p in alone.parameters()])
        assert torch.equal(flat_of(workers)[worker], expected)
    assert not torch.equal(flat_of(workers)[0], flat_of(workers)[1])


def test_buffers_kept_are_worker_0s() -> None:
    """The running mean is updated once per step, by worker 0, for any number of workers."""
    model, alone = small_net(), small_net()
    workers_of(model, 4).compute([batch_of(0, w) for w in range(4)], step=0)
    workers_of(alone, 1).compute([batch_of(0, 0)], step=0)
    assert alone.norm.num_batches_tracked == 1
    for buffer, expected in zip(model.buffers(), alone.buffers(), strict=True):
        assert torch.equal(buffer, expected)


def test_clipping_is_per_worker_and_before_compression() -> None:
    model = small_net()
    free = workers_of(small_net(), 2)
    clipped = workers_of(model, 2, clip_norm=0.5)
    batches = [batch_of(0, 0), batch_of(0, 1)]
    free.compute(batches, 0)
    clipped.compute(batches, 0)
    for row, original in zip(flat_of(clipped), flat_of(free), strict=True):
        assert original.norm() > 0.5
        assert row.norm().item() == pytest.approx(0.5, rel=1e-4)
        torch.testing.assert_close(row, original * (0.5 / original.norm()), rtol=1e-4, atol=1e-7)
    large = workers_of(small_net(), 2, clip_norm=1e6)
    large.compute(batches, 0)
    assert torch.equal(flat_of(large), flat_of(free))


def test_clipping_reaches_a_convolution_in_channels_last() -> None:
    """The backward pass of a single worker returns a gradient in the memory order of the weight."""
    found = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        model = small_net().to(memory_format=memory_format)
        workers = workers_of(model, 1, clip_norm=0.5)
        workers.compute([batch_of(0, 0)], 0)
        found.append(flat_of(workers))
    assert found[1].norm().item() == pytest.approx(0.5, rel=1e-4)
    torch.testing.assert_close(*found)


def test_dropout_changes_with_step_and_seed_only() -> None:
    """The global state of torch's generator has no effect."""
    batches = [batch_of(0, 0)]
    found = []
    for global_seed, step in ((1, 0), (2, 0), (1, 1)):
        model = small_net()
        torch.manual_seed(global_seed)
        workers = workers_of(model, 1)
        workers.compute(batches, step)
        found.append(flat_of(workers).clone())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_named(poison: float) -> None:
    model = small_net()
    batches = [batch_of(0, w) for w in range(3)]

    def loss(model: nn.Module, batch, memory) -> tuple[torch.Tensor, None]:
        fine, _ = loss_of(model, batch)
        return (fine + model.linear.bias.sum() * poison if batch is batches[1] else fine), None

    with pytest.raises(
        NonFiniteGradientError, match=r"step 5: the gradient of worker 1 is not finite in layer linear\.bias"
    ):
        workers_of(model, 3, loss=loss).compute(batches, step=4)


def test_a_norm_that_overflows_is_a_fault_only_where_it_would_clip_all_away() -> None:
    """Squares of 1e30 are infinite in fp32, but the gradient is finite."""
    model = nn.Linear(2, 1, bias=False)
    workers, clipped = (
        workers_of(model, 1, clip, loss=lambda m, batch, _: ((m.weight * 1e30).sum(), None))
        for clip in (None, 1.0)
    )
    workers.compute([None], 0)
    assert torch.equal(flat_of(workers), torch.full((1, 2), 1e30))
    with pytest.raises(NonFiniteGradientError, match="worker 0 is not finite"):
        clipped.compute([None], 0)


def test_an_analytic_norm_that_overflows_is_a_fault_if_it_would_clip_all_away() -> None:
    class Steep(nn.Linear):
        def begin(self, shards: object) -> None:
            pass

        def worker_gradients(self, batches: object, out: torch.Tensor, measure: bool) -> None:
            out.fill_(1e30)

    model = Steep(2, 1, bias=False)
    layout = Layout(dict(model.named_parameters()), "layer")
    for clip in (None, 1.0):
        gradients = AnalyticGradients(model, [], layout, Communicator(1), clip_norm=clip)
        with nullcontext() if clip is None else pytest.raises(NonFiniteGradientError, match="worker 0"):
            gradients.compute([], 0)


@pytest.mark.parametrize("count", [1, 2])
def test_unused_parameters_have_zero_gradients(count: int) -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 2), "idle": nn.Linear(2, 2)})
    workers = workers_of(
        model,
        count,
        loss=lambda m, batch, _: (F.mse_loss(m["used"](torch.ones(1, 2)), torch.zeros(1, 2)), None),
    )
    for segment in workers.segments:
        segment.rows.fill_(9.0)
    workers.compute([None] * count, 0)
    assert (flat_of(workers)[:, :6].abs().sum(1) > 0).all()
    assert torch.equal(flat_of(workers)[:, 6:], torch.zeros(count, 6))


class _Twice(nn.Module):
    """Autograd gives both parameters the same gradient tensor; the second has another memory layout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(2, 3))
        self.second = nn.Parameter(torch.ones(3, 2).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * (self.first + self.second)).sum()


class _Reshaped(nn.Module):
    """Autograd gives both parameters views of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(2, 3))
        self.second = nn.Parameter(torch.ones(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.view(-1) * (self.first.view(-1) + self.second.view(-1))).sum()


@pytest.mark.parametrize("model", [_Twice, _Reshaped])
def test_a_lone_workers_gradients_share_no_memory(model: type[nn.Module]) -> None:
    """A reducer without feedback overwrites them one by one."""
    x = torch.arange(6.0).view(2, 3)
    workers = workers_of(model(), 1, loss=lambda m, batch, _: (m(batch), None))
    workers.compute([x], 0)
    for segment in workers.segments:
        assert torch.equal(segment.rows, x.view(1, 6))
        segment.rows.zero_()
    assert torch.equal(x, torch.arange(6.0).view(2, 3))
