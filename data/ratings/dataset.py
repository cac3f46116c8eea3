"""Ratings as implicit feedback: every rating is a positive, and the last one of each user is for the test."""

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

MOST_NEGATIVES = 10_000  # a worker draws those of its whole pass at once
TEST_NEGATIVES = 100
_TEST_SEED = 0  # of what the held-out items are ranked among: the same for every run


class RatingsArguments(TypedDict):
    """What a model is told of ratings."""

    num_users: int
    num_items: int


@dataclass(frozen=True)
class Positives:
    """What users rated and is not held out, in file order; len() counts the negatives of a pass as well."""

    users: np.ndarray  # [N] int32
    items: np.ndarray  # [N] int32
    negatives: int  # drawn behind each positive

    def __len__(self) -> int:
        return len(self.users) * (1 + self.negatives)


@dataclass(frozen=True, kw_only=True)
class RatingsDataset:
    """Positives to train on with drawn negatives, and 101 candidates to rank for every user.

    ``ratings_dataset`` makes one of raw ratings.
    """

    name: str
    train: Positives
    candidates: Tensor  # [num_users, 101] int32: the held-out item, and 100 that the user never rated
    num_items: int
    partition: str
    alpha: float | None
    said: dict[str, Any]  # facts beyond the sizes

    task = Ranking()

    @property
    def held_out(self) -> dict[str, Tensor]:
        """What quality is measured on, one row per user."""
        return {"test": self.candidates}

    def model_arguments(self) -> RatingsArguments:
        """What a model is told of the data."""
        return {"num_users": len(self.candidates), "num_items": self.num_items}

    def to(self, device: torch.device) -> Self:
        """The same dataset with its batches on ``device``."""
        return replace(self, candidates=self.candidates.to(device))

    def held_out_batch(self, split: str, indices: Tensor) -> Candidates:
        """Candidates [B, 101] of the users at ``indices`` [B]."""
        rows = self.held_out[split]
        indices = indices.to(rows.device, non_blocking=True)
        return Candidates(indices.int(), rows.index_select(0, indices))

    def facts(self) -> dict[str, Any]:
        """What a reader of the results should know; the popularity baseline is what to beat."""
        num_users = len(self.candidates)
        return {
            "name": self.name,
            "users": num_users,
            "items": self.num_items,
            "ratings": len(self.train.users) + num_users,
            **self.said,
        }

    def loader(
        self,
        workers: int,
        local_workers: range,
        batch_size: int | None,
        generator_of: Callable[..., torch.Generator],
    ) -> "RatingsLoader":
        """What the workers in ``local_workers`` read; ``generator_of(*salt)`` gives generators.

        Positives are split over the workers, with users for labels; each worker draws its own
        negatives. Without a ``batch_size`` a batch is a worker's whole pass.

        Raises ``ValueError`` for more workers than positives and a batch larger than any worker's
        pass, also of one that lives elsewhere.
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
    """The batches of the local workers."""

    samplers: list[RatingsSampler]
    epochs_per_step: float  # share of a pass, positives and negatives, that all workers read in a step

    def batches(self, step: int) -> list[RatingsBatch]:
        """W batches; they follow from the step alone."""
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
    said: dict[str, Any] | None = None,
) -> RatingsDataset:
    """Hold out each user's last item and draw what it is ranked among; ``source`` names the ratings.

    Raises ``ValueError`` for settings that are none, where no user has ``min_ratings``, and for
    fewer than 100 items that some user did not rate.
    """
    check_settings(min_ratings, negatives, partition, alpha)
    users, items, last_items, num_items = leave_last_out(ratings, min_ratings, source)
    num_users = len(last_items)
    counts = np.bincount(users, minlength=num_users)
    if counts.max() + 1 + TEST_NEGATIVES > num_items:
        raise ValueError(
            f"{source}: a user rated {counts.max() + 1} of {num_items} items, "
            f"which leaves fewer than {TEST_NEGATIVES} to rank against"
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
        said={**(said or {}), **baseline},
    )


def check_settings(min_ratings: object, negatives: object, partition: str, alpha: float | None) -> None:
    """Raise ``ValueError`` for settings of ``ratings_dataset`` that are none, before anything is read."""
    require_count("data.min_ratings", min_ratings, minimum=2)
    require_count("data.negatives", negatives, maximum=MOST_NEGATIVES)
    check_partition(partition, alpha)
