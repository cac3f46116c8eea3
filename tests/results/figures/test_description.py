"""Panels: matplotlib and plotly draw the numbers of one description."""

from pathlib import Path

import numpy as np
import pytest
from run_folders import write_run

from results.figures import description, metrics, panels, sheet
from results.figures.groups import groups
from results.read.folders import read_runs
from results.report.facts import pages_of, series_of
from results.report.figures import figures_of

DENSITIES = (0.001, 0.01, 0.1)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Top-k at three densities, three seeds each; the total error spans four decades."""
    for density in DENSITIES:
        for seed in (0, 1, 2):
            error = density**-2 * (1 + 0.1 * seed)
            records = [{"step": step, "compression/total_error": error * step / 30} for step in (10, 20, 30)]
            summary = {"compression/total_error": error, "comm/link_bytes_sent_total": 1e6 * density}
            write_run(tmp_path, seed=seed, settings={"density": density}, records=records, summary=summary)
    return tmp_path


def test_a_panel_says_what_both_draw(output: Path) -> None:
    runs = read_runs([output])
    (group,) = groups(runs)
    (series,) = series_of(pages_of(runs, [output])).values()
    figures = {figure.title: figure for figure in figures_of(series)}

    x, y = metrics.FINAL_BYTES, metrics.FINAL_TOTAL_ERROR
    panel = description.points(group.methods, x, y)
    assert panel.y.scale.logarithmic and panel.joined == (tuple(group.methods),)
    shown = [(lambda axis: panels.draw(axis, group, group.methods, panel), "", "")]
    (axis,) = sheet.draw(group, group.methods, "", shown).axes
    at = [bars.lines[0].get_xydata()[0] for bars in axis.containers]
    traces = figures["Total error against MB that left a worker"].data
    marks = [trace for trace in traces if "showlegend" not in trace]
    for method, mark in panel.marks.items():
        errors = [run.summary["compression/total_error"] for run in group.methods[method]]
        assert mark.y == pytest.approx(np.mean(errors)) and mark.y_half > 0
    assert sorted(marks[0]["y"]) == pytest.approx(sorted(mark.y for mark in panel.marks.values()), rel=1e-4)
    assert sorted(marks[0]["x"]) == pytest.approx(sorted(mark.x for mark in panel.marks.values()), rel=1e-4)
    assert np.allclose(at, [(mark.x, mark.y) for mark in panel.marks.values()])

    panel = description.curves(group.methods, metrics.STEPS, metrics.TOTAL_ERROR, 100)
    lines = [trace for trace in figures["Total error against steps"].data if "meta" in trace]
    assert len(lines) == len(panel.curves) == 3
    for trace, curve in zip(lines, panel.curves.values(), strict=True):
        assert trace["x"] == curve.x.tolist() and trace["y"] == pytest.approx(curve.mean, rel=1e-4)
    assert figures["Total error against steps"].layout["yaxis"]["type"] == "log"
