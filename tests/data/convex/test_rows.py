"""Loaders of rows: shards, batches, weights."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from libsvm_files import write_rows
from scipy.sparse import issparse

from compressors.core.randomness import generator
from data.convex.libsvm import libsvm
from data.convex.rows import Rows, RowsDataset, RowsLoader

SETTINGS = [
    {},
    {"partition": "dirichlet", "alpha": 0.3},
    {"partition": "by_label"},
    {"partition": "contiguous"},
]


def dataset(tmp_path: Path, rows: int = 41, density: float = 1.0, **settings) -> RowsDataset:
    write_rows(tmp_path, "few", rows, 5, density=density)
    return libsvm(name="few", root=str(tmp_path), **settings)


def loader(
    data: RowsDataset, workers: int, local_workers: range | None = None, batch_size: int | None = None
) -> RowsLoader:
    return data.loader(workers, local_workers or range(workers), batch_size, partial(generator, 7))


def table(rows: Rows) -> torch.Tensor:
    """The features in the order in which a loader reads them."""
    if isinstance(rows.features, np.ndarray):
        return torch.from_numpy(rows.features[rows.indices])
    return torch.from_numpy(rows.features.toarray())


@pytest.mark.parametrize("density", [1.0, 0.1])
@pytest.mark.parametrize("settings", SETTINGS)
def test_shards_hold_every_row_once_and_weigh_as_the_mean(
    tmp_path: Path, settings: dict, density: float
) -> None:
    data = dataset(tmp_path, density=density, **settings)
    whole = loader(data, 4).whole()
    assert sum(whole.lengths) == 41 and len(whole.lengths) == 4
    expected = -data.labels[:, None] * torch.from_numpy(data.features.toarray())
    assert sorted(map(tuple, table(whole).tolist())) == sorted(map(tuple, expected.tolist()))
    assert torch.equal(table(data.whole), expected)
    # the mean over 4 workers of their weighted sums is the plain mean over all rows
    values = table(whole).sum(1)
    torch.testing.assert_close((whole.weights * values).sum() / 4, expected.sum(1).mean())


def test_sparse_rows_stay_sparse_until_they_are_read(tmp_path: Path) -> None:
    sparse, full = dataset(tmp_path, density=0.1), dataset(tmp_path / "full")
    assert issparse(loader(sparse, 2).whole().features)
    assert issparse(sparse.whole.features)
    assert isinstance(loader(full, 2).whole().features, np.ndarray)
    assert isinstance(
        loader(dataset(tmp_path, density=0.1, replacement=True), 2, None, 3).batches(0).features, np.ndarray
    )


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_process_reads_what_its_workers_read_in_one(
    tmp_path: Path, settings: dict, replacement: bool
) -> None:
    data = dataset(tmp_path, replacement=replacement, **settings)
    batch_size = 3 if replacement else 1
    everyone, half = (loader(data, 4, local_workers, batch_size) for local_workers in (range(4), range(2, 4)))
    for step in (5, 0, 4000):
        together, apart = everyone.batches(step), half.batches(step)
        assert torch.equal(table(together)[2 * batch_size :], table(apart))
        assert torch.equal(together.weights[2 * batch_size :], apart.weights)
    assert torch.equal(table(everyone.whole())[sum(everyone.lengths[:2]) :], table(half.whole()))


def test_a_batch_is_drawn_from_the_workers_own_shard_and_weighs_as_it(tmp_path: Path) -> None:
    data = dataset(tmp_path, rows=10, replacement=True, partition="by_label")
    source = loader(data, 3, batch_size=4)  # shards of 4, 3 and 3
    assert source.lengths == [4, 3, 3]
    assert source.facts() == {"rows_per_worker": "3 to 4, each counting 3/10"}
    seen = [set() for _ in range(3)]
    for step in range(60):
        batch = source.batches(step)
        for worker, part in enumerate(table(batch).split(4)):
            seen[worker] |= {tuple(row) for row in part.tolist()}
        assert batch.weights.tolist() == pytest.approx([3 * 4 / 10 / 4] * 4 + [3 * 3 / 10 / 4] * 8)
    for worker, shard in enumerate(source.shards):
        assert seen[worker] == {tuple(row) for row in table(data.whole)[shard].tolist()}


def test_with_replacement_a_row_comes_twice_before_another_comes_at_all(tmp_path: Path) -> None:
    data = dataset(tmp_path, rows=20, replacement=True)
    source = loader(data, 1, batch_size=20)
    assert len({tuple(row) for row in table(source.batches(0)).tolist()}) < 20
    shuffled = loader(dataset(tmp_path, rows=20), 1, batch_size=20)
    assert len({tuple(row) for row in table(shuffled.batches(0)).tolist()}) == 20


def test_steps_differ_and_repeat(tmp_path: Path) -> None:
    source = loader(dataset(tmp_path, replacement=True), 2, batch_size=2)
    first, later, again = source.batches(3), source.batches(2**12), source.batches(3)
    assert torch.equal(table(first), table(again))
    assert not torch.equal(table(first), table(later))
    workers = table(source.batches(3)).split(2)
    assert not torch.equal(*workers)


def test_even_shards_say_so(tmp_path: Path) -> None:
    assert loader(dataset(tmp_path, rows=40), 4).facts() == {"rows_per_worker": 10}


def test_refusals(tmp_path: Path) -> None:
    data = dataset(tmp_path, rows=10)
    with pytest.raises(
        ValueError, match=r"workers must be at most the number of training samples \(10\), got 11"
    ):
        loader(data, 11)
    with pytest.raises(
        ValueError, match=r"trainer\.batch_size must be at most the 2 samples of worker 2, got 3"
    ):
        loader(data, 4, range(1), 3)
    with pytest.raises(ValueError, match=r"data\.partition must be one of"):
        dataset(tmp_path, partition="random")
