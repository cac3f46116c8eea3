"""A convex problem in float64: a weighted sum of losses of the rows' products, plus an l2 regulariser.

    f(x) = sum_j w_j loss(c_j.x) + (l2 / 2) ||x||^2

A row's gradient is loss'(c_j.x) c_j. Two matrix products give the gradients of all local workers.
"""

from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from data.checks import is_number, shown


class RowLoss(Protocol):
    """Interface of the loss of rows by their products c_j.x."""

    is_squared: bool  # whether it is (c.x - target)^2 / 2 in the compiled loops, or the logistic loss

    def targets(self, targets: Tensor | None, count: int) -> np.ndarray:
        """The target of each row's product, [R] for ``count`` rows; empty if the loss has no targets."""

    def losses(self, products: Tensor, targets: Tensor | None) -> Tensor:
        """The losses [R] of ``products`` [R]."""

    def slopes(self, products: Tensor, targets: Tensor | None) -> Tensor:
        """Their derivatives [R] by the products."""


class Constants(NamedTuple):
    """Constants of a problem."""

    smoothness: float  # L
    l2: float
    x: np.ndarray  # x* [D]
    value: float  # f*


class ConvexProblem(nn.Module):
    """A problem with parameter ``weight`` [D], which is x in the formulas; ``problem`` has all rows.

    A worker's loss is the weighted sum of its rows' losses plus (l2 / 2) ||x||^2.

    ``shift`` subtracts from every worker's gradient its own full gradient at x* (EF-GD*), so that
    each worker's gradient vanishes there. Diagnostics are f(x) - f* and ||x - x*||^2 on all rows.
    """

    def __init__(
        self,
        problem: Any,
        loss: RowLoss,
        found: Constants,
        *,
        offset: float | None,
        shift: bool,
    ) -> None:
        super().__init__()
        self.problem = problem  # all rows; a NamedTuple, whose tensors DDP does not broadcast as buffers
        self.loss = loss
        self.smoothness, self.l2, self.shift = found.smoothness, found.l2, shift
        optimum = torch.from_numpy(found.x).to(problem.weights.device)
        self.optimum, self.optimum_value = optimum, found.value
        start = torch.zeros_like(optimum) if offset is None else optimum + offset
        self.start = start.clone()
        self.weight = nn.Parameter(start)
        self.start_value = self.value(start)
        self.local_optimum: Tensor | None = None  # [W, D], gradients at x*

    @property
    def step_size(self) -> float:
        """1 / (L + l2), the learning rate of ``optimizer.lr=null``."""
        return 1 / (self.smoothness + self.l2)

    def value(self, x: Tensor) -> float:
        """f(x) on all rows."""
        losses = self.loss.losses(_products(self.problem, x), self.problem.targets)
        return (self.problem.weights @ losses).item() + self.l2 / 2 * (x @ x).item()

    @torch.no_grad()
    def diagnostics(self) -> dict[str, float]:
        """f(x) - f* and ||x - x*||^2 on all rows."""
        x = self.weight
        return {
            "convex/suboptimality": self.value(x) - self.optimum_value,
            "convex/distance_squared": (x - self.optimum).square().sum().item(),
        }

    def facts(self) -> dict[str, Any]:
        """The constants of the problem."""
        return {
            "smoothness": self.smoothness,
            "l2": self.l2,
            "step_size": self.step_size,
            "start_value": self.start_value,
            "optimum_value": self.optimum_value,
        }

    def begin(self, shards: Any) -> None:
        """With ``shift``, store the gradients of the local workers' whole shards at x*."""
        if self.shift:
            out = torch.zeros(len(shards.lengths), len(self.optimum)).to(self.optimum)
            self._gradients(shards, self.optimum, out, measure=False)
            self.local_optimum = out

    def worker_gradients(self, batches: Any, out: Tensor, measure: bool = True) -> Tensor | None:
        """Write the local workers' gradients at x into ``out`` [W, D]; with ``measure`` return losses [W]."""
        losses = self._gradients(batches, self.weight.detach(), out, measure)
        if self.local_optimum is not None:
            out.sub_(self.local_optimum)
        return losses

    def _gradients(self, rows: Any, x: Tensor, out: Tensor, measure: bool) -> Tensor | None:
        if rows.indices is None:
            products = _products(rows, x)
            _gather_rows(rows, self.loss.slopes(products, rows.targets).mul_(rows.weights), out)
            out.add_(self.l2 * x)
        else:
            found = np.empty(len(rows.indices))
            arrays = rows.weights.numpy(), x.numpy(), self.l2, found, out.numpy()
            loss = self.loss.is_squared, self.loss.targets(rows.targets, len(found))
            _row_loop().gradients(rows.features, rows.indices, rows.lengths, *arrays, *loss)
            products = torch.from_numpy(found)
        if not measure:
            return None
        losses = self.loss.losses(products, rows.targets).mul_(rows.weights)
        return _sum_per_worker(rows, losses).add_(self.l2 / 2 * (x @ x).item())


def _products(rows: Any, x: Tensor) -> Tensor:
    """c_j.x, [R]."""
    features = rows.features
    if rows.indices is not None:
        products = np.empty(len(rows.indices))
        _row_loop().products(features, rows.indices, x.numpy(), products)
        return torch.from_numpy(products)
    if isinstance(features, Tensor):
        return features @ x
    return torch.from_numpy(features @ x.numpy())


def _gather_rows(rows: Any, scales: Tensor, out: Tensor) -> None:
    """Write each worker's sum of rows times their ``scales`` [R] into ``out`` [W, D]."""
    features, num_workers = rows.features, len(rows.lengths)
    if not isinstance(features, Tensor):
        edges = np.cumsum([0, *rows.lengths])
        matrix = csr_matrix((scales.numpy(), np.arange(len(scales)), edges), shape=(num_workers, len(scales)))
        out.copy_(torch.from_numpy((matrix @ features).toarray()))
        return
    lengths = rows.lengths.tolist()
    for block, of_block, row in zip(features.split(lengths), scales.split(lengths), out, strict=True):
        torch.mv(block.T, of_block, out=row)


def _sum_per_worker(rows: Any, values: Tensor) -> Tensor:
    """Sums of ``values`` [R] per worker, [W]; one by one, since torch sums several rows in another order."""
    return torch.stack([part.sum() for part in values.split(rows.lengths.tolist())])


@cache
def _row_loop() -> Any:
    from models.convex import row_loop  # importing numba takes half a second

    return row_loop


def check_settings(l2: object, offset: object, shift: object) -> None:
    """Raise ``ValueError`` for invalid settings of a problem."""
    if not isinstance(shift, bool):
        raise ValueError(f"model.shift must be true or false, got {shift!r}")
    for setting, value in (("l2", l2), ("offset", offset)):
        if value is not None and not (is_number(value) and (setting == "offset" or value >= 0)):
            rule = "a finite number >= 0" if setting == "l2" else "a finite number"
            raise ValueError(f"model.{setting} must be {rule}, or null, got {shown(value)}")
