"""Gradients and losses of both convex problems, of shards and of batches, against autograd."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from libsvm_files import write_rows

from compressors.core.randomness import generator
from data.convex.least_squares import least_squares as rows_of
from data.convex.libsvm import libsvm
from data.convex.rows import RowsDataset
from models.convex.least_squares import least_squares
from models.convex.logistic_l2 import logistic_l2

KINDS = {
    "labels": {},
    "sparse labels": {"density": 0.1},
    "uneven shards": {"partition": "dirichlet", "alpha": 0.2},
}


def rows(kind: str, root: Path) -> RowsDataset:
    if kind == "targets":
        return rows_of(rows=60, features=7, condition=10.0, noise=0.5, draw_seed=1, replacement=True)
    settings = dict(KINDS[kind])
    write_rows(root, "few", 60, 7, density=settings.pop("density", 1.0))
    return libsvm(name="few", root=str(root), replacement=True, **settings)


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize(
    ("factory", "kind"),
    [
        (least_squares, "targets"),
        *((factory, kind) for factory in (least_squares, logistic_l2) for kind in KINDS),
    ],
)
def test_gradients_of_shards_and_of_batches(factory, kind: str, shift: bool, tmp_path: Path) -> None:
    dataset = rows(kind, tmp_path)
    model = factory(**dataset.model_arguments(), l2=0.02, offset=0.3, shift=shift)
    features = torch.from_numpy(dataset.features.toarray())
    targets = dataset.labels if dataset.targets is None else dataset.targets

    def by_autograd(own: torch.Tensor, share: float, x: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Loss and gradient of the rows ``own``, which have the weight ``share`` together."""
        x = x.clone().requires_grad_()
        products = features[own] @ x
        is_logistic = factory is logistic_l2
        losses = F.softplus(-targets[own] * products) if is_logistic else (products - targets[own]) ** 2 / 2
        loss = share * losses.mean() + model.l2 / 2 * x @ x
        return loss.item(), torch.autograd.grad(loss, x)[0]

    for batch_size in (None, 1, 3):
        loader = dataset.loader(4, range(4), batch_size, partial(generator, 1))
        model.begin(loader.whole())
        out = torch.zeros(4, 7, dtype=torch.float64)
        losses = model.worker_gradients(loader.batches(2), out)
        drawn = loader._indices(2).reshape(4, batch_size) if batch_size else loader.shards
        for worker, shard in enumerate(loader.shards):
            own, share = torch.from_numpy(np.asarray(drawn[worker])), 4 * len(shard) / 60
            loss, expected = by_autograd(own, share, model.weight.detach())
            if shift:
                expected = expected - by_autograd(shard, share, model.optimum)[1]
            torch.testing.assert_close(out[worker], expected, rtol=1e-10, atol=1e-12)
            assert losses[worker].item() == pytest.approx(loss, rel=1e-12)
        if batch_size is None:  # the mean over workers is f
            assert losses.mean().item() == pytest.approx(model.value(model.weight.detach()), rel=1e-12)
        assert model.worker_gradients(loader.batches(2), out, False) is None
