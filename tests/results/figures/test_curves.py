"""Preparation of curves before they are drawn, and axis limits."""

from pathlib import Path

import numpy as np
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
    scale = scales.scale_of([np.array([0.0, 0.01, 100.0])], can_be_logarithmic=True)
    assert scale.logarithmic and 0 < scale.limits[0] < 0.01
    axis = Figure().subplots()
    scales.set_scale(axis, "y", scale)
    assert (axis.get_yscale(), axis.get_ylim()) == ("log", scale.limits)
