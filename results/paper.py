"""Published numbers, to stand beside ours.

Sahu et al., "Rethinking gradient sparsification as total error minimization", NeurIPS 2021,
https://arxiv.org/abs/2108.00951. ``printed`` are outputs of its released notebooks, ``read`` are
values read by eye from its figures, good to about a tenth.
"""

from typing import NamedTuple


class Problem(NamedTuple):
    """One of the logistic regressions, as printed."""

    smoothness: float  # L
    start_value: float  # f(x0)
    optimum_value: float  # f*


class ErrorCurve(NamedTuple):
    """Mean ||e||^2 over workers in one of the figures, as read."""

    experiment: str
    compressor: str
    settings: dict[str, float]
    workers: int
    batch_size: int | None
    steps: int
    peak: float | None
    end: float | None


PROBLEMS = {
    "madelon": Problem(29790805.649, 12.170929144, 0.66791955343),
    "gisette_scale": Problem(842.8680386, 8.154616014, 0.13794947717),
}
OFFSETS = {"madelon": 1e-4, "gisette_scale": 0.005}  # x0 = x* + offset
_SGD, _STAR = (20, 1, 3000), (20, None, 60000)  # workers, rows per worker and step, steps
ERROR_CURVES = (
    ErrorCurve("madelon_sgd", "top_k", {"density": 0.002}, *_SGD, 3e-4, 4e-5),
    ErrorCurve("madelon_sgd", "hard_threshold", {"threshold": 5e-4}, *_SGD, 7e-5, 3.5e-5),
    ErrorCurve("madelon_gd_star_20", "top_k", {"density": 0.002}, *_STAR, 3e-4, 1e-16),
    ErrorCurve("madelon_gd_star_20", "hard_threshold", {"threshold": 1e-7}, *_STAR, 1.6e-12, 1.6e-12),
)
