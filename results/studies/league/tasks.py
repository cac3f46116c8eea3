"""Tasks and byte budgets of the league."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from results.studies.kit import PAGES, ROOT

BASELINE = "none"
SHARES = (20, 100, 500)  # a budget is the bytes of dense training divided by one of these
TUNING_SEED = 100  # seed of pilots and of the rates tried
OWN_STEPS = {"dgc": 10.0, "ef21_sgdm": 1.0}  # methods with their own momentum of 0.9: step over lr g
RATE_STEP = 3.0  # factor from one rate tried to the next
FURTHER_RATES = 3  # at most so many are tried beyond the first three


@dataclass(frozen=True, kw_only=True)
class Task:
    """One training, ``experiment=league/NAME``, in which methods are compared."""

    description: str
    quality: str  # metric of the summary and of the records
    higher_is_better: bool
    rate: float  # learning rate of the experiment
    sign_rate: float  # the rate for signSGD, whose steps do not depend on the gradient's size
    seeds: int  # of the compared runs of a setting: 0, 1, ...
    extended: Sequence[str] | None = None  # methods that try further rates; None: all
    momentum: float = 0.0  # of the experiment's optimizer
    excluded: Mapping[str, str] = field(default_factory=dict)  # methods that run.py refuses, with the reason

    @property
    def is_evaluated(self) -> bool:
        """Whether the quality is measured on held-out data, which takes time."""
        return not self.quality.startswith("convex/")

    def rates(self, method: str) -> list[float]:
        """The learning rates tried first for ``method``, the lowest first.

        With the optimizer's momentum m, a constant gradient g moves the parameters by lr g / (1 - m) a step.
        A method that replaces this momentum by its own gets the rates at which g moves them as far.
        """
        rate = self.sign_rate if method == "signsgd" else self.rate
        usual_step = 1 / (1 - self.momentum)
        rate *= usual_step / OWN_STEPS.get(method, usual_step)
        return [rounded(rate * factor) for factor in (1 / RATE_STEP, 1.0, RATE_STEP)]

    def further_rates(self, method: str) -> int:
        """How many rates are tried at most while the best is the lowest or the highest of those tried."""
        return FURTHER_RATES if self.extended is None or method in self.extended else 0


def rounded(rate: float) -> float:
    return float(f"{rate:.4g}")


_TOLD = yaml.safe_load((ROOT / PAGES / "league/study.yaml").read_text(encoding="utf-8"))
TASKS = {name: Task(**words) for name, words in _TOLD["tasks"].items()}
