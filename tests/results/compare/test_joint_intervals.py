"""Joint confidence intervals of several differences."""

import math
import random

import pytest
from scipy import stats

from results.compare.joint_intervals import confidence, joint_interval, quantile


def test_one_comparison_has_students_interval() -> None:
    values = [0.1, 0.5, 0.9, 0.2]
    found = joint_interval(values, 1)
    expected = stats.t.interval(0.95, 3, loc=0.425, scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)
    assert (found.side, found.word("higher", "lower")) == (0, "no difference shown")


def test_several_comparisons_widen_each_interval() -> None:
    values = [0.3, 0.5, 0.9, 0.7]
    assert joint_interval(values, 1).word("higher", "lower") == "higher"
    assert joint_interval(values, 4).shown() == "+0.60 [-0.10, +1.30]"
    assert joint_interval(values, 4).word("higher", "lower") == "no difference shown"
    assert quantile(3, 4) == pytest.approx(stats.t.ppf(1 - 0.05 / 8, 3))
    assert confidence(4) == "98.75"


def test_all_intervals_together_hold_as_often_as_promised() -> None:
    """Four null comparisons of ten seeds: at most 5 % of experiments show a difference; uncorrected 18 %."""
    draw = random.Random(0)
    wrong = {1: 0, 4: 0}
    for _ in range(1000):
        experiment = [[draw.gauss(0, 1) for _ in range(10)] for _ in range(4)]
        for number in wrong:
            wrong[number] += any(joint_interval(values, number).side for values in experiment)
    assert wrong[4] / 1000 < 0.065 and wrong[1] / 1000 > 0.12


def test_too_few_seeds_or_no_spread_give_no_interval() -> None:
    assert joint_interval([1.0, 2.0], 1).shown() == "+1.50 (seeds: 2)"
    assert joint_interval([0.28, 0.28, 0.28], 1).shown() == "+0.28 (the same in all 3 seeds)"
    assert joint_interval([0.0, 0.0, 0.0], 4).word("higher", "lower") == "no verdict"
    with pytest.raises(ValueError, match="a comparison needs at least one pair"):
        joint_interval([], 1)


def test_logarithms_are_shown_as_ratios() -> None:
    found = joint_interval([math.log(value) for value in (2.0, 4.0, 8.0)], 1)
    assert found.shown_as_ratio() == "4 [0.715, 22.4]"
