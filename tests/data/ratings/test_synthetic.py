"""Synthetic ratings: sizes, seed, learnable pattern, refusals."""

import numpy as np
import pytest
import torch

from data.ratings.synthetic import draw, synthetic_ratings

SIZES = {"users": 80, "items": 200, "rank": 3, "fewest": 6, "most": 20, "taste": 2.0, "skew": 1.0}


def test_sizes_and_order() -> None:
    users, items, times = draw(**SIZES, draw_seed=0)
    counts = np.bincount(users)
    assert len(counts) == 80 and counts.min() >= 6 and counts.max() <= 20 and len(set(counts)) > 5
    assert len(set(zip(users.tolist(), items.tolist(), strict=True))) == len(users)
    assert items.min() >= 0 and items.max() < 200
    assert (np.diff(times) > 0).all()


def test_drawn_by_its_own_seed_alone() -> None:
    torch.manual_seed(1)
    first = draw(**SIZES, draw_seed=0)
    torch.manual_seed(2)
    again, other = draw(**SIZES, draw_seed=0), draw(**SIZES, draw_seed=1)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert len(other.items) != len(first.items) or (other.items != first.items).any()


def test_skew_makes_items_popular_and_taste_makes_users_differ() -> None:
    def counts(**changes: float) -> np.ndarray:
        return np.bincount(draw(**(SIZES | changes), draw_seed=0).items, minlength=200)

    assert counts(skew=2.0, taste=0.0).std() > 2 * counts(skew=0.0, taste=0.0).std()
    assert counts(skew=0.0, taste=0.0).std() == pytest.approx(counts().mean() ** 0.5, rel=0.3)


def test_synthetic_by_name_and_facts() -> None:
    facts = synthetic_ratings(**SIZES, draw_seed=5, negatives=4).facts()
    assert facts["name"] == "synthetic_ratings"
    assert facts["synthetic"] == "drawn from a model of rank 3 by draw_seed 5"
    assert 0 < facts["popularity_hit_rate_at_10"] < 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"users": 0}, r"data\.users must be an integer >= 1, got 0"),
        ({"items": 1.5}, r"data\.items must be an integer >= 1, got 1\.5"),
        ({"rank": True}, r"data\.rank must be an integer >= 1, got True"),
        ({"fewest": 1}, r"data\.fewest must be an integer >= 2, got 1"),
        ({"fewest": 21}, r"data\.fewest must be at most data\.most \(20\), got 21"),
        ({"most": 201}, r"data\.most must be at most data\.items \(200\), got 201"),
        ({"taste": float("inf")}, r"data\.taste must be a finite number >= 0, got inf"),
        ({"skew": -1}, r"data\.skew must be a finite number >= 0, got -1"),
        ({"draw_seed": -1}, r"data\.draw_seed must be an integer >= 0, got -1"),
        ({"negatives": 0}, r"data\.negatives must be an integer >= 1, got 0"),
        ({"items": 110}, r"fewer than 100 unrated"),
    ],
)
def test_bad_settings(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        synthetic_ratings(**({"draw_seed": 0, "negatives": 4} | SIZES | changes))
