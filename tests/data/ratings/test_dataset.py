"""The ratings dataset: test items, the popularity baseline, and the workers' batches."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from compressors.core.randomness import generator
from data.ratings.dataset import RatingsDataset, ratings_dataset
from data.ratings.leave_last_out import Ratings

SETTINGS = {"source": "here", "min_ratings": 5, "negatives": 4, "partition": "iid", "alpha": None}
WORKERS = 4


def raw(users: int = 30, items: int = 160, seed: int = 0) -> Ratings:
    """Every user has 5 to 30 ratings; the i-th item is drawn with a weight of 1 / i, and may have none."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, items + 1)
    rated = [
        rng.choice(items, rng.integers(5, 31), replace=False, p=weights / weights.sum()) for _ in range(users)
    ]
    who = np.repeat(np.arange(users), [len(own) for own in rated])
    mixed = rng.permutation(len(who))
    return Ratings(who[mixed], np.concatenate(rated)[mixed], rng.integers(1000, size=len(who)))


def dataset(**settings: object) -> RatingsDataset:
    return ratings_dataset("here", raw(), **(SETTINGS | settings))


def streams(seed: int = 0) -> partial:
    return partial(generator, seed)


def positives(data: RatingsDataset) -> set[tuple[int, int]]:
    return set(zip(data.train.users.tolist(), data.train.items.tolist(), strict=True))


def test_candidates_are_the_held_out_item_and_100_never_rated() -> None:
    data, trained = dataset(), positives(dataset())
    assert data.candidates.shape == (30, 101) and data.candidates.dtype == torch.int32
    for user, row in enumerate(data.candidates.tolist()):
        assert len(set(row)) == 101
        assert not trained & {(user, item) for item in row}
    assert torch.equal(data.candidates, dataset(partition="contiguous", negatives=1).candidates)


def test_held_out_batches_are_rows_of_all_users() -> None:
    data = dataset()
    assert set(data.held_out) == {"test"} and len(data.held_out["test"]) == 30
    batch = data.held_out_batch("test", torch.tensor([4, 29]))
    assert batch.users.tolist() == [4, 29]
    assert torch.equal(batch.items, data.candidates[[4, 29]])


def test_popularity_baseline_against_a_loop() -> None:
    data = dataset()
    popularity = np.bincount(data.train.items, minlength=data.num_items)
    hits, gains = [], []
    for row in data.candidates.tolist():
        mine, others = popularity[row[0]], [popularity[item] for item in row[1:]]
        better, ties = sum(o > mine for o in others), sum(o == mine for o in others)
        local_workers = list(range(better + 1, better + ties + 2))
        hits.append(np.mean([rank <= 10 for rank in local_workers]))
        gains.append(np.mean([1 / math.log2(rank + 1) if rank <= 10 else 0 for rank in local_workers]))
    facts = data.facts()
    assert facts["popularity_hit_rate_at_10"] == pytest.approx(np.mean(hits))
    assert facts["popularity_ndcg_at_10"] == pytest.approx(np.mean(gains))
    assert facts["popularity_hit_rate_at_10"] > 0.2  # chance is 0.1, and these items differ in popularity
    assert (facts["users"], facts["items"], facts["ratings"]) == (30, data.num_items, len(raw().users))


def test_a_pass_reads_every_positive_once_and_4_negatives_of_its_user() -> None:
    data, trained = dataset(), positives(dataset())
    loader = data.loader(1, range(1), len(data.train), streams())
    assert loader.epochs_per_step == 1
    passes = [loader.batches(step)[0] for step in range(2)]
    for batch in passes:
        pairs = list(zip(batch.users.tolist(), batch.items.tolist(), strict=True))
        targets = batch.targets.bool().tolist()
        positive = [pair for pair, target in zip(pairs, targets, strict=True) if target]
        assert sorted(positive) == sorted(trained)
        assert not trained & {pair for pair, target in zip(pairs, targets, strict=True) if not target}
        assert batch.targets.dtype == torch.float32
        counts = torch.bincount(batch.users, minlength=30)
        assert (counts == 5 * torch.from_numpy(np.bincount(data.train.users))).all()
    first, second = (sorted(zip(b.users.tolist(), b.items.tolist(), strict=True)) for b in passes)
    assert first != second  # new negatives


