"""Draws of negatives: unrated, uniform, determined by the generator."""

import numpy as np
import pytest
import torch

from data.ratings.negatives import RatedPairs

NUM_USERS, NUM_ITEMS = 50, 40


def pairs(seed: int = 0, share: float = 0.3) -> tuple[np.ndarray, RatedPairs]:
    """A matrix [users, items] bool, and the same as pairs."""
    table = np.random.default_rng(seed).random((NUM_USERS, NUM_ITEMS)) < share
    users, items = (side.astype(np.int32) for side in table.nonzero())
    mixed = np.random.default_rng(seed).permutation(len(users))
    return table, RatedPairs.of(users[mixed], items[mixed], NUM_ITEMS)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.95])
def test_contain_is_exact_for_all_pairs(share: float) -> None:
    table, rated = pairs(share=share)
    users, items = (side.astype(np.int32) for side in np.indices(table.shape).reshape(2, -1))
    assert (rated.contain(users, items) == table.ravel()).all()


def test_contain_with_keys_beyond_32_bits() -> None:
    users, items = np.array([99_999, 2], np.int32), np.array([70_000, 99_999], np.int32)
    rated = RatedPairs.of(users, items, 100_000)
    assert rated.contain(users, items).all()
    assert not rated.contain(users, items - 1).any()


@pytest.mark.parametrize("method", ["draw_unrated", "draw_distinct_unrated"])
def test_nothing_drawn_was_rated(method: str) -> None:
    table, rated = pairs()
    users = np.repeat(np.arange(NUM_USERS, dtype=np.int32), 3)
    drawn = getattr(rated, method)(users, 8, stream())
    assert drawn.shape == (150, 8) and drawn.dtype == np.int32
    assert not table[users[:, None], drawn].any()
    assert (drawn == getattr(rated, method)(users, 8, stream())).all()
    assert (drawn != getattr(rated, method)(users, 8, stream(1))).any()


def test_distinct_ones_are_distinct_down_to_the_last() -> None:
    table, rated = pairs()
    for user in range(5):
        left = np.flatnonzero(~table[user])
        drawn = rated.draw_distinct_unrated(np.full(3, user, np.int32), len(left), stream())
        assert (np.sort(drawn, 1) == left).all()


@pytest.mark.parametrize("method", ["draw_unrated", "draw_distinct_unrated"])
def test_uniform_over_what_is_left(method: str) -> None:
    table, rated = pairs()
    draws = 4000
    drawn = getattr(rated, method)(np.zeros(draws, np.int32), 5, stream())
    left = np.flatnonzero(~table[0])
    counts = np.bincount(drawn.ravel(), minlength=NUM_ITEMS)[left]
    expected = 5 * draws / len(left)
    assert counts.sum() == 5 * draws
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < 2 * len(left)  # on average len(left) - 1, with a deviation of sqrt(2 len(left))


def test_nobody_draws_nothing() -> None:
    _, rated = pairs()
    assert rated.draw_unrated(np.empty(0, np.int32), 4, stream()).shape == (0, 4)
