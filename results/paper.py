"""Published numbers and settings, to stand beside ours.

Sahu et al., "Rethinking gradient sparsification as total error minimization", NeurIPS 2021,
https://arxiv.org/abs/2108.00951. ``printed`` are outputs of its released notebooks, ``read`` are
values read by eye from its figures, good to about a tenth. Settings are those of its released code. How
well its networks do stands in figures that no value was read from, so that there is no number for them.
"""

import math
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
    """The settings of one of the networks, and its size as the released code builds it."""

    title: str
    model: str
    data: str
    num_parameters: int  # D
    workers: int
    batch_size: int  # per worker
    epochs: int
    lr: float  # before warm-up
    density: float = 0.001  # of Top-k, and what lambda is derived from
    chosen_threshold: float | None = None  # lambda, where it was picked by hand
    printed_parameters: int | None = None  # D of the published table, where it is that of another network

    @property
    def expected_elements(self) -> int:
        """k, per iteration."""
        return round(self.density * self.num_parameters)

    @property
    def threshold(self) -> float:
        """lambda, by the rule 1 / (2 sqrt(k)) unless it was picked by hand."""
        if self.chosen_threshold is not None:
            return self.chosen_threshold
        return 1 / (2 * math.sqrt(self.density * self.num_parameters))


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
# For SENet-18 on CIFAR-10 a lambda of 4.68e-3 is printed beside a D of 11,260,354, whose lambda is 4.712e-3.
# It is the rule for the 11,389,726 parameters that the released code builds, 4.685e-3. GoogLeNet on CIFAR-100
# is printed with 6,258,500 parameters and their lambda, 6.320e-3; the code builds a larger network there too.
TRAININGS = (
    Training("ResNet-18 on CIFAR-10", "resnet18", "cifar10", 11_173_962, *_CIFAR),
    Training("ResNet-18 on CIFAR-100", "resnet18", "cifar100", 11_220_132, *_CIFAR),
    Training(
        "SENet-18 on CIFAR-10", "senet18", "cifar10", 11_389_726, *_CIFAR, printed_parameters=11_260_354
    ),
    Training("SENet-18 on CIFAR-100", "senet18", "cifar100", 11_436_256, *_CIFAR),
    Training("GoogLeNet on CIFAR-10", "googlenet", "cifar10", 6_166_250, *_CIFAR),
    Training(
        "GoogLeNet on CIFAR-100",
        "googlenet_cifar100",
        "cifar100",
        6_402_564,
        *_CIFAR,
        printed_parameters=6_258_500,
    ),
    Training("LSTM on WikiText-2", "lstm", "wikitext2", 28_949_319, 8, 128, 90, 1.25),
    Training(
        "NeuMF on MovieLens-20M",
        "neumf",
        "movielens 20m",
        31_832_577,
        *(8, 131_072, 30, 0.0045),
        density=0.095,
        chosen_threshold=1.3e-6,
    ),
)
