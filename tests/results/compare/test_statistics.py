"""Means, intervals and paired differences, compared with hand-computed numbers and scipy's tests."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from results.compare.statistics import (
    confidence,
    joint_interval,
    mean_and_interval,
    paired_difference,
    quantile,
    standard_deviation,
)


def test_interval_by_hand() -> None:
    mean, half = mean_and_interval([1.0, 2.0, 3.0])  # s = 1, t = 4.302653 with 2 degrees of freedom
    assert mean == 2.0
    assert half == pytest.approx(4.302652729911275 / math.sqrt(3))


def test_quantile_is_that_of_printed_tables() -> None:
    assert [round(quantile(n), 3) for n in (1, 2, 4, 9)] == [12.706, 4.303, 2.776, 2.262]


def test_fewer_than_three_values_have_no_interval_and_none_is_refused() -> None:
    assert mean_and_interval([0.25]) == (0.25, None)
    assert mean_and_interval([0.25, 0.75]) == (0.5, None)
    assert standard_deviation([0.25, 0.75]) is None
    assert paired_difference([3.0], [1.0]) == (2.0, None, None, 1)
    assert paired_difference([3.0, 4.0], [1.0, 1.0]) == (2.5, None, None, 2)
    with pytest.raises(ValueError, match="at least one value"):
        mean_and_interval([])
    with pytest.raises(ValueError, match="got 2 and 1"):
        paired_difference([1.0, 2.0], [1.0])


def test_paired_difference_is_scipys() -> None:
    rng = np.random.default_rng(0)
    seeds = rng.normal(size=6) * 10  # common to a and b, and larger than their difference
    a, b = seeds + rng.normal(size=6), seeds + rng.normal(size=6) + 1
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    mean, low, high, seeds = paired_difference(list(a), list(b))
    assert seeds == 6
    assert mean == pytest.approx(np.mean(a - b))
    assert (low, high) == pytest.approx((interval.low, interval.high))
    assert high - low < 6


def test_interval_covers_the_truth_in_19_of_20_cases() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for draws in rng.normal(size=(2000, 3)):
        mean, half = mean_and_interval(list(draws))
        covered += abs(mean) <= half
    assert covered / 2000 == pytest.approx(0.95, abs=0.02)


def test_a_diverged_seed_is_not_hidden() -> None:
    mean, half = mean_and_interval([1.0, math.nan, 2.0])
    assert math.isnan(mean) and math.isnan(half)
    mean, half = mean_and_interval([1.0, math.inf, 2.0])
    assert mean == math.inf and math.isnan(half)


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


def test_too_few_seeds_or_no_spread_give_no_joint_interval() -> None:
    assert joint_interval([1.0, 2.0], 1).shown() == "+1.50 (seeds: 2)"
    assert joint_interval([0.28, 0.28, 0.28], 1).shown() == "+0.28 (the same in all 3 seeds)"
    assert joint_interval([0.0, 0.0, 0.0], 4).word("higher", "lower") == "no verdict"
    with pytest.raises(ValueError, match="a comparison needs at least one pair"):
        joint_interval([], 1)


def test_logarithms_are_shown_as_ratios() -> None:
    found = joint_interval([math.log(value) for value in (2.0, 4.0, 8.0)], 1)
    assert found.shown_as_ratio() == "4 [0.715, 22.4]"
