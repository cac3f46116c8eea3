"""Held-out items, dropped users and numbering of ids, against plain loops."""

import numpy as np
import pytest

from data.ratings.leave_last_out import LeftOut, Ratings, leave_last_out


def left_out(rows: list[tuple[int, int, int]], min_ratings: int = 2) -> LeftOut:
    return leave_last_out(Ratings(*np.array(rows).T), min_ratings, "here")


def plain(rows: list[tuple[int, int, int]], min_ratings: int) -> tuple[list, list]:
    """Training pairs and held-out pairs of raw ids, from plain loops over the rows."""
    latest = {}
    for number, (user, item, time) in enumerate(rows):
        if (user, item) not in latest or time >= latest[user, item][0]:
            latest[user, item] = (time, number)
    numbers = sorted(number for _, number in latest.values())
    rated = {user: [n for n in numbers if rows[n][0] == user] for user, *_ in rows}
    rated = {user: own for user, own in rated.items() if len(own) >= min_ratings}
    last = {user: max(own, key=lambda n: (rows[n][2], n)) for user, own in rated.items()}
    kept = [n for n in numbers if rows[n][0] in rated and n != last[rows[n][0]]]
    return [rows[n][:2] for n in kept], [rows[last[user]][:2] for user in sorted(last)]


def test_by_hand() -> None:
    found = left_out([(7, 30, 5), (3, 10, 9), (7, 10, 8), (3, 20, 1), (7, 20, 6)])
    assert found.users.tolist() == [1, 0, 1]  # users 3 and 7 became 0 and 1, items 10, 20, 30 became 0, 1, 2
    assert found.items.tolist() == [2, 1, 1]
    assert found.last_items.tolist() == [0, 0]
    assert found.num_items == 3


def test_among_equal_times_the_last_in_the_file() -> None:
    assert left_out([(1, 1, 5), (1, 3, 5), (1, 2, 5), (1, 4, 4)]).last_items.tolist() == [1]


def test_few_raters_go_and_their_items_with_them() -> None:
    found = left_out([(1, 5, 0), (1, 6, 1), (1, 9, 2), (2, 7, 0), (2, 8, 1)], min_ratings=3)
    assert (found.users.tolist(), found.items.tolist()) == ([0, 0], [0, 1])
    assert (found.last_items.tolist(), found.num_items) == ([2], 3)


def test_an_item_rated_twice_counts_once_at_its_last_time() -> None:
    found = left_out([(1, 5, 9), (1, 6, 3), (1, 7, 1), (1, 6, 20)], min_ratings=3)
    assert (found.items.tolist(), found.last_items.tolist()) == ([0, 2], [1])
    with pytest.raises(ValueError, match=r"here: no user has the 4 ratings of data\.min_ratings"):
        left_out([(1, 5, 9), (1, 6, 3), (1, 7, 1), (1, 6, 20)], min_ratings=4)


@pytest.mark.parametrize("spread", [1, 10**12])
def test_against_plain_loops(spread: int) -> None:
    rng = np.random.default_rng(0)
    columns = rng.integers(40, size=600), rng.integers(60, size=600), rng.integers(8, size=600)
    rows = [
        (user * spread, item * spread, time)
        for user, item, time in zip(*map(np.ndarray.tolist, columns), strict=True)
    ]
    found = left_out(rows, min_ratings=13)
    training, held_out = plain(rows, min_ratings=13)
    assert 0 < len(held_out) < 40
    users = sorted({user for user, _ in held_out})
    items = sorted({item for _, item in training + held_out})
    assert [(users[u], items[i]) for u, i in zip(found.users, found.items, strict=True)] == training
    assert [(users[u], items[i]) for u, i in enumerate(found.last_items)] == held_out
    assert found.num_items == len(items)
    assert {found.users.dtype, found.items.dtype, found.last_items.dtype} == {np.dtype(np.int32)}
