"""Units of a residual: those of the gradient, or those of a step of the parameters."""

from compressors.api import Plan, Step, require


def require_scale(owner: str, scale: object) -> None:
    """Raise ``ValueError`` unless ``scale`` is "gradient" or "step"."""
    require(scale in ("gradient", "step"), f"{owner}.scale", "'gradient' or 'step'", scale)


def require_rates(scale: str, plan: Plan) -> None:
    """Raise ``ValueError`` if a residual in units of a step would be divided by a rate of 0."""
    rule = "positive in every step under feedback.scale=step"
    require(scale != "step" or plan.lowest_rate > 0, "the schedule", rule, plan.lowest_rate)


def scale_of(scale: str, step: Step) -> float:
    """The factor on the gradient in p: the learning rate, or 1. Raises ``ValueError`` for a rate of 0."""
    factor = step.learning_rate if scale == "step" else 1.0
    require(factor > 0, "the learning rate", "> 0 under feedback.scale=step", factor)
    return factor
