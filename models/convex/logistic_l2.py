"""l2-regularised logistic regression on labels of -1 and +1, in float64, without intercept.

    f(x) = (1/m) sum_j log(1 + exp(-y_j a_j.x)) + (l2 / 2) ||x||^2

The convex problem of Sahu et al., 2021, https://arxiv.org/abs/2108.00951: L = sigma_max(A)^2 / (4 m),
l2 = L / 10000, step size 1 / (L + l2), start at x* + a constant. The data give rows c_j = -y_j a_j, so
that a row's loss is softplus(c_j.x) and its gradient sigmoid(c_j.x) c_j. Two matrix products give the
gradients of all local workers.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix
from scipy.special import expit
from torch import Tensor, nn

from data.checks import is_number, shown
from models.convex.kept_optimum import known_optimum


class LogisticL2(nn.Module):
    """Logistic regression with parameter ``weight`` [D], which is x in the formulas.

    A worker's loss is the weighted sum of its rows' losses plus (l2 / 2) ||x||^2.

    ``shift`` subtracts from every worker's gradient its own full gradient at x* (EF-GD*), so that
    each worker's gradient vanishes there. Diagnostics are f(x) - f* and ||x - x*||^2 on all rows.
    """

    def __init__(
        self,
        problem: Any,
        *,
        smoothness: float,
        l2: float,
        optimum: Tensor,
        optimum_value: float,
        offset: float | None,
        shift: bool,
    ) -> None:
        super().__init__()
        self.problem = problem  # all rows; in a tuple, so that their buffers are not broadcast
        self.smoothness, self.l2, self.shift = smoothness, l2, shift
        self.optimum, self.optimum_value = optimum, optimum_value
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
        losses = _softplus(_products(self.problem, x))
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
            _gather_rows(rows, _sigmoid(products).mul_(rows.weights), out)
            out.add_(self.l2 * x)
        else:
            found = np.empty(len(rows.indices))
            arrays = rows.weights.numpy(), x.numpy(), self.l2, found, out.numpy()
            _row_loop().gradients(rows.features, rows.indices, rows.lengths, *arrays)
            products = torch.from_numpy(found)
        if not measure:
            return None
        losses = _softplus(products).mul_(rows.weights)
        return _sum_per_worker(rows, losses).add_(self.l2 / 2 * (x @ x).item())


def _products(rows: Any, x: Tensor) -> Tensor:
    """c_j.x = -y_j a_j.x, [R]."""
    features = rows.features
    if rows.indices is not None:
        products = np.empty(len(rows.indices))
        _row_loop().products(features, rows.indices, x.numpy(), products)
        return torch.from_numpy(products)
    if isinstance(features, Tensor):
        return features @ x
    return torch.from_numpy(features @ x.numpy())


# torch computes the last few entries of a vector with another formula than the others, so an entry's bits
# would depend on the number of workers in the vector. The loops of scipy and numpy treat all entries alike.


def _sigmoid(products: Tensor) -> Tensor:
    if products.device.type != "cpu":
        return torch.sigmoid(products)
    return torch.from_numpy(expit(products.numpy()))


def _softplus(products: Tensor) -> Tensor:
    if products.device.type != "cpu":
        return F.softplus(products)
    with np.errstate(invalid="ignore"):  # the check of the gradient finds a NaN
        return torch.from_numpy(np.logaddexp(0, products.numpy()))


def _gather_rows(rows: Any, pull: Tensor, out: Tensor) -> None:
    """Write each worker's sum of rows times their ``pull`` [R] into ``out`` [W, D]."""
    features, num_workers = rows.features, len(rows.lengths)
    if not isinstance(features, Tensor):
        edges = np.cumsum([0, *rows.lengths])
        pulls = csr_matrix((pull.numpy(), np.arange(len(pull)), edges), shape=(num_workers, len(pull)))
        out.copy_(torch.from_numpy((pulls @ features).toarray()))
        return
    lengths = rows.lengths.tolist()
    for block, of_block, row in zip(features.split(lengths), pull.split(lengths), out, strict=True):
        torch.mv(block.T, of_block, out=row)


def _sum_per_worker(rows: Any, values: Tensor) -> Tensor:
    """Sums of ``values`` [R] per worker, [W]; one by one, since torch sums several rows in another order."""
    return torch.stack([part.sum() for part in values.split(rows.lengths.tolist())])


@cache
def _row_loop() -> Any:
    from models.convex import row_loop  # importing numba takes half a second

    return row_loop


def logistic_l2(
    *,
    problem: Any,
    name: str,
    cache: Path,
    l2: float | None = None,
    offset: float | None = None,
    shift: bool = False,
) -> LogisticL2:
    """The problem on all rows of the data, with L and x* computed or read from ``cache``.

    ``l2=None`` means L / 10000. The run starts at x* + ``offset``, or at 0 if ``offset`` is None. Raises
    ``ValueError`` for invalid settings, for a problem without a unique minimum, and for rows with a known
    name and another L.
    """
    if not isinstance(shift, bool):
        raise ValueError(f"model.shift must be true or false, got {shift!r}")
    for setting, value in (("l2", l2), ("offset", offset)):
        if value is not None and not (is_number(value) and (setting == "offset" or value >= 0)):
            rule = "a finite number >= 0" if setting == "l2" else "a finite number"
            raise ValueError(f"model.{setting} must be {rule}, or null, got {shown(value)}")
    found = known_optimum(problem, name, cache, l2)
    return LogisticL2(
        problem,
        smoothness=found.smoothness,
        l2=found.l2,
        optimum=torch.from_numpy(found.x).to(problem.weights.device),
        optimum_value=found.value,
        offset=offset,
        shift=shift,
    )