def test_a_held_out_item_may_be_drawn_in_training() -> None:
    """If it were never drawn, the model could find out which item is held out."""
    data = dataset()
    loader = data.loader(1, range(1), len(data.train), streams())
    held_out = set(enumerate(data.candidates[:, 0].tolist()))
    drawn = set()
    for step in range(20):
        (batch,) = loader.batches(step)
        drawn |= set(zip(batch.users.tolist(), batch.items.tolist(), strict=True)) & held_out
    assert drawn


def same(a: list, b: list) -> bool:
    return all(
        torch.equal(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True)
    )


def test_batches_follow_from_step_and_worker_alone() -> None:
    data = dataset()
    everyone = data.loader(WORKERS, range(WORKERS), 48, streams())
    expected = [everyone.batches(step) for step in range(40)]
    jumping = data.loader(WORKERS, range(WORKERS), 48, streams())
    for step in (39, 3, 17, 0, 38):
        assert same(jumping.batches(step), expected[step])
        halves = [
            data.loader(WORKERS, local_workers, 48, streams()) for local_workers in (range(2), range(2, 4))
        ]
        assert same([b for half in halves for b in half.batches(step)], expected[step])
    assert not same(data.loader(WORKERS, range(WORKERS), 48, streams(1)).batches(0), expected[0])


def test_batches_are_full_also_where_a_pass_ends() -> None:
    data = dataset()
    samples = len(data.train)
    loader = data.loader(1, range(1), 64, streams())
    batches = [loader.batches(step)[0] for step in range(2 * samples // 64 + 1)]
    assert {len(field) for batch in batches for field in batch} == {64}
    targets = torch.cat([batch.targets for batch in batches])
    for number in range(2):
        assert targets[number * samples : (number + 1) * samples].sum() == len(data.train.users)


def test_workers_share_the_positives_out_and_all_see_both_kinds() -> None:
    data = dataset()
    loader = data.loader(WORKERS, range(WORKERS), None, streams())
    batches = loader.batches(0)
    assert loader.epochs_per_step == 1
    read = [
        (u, i)
        for batch in batches
        for u, i, t in zip(*(field.tolist() for field in batch), strict=True)
        if t == 1
    ]
    assert sorted(read) == sorted(positives(data))
    assert [batch.targets.mean().item() for batch in batches] == pytest.approx([0.2] * WORKERS)
    small = data.loader(WORKERS, range(WORKERS), 40, streams())
    for step in range(5):
        assert all(0 < batch.targets.sum() < 20 for batch in small.batches(step))


def test_partition_by_user() -> None:
    batches = dataset(partition="by_label").loader(WORKERS, range(WORKERS), None, streams()).batches(0)
    users = [set(batch.users.tolist()) for batch in batches]
    assert sum(map(len, users)) <= 30 + WORKERS - 1


def test_batch_larger_than_a_shard_is_refused_also_elsewhere() -> None:
    data = dataset()
    fewest = len(data.train.users) // WORKERS * 5
    data.loader(WORKERS, range(WORKERS), fewest, streams())
    with pytest.raises(ValueError, match=r"trainer\.batch_size must be at most the \d+ samples of worker \d"):
        data.loader(WORKERS, range(1), 10**6, streams())
    with pytest.raises(ValueError, match=r"workers must be at most the number of training samples"):
        data.loader(10**6, range(1), 1, streams())


def test_reading_leaves_the_process_wide_random_state_alone() -> None:
    before = torch.get_rng_state()
    dataset().loader(1, range(1), 10, streams()).batches(0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_ratings": 1}, r"data\.min_ratings must be an integer >= 2, got 1"),
        ({"min_ratings": 2.5}, r"data\.min_ratings must be an integer >= 2, got 2\.5"),
        ({"negatives": 0}, r"data\.negatives must be an integer >= 1, got 0"),
        ({"partition": "odd"}, r"data\.partition must be one of"),
        ({"min_ratings": 99}, r"here: no user has the 99 ratings of data\.min_ratings"),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataset(**settings)


def test_too_few_items_to_rank_against() -> None:
    with pytest.raises(ValueError, match=r"here: a user rated \d+ of \d+ items, .* fewer than 100 unrated"):
        ratings_dataset("here", raw(items=110), **SETTINGS)
