"""Selection error of the mean gradient: ||G - TopK(G)|| / ||G|| for a grid of K.

Alistarh et al., 2018, https://arxiv.org/abs/1809.10505, plot it against K.
"""

from dataclasses import dataclass

import numpy as np

from compressors.api import elements_of
from compressors.core.checks import require, require_density
from trainers.diagnostics.step_input import StepInput

NAME = "diagnostics/selection_error_{:g}"


@dataclass(frozen=True, kw_only=True)
class SelectionError:
    """Relative error of keeping the k = max(1, floor(density d)) largest entries of every segment of G.

    A property of the gradient: it depends on the scope of the run, not on its method. Cost: a pass over
    the gradients and one partial sort of D numbers. Raises ``ValueError`` for densities outside (0, 1],
    and for densities that repeat.
    """

    densities: tuple[float, ...]

    def __post_init__(self) -> None:
        densities = self.densities
        valid = isinstance(densities, (list, tuple)) and 0 < len(densities) == len(set(densities))
        require(valid, "diagnostics.selection_error.densities", "a list of different densities", densities)
        for density in densities:
            require_density("diagnostics.selection_error", density)
        object.__setattr__(self, "densities", tuple(sorted(densities)))

    def measure(self, given: StepInput) -> dict[str, float]:
        """The errors, in [0, 1]; empty if G is 0."""
        lost = np.zeros(len(self.densities))
        total = 0.0
        for mean in given.mean_gradient:
            squares = mean.square().cpu().numpy()
            size = len(squares)
            ends = np.array([size - elements_of(density, size) for density in self.densities])
            inside = np.unique(ends[ends > 0])
            ordered = np.partition(squares, inside) if len(inside) else squares
            pieces = np.add.reduceat(ordered, np.array([0, *inside]))  # in ascending order
            left = np.concatenate([[0.0], pieces.cumsum()])
            lost += left[np.searchsorted([0, *inside], ends)]
            total += left[-1]
        if total == 0:
            return {}
        errors = np.sqrt(lost / total).tolist()
        return {NAME.format(density): error for density, error in zip(self.densities, errors, strict=True)}
