"""Hit rate, NDCG and losses, compared with plain loops and hand-computed numbers."""

import math

import pytest
import torch
from torch import nn

from data.ratings.ranking import Candidates, Ranking, RatingsBatch, hits_and_gains


class Scores(nn.Module):
    """A model whose scores are a table [users, items]."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        assert users.shape == items.shape
        return self.table[users, items]


def by_loop(scores: list[float]) -> tuple[float, float]:
    """Hit rate and gain of the first score: means over all ranks that its ties allow."""
    better = sum(other > scores[0] for other in scores[1:])
    ties = sum(other == scores[0] for other in scores[1:])
    local_workers = range(better + 1, better + ties + 2)
    hit = sum(rank <= 10 for rank in local_workers) / len(local_workers)
    gain = sum(1 / math.log2(1 + rank) for rank in local_workers if rank <= 10) / len(local_workers)
    return hit, gain


@pytest.mark.parametrize("levels", [3, 20, 10**6])
def test_hits_and_gains_against_a_loop(levels: int) -> None:
    scores = torch.randint(levels, (200, 101), generator=torch.Generator().manual_seed(levels))
    scores = scores.double() / levels
    hits, gains = hits_and_gains(scores)
    for row, hit, gain in zip(scores.tolist(), hits.tolist(), gains.tolist(), strict=True):
        assert (hit, gain) == pytest.approx(by_loop(row), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("rank", [1, 2, 10, 11, 101])
def test_gain_of_a_rank(rank: int) -> None:
    scores = torch.zeros(1, 101)
    scores[0, 1:rank] = 1
    scores[0, rank:] = -1
    hits, gains = hits_and_gains(scores)
    assert hits.tolist() == [rank <= 10]
    assert gains.tolist() == pytest.approx([1 / math.log2(1 + rank) if rank <= 10 else 0])


@pytest.mark.parametrize("score", [0.0, -3.0, math.inf, -math.inf, math.nan])
def test_a_model_that_scores_everything_alike_is_at_chance_level(score: float) -> None:
    hits, gains = hits_and_gains(torch.full((5, 101), score))
    assert hits.tolist() == pytest.approx([10 / 101] * 5)
    assert gains.tolist() == pytest.approx([sum(1 / math.log2(1 + r) for r in range(1, 11)) / 101] * 5)


def test_loss_is_the_mean_cross_entropy_of_positives_and_negatives() -> None:
    model = Scores(torch.tensor([[0.0, 2.0], [-1.0, 3.0]]))
    batch = RatingsBatch(torch.tensor([0, 1, 1]), torch.tensor([1, 0, 1]), torch.tensor([1.0, 0.0, 0.0]))
    loss, memory = Ranking().loss(model, batch, None)
    expected = [math.log1p(math.exp(-2)), math.log1p(math.exp(-1)), math.log1p(math.exp(3))]
    assert loss.item() == pytest.approx(sum(expected) / 3, rel=1e-6)
    assert memory is None


def test_measure_adds_up_over_any_batches() -> None:
    stream = torch.Generator().manual_seed(0)
    model = Scores(torch.randn(30, 200, generator=stream))
    items = torch.stack([torch.randperm(200, generator=stream)[:101] for _ in range(30)]).int()
    task, users = Ranking(), torch.arange(30).int()
    sums = sum(task.measure(model, Candidates(users[i : i + 7], items[i : i + 7])) for i in range(0, 30, 7))
    assert sums.shape == (task.num_sums,) and sums.dtype == torch.float64
    metrics = task.summarise(sums)
    rows = [[model.table[u, i].item() for i in items[u].tolist()] for u in range(30)]
    wanted = [by_loop(row) for row in rows]
    assert metrics["hit_rate_at_10"] == pytest.approx(sum(hit for hit, _ in wanted) / 30)
    assert metrics["ndcg_at_10"] == pytest.approx(sum(gain for _, gain in wanted) / 30)
    losses = [math.log1p(math.exp(-row[0])) + sum(math.log1p(math.exp(s)) for s in row[1:]) for row in rows]
    assert metrics["loss"] == pytest.approx(sum(losses) / 30 / 101, rel=1e-6)
    assert task.higher_is_better == set(metrics) - {"loss"}
