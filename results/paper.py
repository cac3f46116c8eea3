"""Published numbers and settings, to stand beside ours.

Sahu et al., "Rethinking gradient sparsification as total error minimization", NeurIPS 2021,
https://arxiv.org/abs/2108.00951. ``printed`` are outputs of its released notebooks, ``read`` are
values read by eye from its figures, good to about a tenth. Settings are those of its released code. How
well its networks do stands in figures that no value was read from, so that there is no number for them.
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
    peak_within: float = 1.26  # what agrees: a factor, by default a tenth of a decade of the figures' axis
    end_within: float = 1.26


class Training(NamedTuple):
    """The settings of one of the networks, and its size."""

    title: str
    model: str
    data: str
    num_parameters: int  # D
    workers: int
    batch_size: int  # per worker
    epochs: int
    lr: float  # before warm-up


PROBLEMS = {
    "madelon": Problem(29790805.649, 12.170929144, 0.66791955343),
    "gisette_scale": Problem(842.8680386, 8.154616014, 0.13794947717),
}
OFFSETS = {"madelon": 1e-4, "gisette_scale": 0.005}  # x0 = x* + offset
_SGD, _STAR = (20, 1, 3000), (20, None, 60000)  # workers, rows per worker and step, steps
ERROR_CURVES = (
    ErrorCurve("madelon_sgd", "top_k", {"density": 0.002}, *_SGD, 3e-4, 4e-5),
    ErrorCurve("madelon_sgd", "hard_threshold", {"threshold": 5e-4}, *_SGD, 7e-5, 3.5e-5),
    ErrorCurve(
        "madelon_gd_star_20", "top_k", {"density": 0.002}, *_STAR, 3e-4, 1e-16, end_within=3
    ),  # "about"
    ErrorCurve("madelon_gd_star_20", "hard_threshold", {"threshold": 1e-7}, *_STAR, 1.6e-12, 1.6e-12),
)
_CIFAR = (8, 256, 300, 0.1)  # workers, batch per worker, epochs, rate
TRAININGS = (
    Training("ResNet-18 on CIFAR-10", "resnet18", "cifar10", 11_173_962, *_CIFAR),
    Training("ResNet-18 on CIFAR-100", "resnet18", "cifar100", 11_220_132, *_CIFAR),
    Training("SENet-18 on CIFAR-10", "senet18", "cifar10", 11_260_354, *_CIFAR),
    Training("SENet-18 on CIFAR-100", "senet18", "cifar100", 11_436_256, *_CIFAR),
    Training("GoogLeNet on CIFAR-10", "googlenet", "cifar10", 6_166_250, *_CIFAR),
    Training("GoogLeNet on CIFAR-100", "googlenet", "cifar100", 6_258_500, *_CIFAR),
    Training("LSTM on WikiText-2", "lstm", "wikitext2", 28_949_319, 8, 128, 90, 1.25),
    Training("NeuMF on MovieLens-20M", "neumf", "movielens 20m", 31_832_577, 8, 131_072, 30, 0.0045),
)
