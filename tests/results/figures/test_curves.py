"""Preparation of curves before they are drawn, and axis limits."""

from pathlib import Path

import numpy as np
import pytest
from run_folders import write_run

from results.figures import curves, scales
from results.read.folders import read_runs


def test_thinned_curves_keep_ends_and_peaks() -> None:
    values = np.sin(np.arange(20000) / 500)
    values[[7, 12345]] = 50, -50
    kept = curves.thinned(values, 600)
    assert len(kept) <= 600 and {0, 7, 12345, 19999} <= set(kept.tolist())
    assert (np.diff(kept) > 0).all()
    assert curves.thinned(values[:600], 600).tolist() == list(range(600))


def test_running_median_leaves_steady_curves_alone(tmp_path: Path) -> None:
    lines = [{"step": i, "steady": 0.5**i, "noisy": 1.0 + (i % 2)} for i in range(1, 101)]
    (run,) = read_runs([write_run(tmp_path, records=lines)])
    steady = curves.smoothed(curves.metric("steady"))(run)
    assert steady.tolist() == run.curve("steady").tolist()
    noisy = curves.smoothed(curves.metric("noisy"))(run)
    assert curves.window(100) == 5
    assert noisy.iloc[0] == 2.0 and noisy.iloc[50] == np.median(run.curve("noisy").iloc[48:53])


def test_axis_keeps_room_for_means_not_for_endless_intervals() -> None:
    from matplotlib.figure import Figure

    means = [np.array([1.0, 2.0])]
    lows, highs = [np.array([-99.0, 1.9])], [np.array([99.0, 2.1])]
    linear = scales.scale_of(means, lows, highs, can_be_logarithmic=True)
    low, high = linear.limits
    assert not linear.logarithmic and -99 < low < 1 and 2 < high < 99
    share = scales.scale_of(
        means, [np.array([-9.0, 1.0])], [np.array([9.0, 3.0])], can_be_logarithmic=False, limit=3.0
    )
    assert -0.2 < share.limits[0] < 0.1 and share.limits[1] < 3.2
    scale = scales.scale_of([np.array([0.0, 0.01, 100.0])], can_be_logarithmic=True)
    assert scale.logarithmic and 0 < scale.limits[0] < 0.01
    axis = Figure().subplots()
    scales.set_scale(axis, "y", scale)
    assert (axis.get_yscale(), axis.get_ylim()) == ("log", scale.limits)


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        ((0.8, 250.0), ["1", "2", "5", "10", "20", "50", "100", "200"]),
        ((0.5e-3, 2e4), ["0.001", "0.01", "0.1", "1", "10", "100", "1,000", "10,000"]),
        ((3.1, 3.3), ["3.1", "3.15", "3.2", "3.25", "3.3"]),
        ((3.0, 9.0), ["3", "4", "5", "6", "7", "8", "9"]),
        ((1e-17, 1e3), ["10⁻¹⁵", "10⁻¹²", "10⁻⁹", "10⁻⁶", "10⁻³", "10⁰", "10³"]),
        ((1.5e-6, 9e-5), ["2·10⁻⁶", "5·10⁻⁶", "10⁻⁵", "2·10⁻⁵", "5·10⁻⁵"]),
    ],
)
def test_a_logarithmic_axis_has_readable_ticks(limits: tuple[float, float], shown: list[str]) -> None:
    major, minor = scales.ticks(limits)
    assert scales.tick_labels(major) == shown
    assert all(limits[0] <= value <= limits[1] for value in (*major, *minor))


def test_no_logarithmic_axis_is_empty() -> None:
    for low in np.geomspace(1e-12, 1e6, 37):
        for factor in np.geomspace(1.01, 1e20, 41):
            major, _ = scales.ticks((low, low * factor))
            assert 2 <= len(major) <= 9, (low, factor, major)
            assert len(set(scales.tick_labels(major))) == len(major)
