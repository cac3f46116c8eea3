"""Measures of a run whose correlation with quality the study of why computes."""

from collections.abc import Callable

import numpy as np

from results.compare.measures import LINK_BYTES, Measure
from results.read.run import Run


def _of_layers(of: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Run], float]:
    """A number from the error per element and the density of every layer, each [L]."""

    def value(run: Run) -> float:
        layers = run.summary["layers"].values()
        errors = np.array([layer["total_error"] / layer["elements"] for layer in layers])
        return float(of(errors, np.array([layer["density_mean"] for layer in layers])))

    return value


def _sent_of_layers(of: Callable[[np.ndarray], float]) -> Callable[[Run], float | None]:
    """A number from the layers' shares of ||p||^2 that were sent, [L]; None if these are not known."""

    def value(run: Run) -> float | None:
        layers = [each for each in run.summary["layers"].values() if each.get("total_input_norm_squared")]
        sent = [1 - layer["total_error"] / layer["total_input_norm_squared"] for layer in layers]
        return float(of(np.array(sent))) if sent else None

    return value


def _mean_of_steps(name: str, label: str) -> Measure:
    """The mean of a diagnostic over the measured steps."""

    def value(run: Run) -> float | None:
        curve = run.curve(name)
        return float(curve.mean()) if len(curve) else None

    return Measure(name, label, value)


def _last_step(run: Run) -> float:
    return float(run.summary["compression/error"] / run.summary["compression/input_norm_squared"])


def rate_of(run: Run) -> float:
    return float(run.config["optimizer"]["lr"])


def _gap(name: str, label: str) -> Measure:
    """A measure of the gap; without momentum correction and signs, whose means have other units than G."""

    def value(run: Run) -> float | None:
        is_alike = run.compressor != "signsgd" and not run.config["feedback"]["_target_"].endswith(
            ".MomentumCorrection"
        )
        return run.summary.get(name) if is_alike else None

    return Measure(name, label, value)


def _gap_of_weights(run: Run) -> float | None:
    gap = GAP.value(run)
    return None if gap is None else float(gap * rate_of(run) ** 2)


ACCURACY = Measure.recorded("test/accuracy", "test accuracy, %", 100, 2)
TOTAL = Measure.recorded("compression/total_error", "total error")
WORST = Measure("worst", "error per element, worst layer", _of_layers(lambda errors, _: errors.max()))
PERPLEXITY = Measure.recorded("validation/perplexity", "validation perplexity", 1, 2)
GAP = _gap("diagnostics/gap", "gap")
GAP_OF_WEIGHTS = Measure("weights", "gap times squared learning rate", _gap_of_weights)
REGRET = Measure.recorded("compression/regret", "regret")
MEASURES = (
    TOTAL,
    Measure.recorded("compression/hindsight_error", "least total error in hindsight"),
    REGRET,
    WORST,
    Measure("mean", "error per element, mean of layers", _of_layers(lambda errors, _: errors.mean())),
    Measure("last", "error over squared norm of p, last step", _last_step),
    GAP,
    _gap("diagnostics/gap_relative", "gap, share of the summed gradients"),
    GAP_OF_WEIGHTS,
    Measure.recorded("compression/density_mean", "average density"),
    Measure("least", "density, layer with the least", _of_layers(lambda _, densities: densities.min())),
    Measure.recorded(LINK_BYTES, "bytes (control)"),
    Measure("rate", "learning rate (control)", rate_of),
)
WAITED = _mean_of_steps("diagnostics/waited_mean", "steps waited by the entries sent, mean")
XI = _mean_of_steps("diagnostics/xi", "xi")
NOT_IN_LEAGUE = (
    Measure(
        "sent_least", "share of the squared norm of p sent, layer with the least", _sent_of_layers(np.min)
    ),
    Measure("sent_mean", "share of the squared norm of p sent, mean of layers", _sent_of_layers(np.mean)),
    WAITED,
    Measure.recorded("diagnostics/unsent_100", "share of the entries that wait 100 steps, at the end"),
    Measure.recorded("diagnostics/residual_unsent_100", "share of the residual that does, at the end"),
)
MEASURES_OF_SMALL = [each for each in MEASURES if each is not GAP_OF_WEIGHTS]  # at one rate
