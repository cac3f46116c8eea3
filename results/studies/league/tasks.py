"""Tasks and byte budgets of the league."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from results.studies.kit import PAGES, ROOT

BASELINE = "none"
SHARES = (20, 100, 500)  # a budget is the bytes of dense training divided by one of these
TUNING_SEED = 100  # seed of pilots and of the rates tried
SEEDS = (0, 1, 2)  # seeds of the compared runs
OWN_STEPS = {"dgc": 10.0, "ef21_sgdm": 1.0}  # methods with their own momentum of 0.9: step over lr g
RATE_FACTORS = (1 / 3, 1.0, 3.0)  # the rates tried, as multiples of the task's rate


@dataclass(frozen=True, kw_only=True)
class Task:
    """One training, ``experiment=league/NAME``, in which methods are compared."""

    description: str
    quality: str  # metric of the summary and of the records
    higher_is_better: bool
    rate: float  # learning rate of the experiment
    sign_rate: float  # the rate for signSGD, whose steps do not depend on the gradient's size
    momentum: float = 0.0  # of the experiment's optimizer
    excluded: Mapping[str, str] = field(default_factory=dict)  # methods that run.py refuses, with the reason

    @property
    def is_evaluated(self) -> bool:
        """Whether the quality is measured on held-out data, which takes time."""
        return not self.quality.startswith("convex/")

    def rates(self, method: str) -> list[float]:
        """The learning rates tried for ``method``, the lowest first.

        With the optimizer's momentum m, a constant gradient g moves the parameters by lr g / (1 - m) a step.
        A method that replaces this momentum by its own gets the rates at which g moves them as far.
        """
        rate = self.sign_rate if method == "signsgd" else self.rate
        usual_step = 1 / (1 - self.momentum)
        rate *= usual_step / OWN_STEPS.get(method, usual_step)
        return [float(f"{rate * factor:.4g}") for factor in RATE_FACTORS]


_TOLD = yaml.safe_load((ROOT / PAGES / "league/study.yaml").read_text(encoding="utf-8"))
TASKS = {name: Task(**words) for name, words in _TOLD["tasks"].items()}
