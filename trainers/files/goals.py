"""Goals: metrics of which trackers keep the best value beside the last, and the objective of a search."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

HIGHER_IS_BETTER = ("accuracy", "hit_rate_at_10", "ndcg_at_10")
LOWER_IS_BETTER = ("loss", "perplexity", "bits_per_byte", "suboptimality", "distance_squared")
LINK_BYTES = "comm/link_bytes_sent_total"
SEARCH_LINK_BYTES = "autolrs/search_link_bytes_sent_total"  # of trials, not in LINK_BYTES
OBJECTIVE = "sweep/objective"  # metric


def higher_is_better(metric: str) -> bool | None:
    """Whether a larger value is better; None for a metric without a goal."""
    group, _, last = metric.rpartition("/")
    if group and last in (*HIGHER_IS_BETTER, *LOWER_IS_BETTER):
        return last in HIGHER_IS_BETTER
    return None


def objective_of(tracker: Mapping[str, Any]) -> "Objective | None":
    """The objective that the settings of a tracker name."""
    metric = tracker.get("objective")
    return None if metric is None else Objective(metric, tracker.get("byte_budget"))


class Objective(NamedTuple):
    """The number that a search maximises: a score of the quality, minus a penalty for bytes above a budget.

    The score is the metric if a larger value is better, else minus its decimal logarithm. The penalty is
    log10(bytes / ``byte_budget``) above the budget; without a budget there is none.
    """

    metric: str
    byte_budget: float | None = None

    def value(self, metrics: Mapping[str, float]) -> float | None:
        """The objective; None if the metric or the bytes are not known, or the metric has no logarithm."""
        found, sent = metrics.get(self.metric), metrics.get(LINK_BYTES)
        if sent is not None:
            sent += metrics.get(SEARCH_LINK_BYTES, 0)
        if found is None or (self.byte_budget is not None and sent is None):
            return None
        if higher_is_better(self.metric):
            score = found
        elif found > 0:
            score = -math.log10(found)
        else:
            return None
        if self.byte_budget is None or sent is None or sent <= self.byte_budget:
            return score
        return score - math.log10(sent / self.byte_budget)
