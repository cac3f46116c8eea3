"""Implicit-feedback dataset: every rating is a positive; each user's last rating is the test positive."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypedDict

import numpy as np
import torch
from torch import Tensor

from data.checks import require_count
from data.partition import check_partition, split
from data.ratings.leave_last_out import Ratings, leave_last_out
from data.ratings.negatives import RatedPairs
from data.ratings.ranking import Candidates, Ranking, RatingsBatch, hits_and_gains
from data.ratings.sampler import RatingsSampler

MOST_NEGATIVES = 10_000  # per positive; a worker draws the negatives of a whole pass at once
TEST_NEGATIVES = 100
_TEST_SEED = 0  # seed of the test candidates: the same in every run


class RatingsArguments(TypedDict):
    """Keyword arguments of a model factory for ratings."""

    num_users: int
    num_items: int


@dataclass(frozen=True)
class Positives:
    """Training ratings in file order. ``len()`` also counts the negatives of a pass."""

    users: np.ndarray  # [N] int32
    items: np.ndarray  # [N] int32
    negatives: int  # negatives per positive

    def __len__(self) -> int:
        return len(self.users) * (1 + self.negatives)


@dataclass(frozen=True, kw_only=True)
class RatingsDataset:
    """Training positives with drawn negatives, and 101 test candidates per user.

    ``ratings_dataset`` builds one from raw ratings.
    """

    name: str
    train: Positives
    candidates: Tensor  # [num_users, 101] int32: the held-out item, then 100 items that the user did not rate
    num_items: int
    partition: str
    alpha: float | None
    extra_facts: dict[str, Any]  # facts besides the sizes

    task = Ranking()

    @property
    def held_out(self) -> dict[str, Tensor]:
        """The test split, one row per user."""
        return {"test": self.candidates}

    def model_arguments(self) -> RatingsArguments:
        """Keyword arguments that a model factory takes from the data."""
        return {"num_users": len(self.candidates), "num_items": self.num_items}

    def to(self, device: torch.device) -> Self:
        """A copy of the dataset with its batches on ``device``."""
        return replace(self, candidates=self.candidates.to(device))

    def held_out_batch(self, split: str, indices: Tensor) -> Candidates:
        """Candidates [B, 101] of the users at ``indices`` [B]."""
        rows = self.held_out[split]
        indices = indices.to(rows.device, non_blocking=True)
        return Candidates(indices.int(), rows.index_select(0, indices))

    def facts(self) -> dict[str, Any]:
        """Facts about the data, for summary.json, with the quality of the popularity baseline."""
        num_users = len(self.candidates)
        return {
            "name": self.name,
            "users": num_users,
            "items": self.num_items,
            "ratings": len(self.train.users) + num_users,
            **self.extra_facts,
        }

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> "RatingsLoader":
        """Batches of the workers in ``local_workers``; ``generator_of(*salt)`` gives generators.

        Positives are split over the workers; a partition by label takes the user as the label. Each worker
        draws its own negatives. Without a ``batch_size`` a batch is a worker's whole pass.

        Raises ``ValueError`` for more workers than positives and a batch larger than any worker's
        pass, also the pass of a worker in another process.
        """
        train, device = self.train, self.candidates.device
        users = torch.from_numpy(train.users)
        shards = split(users, workers, self.partition, generator_of("partition"), self.alpha)
        for worker, shard in enumerate(shards):
            samples = len(shard) * (1 + train.negatives)
            if batch_size is not None and batch_size > samples:
                raise ValueError(
                    f"trainer.batch_size must be at most the {samples} samples of worker {worker}, "
                    f"got {batch_size}"
                )
        rated = RatedPairs.of(train.users, train.items, self.num_items)
        samplers = []
        for worker in local_workers:
            by_user = users[shards[worker]].argsort(stable=True)
            own = shards[worker][by_user].numpy()
            samplers.append(
                RatingsSampler(
                    train.users[own],
                    train.items[own],
                    rated,
                    train.negatives,
                    batch_size or len(own) * (1 + train.negatives),
                    partial(_of_worker, generator_of, worker),
                    device,
                )
            )
        epochs_per_step = 1.0 if batch_size is None else workers * batch_size / len(train)
        return RatingsLoader(samplers, epochs_per_step)


@dataclass(frozen=True)
class RatingsLoader:
    """Batches of the local workers."""

    samplers: list[RatingsSampler]
    epochs_per_step: float  # fraction of a pass (positives and negatives) that all workers read in a step

    def batches(self, step: int) -> list[RatingsBatch]:
        """W batches, determined by ``step`` alone."""
        return [sampler.batch(step) for sampler in self.samplers]


def _of_worker(
    generator_of: Callable[..., torch.Generator], worker: int, what: str, number: int
) -> torch.Generator:
    return generator_of(what, worker, number)


def ratings_dataset(
    name: str,
    ratings: Ratings,
    *,
    source: str,
    min_ratings: int,
    negatives: int,
    partition: str,
    alpha: float | None,
    extra_facts: dict[str, Any] | None = None,
) -> RatingsDataset:
    """Hold out each user's last item, and draw 100 other test candidates for each user.

    ``source`` names the ratings in errors. ``extra_facts`` has further facts about the data.

    Raises ``ValueError`` for invalid settings, if no user has ``min_ratings``, and if some user has
    fewer than 100 unrated items.
    """
    check_settings(min_ratings, negatives, partition, alpha)
    users, items, last_items, num_items = leave_last_out(ratings, min_ratings, source)
    num_users = len(last_items)
    counts = np.bincount(users, minlength=num_users)
    if counts.max() + 1 + TEST_NEGATIVES > num_items:
        raise ValueError(
            f"{source}: a user rated {counts.max() + 1} of {num_items} items, "
            f"which leaves fewer than {TEST_NEGATIVES} unrated ones for the test's ranking"
        )
    everyone = np.arange(num_users, dtype=np.int32)
    rated = RatedPairs.of(np.concatenate([users, everyone]), np.concatenate([items, last_items]), num_items)
    generator = torch.Generator().manual_seed(_TEST_SEED)
    unrated = rated.draw_distinct_unrated(everyone, TEST_NEGATIVES, generator)
    candidates = torch.from_numpy(np.concatenate([last_items[:, None], unrated], 1))
    popularity = torch.from_numpy(np.bincount(items, minlength=num_items))
    hits, gains = hits_and_gains(popularity[candidates])
    baseline = {
        "popularity_hit_rate_at_10": hits.mean().item(),
        "popularity_ndcg_at_10": gains.mean().item(),
    }
    return RatingsDataset(
        name=name,
        train=Positives(users, items, negatives),
        candidates=candidates,
        num_items=num_items,
        partition=partition,
        alpha=alpha,
        extra_facts={**(extra_facts or {}), **baseline},
    )


def check_settings(min_ratings: object, negatives: object, partition: str, alpha: float | None) -> None:
    """Raise ``ValueError`` for invalid settings of ``ratings_dataset``, before any file is read."""
    require_count("data.min_ratings", min_ratings, minimum=2)
    require_count("data.negatives", negatives, maximum=MOST_NEGATIVES)
    check_partition(partition, alpha)
