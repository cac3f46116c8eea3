"""Descriptions of panels, whose numbers both matplotlib and plotly draw."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_folders import write_run

from results.figures import description, metrics, sheet
from results.figures.groups import groups
from results.read.folders import compared_across, read_runs
from results.report.facts import pages_of, series_of
from results.report.interactive_figures import figures_of

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
    (axis,) = sheet.of_group(group, group.methods, "", [panel]).axes
    at = [line.get_xydata()[0] for line in axis.lines if not line.get_label().startswith("_")]
    marks = {line.name: line.marks[0] for line in panel.lines}
    traces = figures["Total error against MB that left a worker"].data
    means = [trace for trace in traces if "showlegend" not in trace]
    for method, mark in marks.items():
        errors = [run.summary["compression/total_error"] for run in group.methods[method]]
        assert mark.y == pytest.approx(np.mean(errors))
        low, high = mark.y_interval
        assert low < mark.y < high and sorted(mark.seeds[:, 1]) == sorted(errors)
    assert sorted(means[0]["y"]) == pytest.approx(sorted(mark.y for mark in marks.values()), rel=1e-4)
    assert sorted(means[0]["x"]) == pytest.approx(sorted(mark.x for mark in marks.values()), rel=1e-4)
    assert np.allclose(at, [(mark.x, mark.y) for mark in marks.values()])

    panel = description.curves(group.methods, metrics.STEPS, metrics.TOTAL_ERROR, 100)
    lines = [trace for trace in figures["Total error against steps"].data if "meta" in trace]
    assert len(lines) == len(panel.lines) == 3
    for trace, curve in zip(lines, panel.lines, strict=True):
        assert trace["x"] == curve.x.tolist() and trace["y"] == pytest.approx(curve.y, rel=1e-4)
    assert figures["Total error against steps"].layout["yaxis"]["type"] == "log"


def test_an_interval_ends_at_the_panel_and_is_left_out_below_three_seeds(tmp_path: Path) -> None:
    """The interval of three seeds includes 0, which a logarithmic axis cannot show."""
    for name, seeds in (("three", (0, 1, 2)), ("two", (0, 1))):
        for density in DENSITIES:
            for seed in seeds:
                error = 1e-3 * density**-2 * 10**seed
                summary = {"compression/total_error": error, "comm/link_bytes_sent_total": 1e6 * density}
                write_run(tmp_path / name, seed=seed, settings={"density": density}, summary=summary)
    panels = {}
    for name in ("three", "two"):
        (group,) = groups(read_runs([tmp_path / name]))
        panels[name] = description.points(group.methods, metrics.FINAL_BYTES, metrics.FINAL_TOTAL_ERROR)
    bottom, top = panels["three"].y.scale.limits
    for line in panels["three"].lines:
        (mark,) = line.marks
        assert mark.y_interval[0] == bottom > 0 and mark.y < mark.y_interval[1] <= top
        assert ((mark.seeds[:, 1] >= bottom) & (mark.seeds[:, 1] <= top)).all()
        assert mark.x_interval is None  # as many bytes in every seed
    assert description.HOLDS_ZERO in panels["three"].notes
    same = "No interval of bytes on the link, which is the same in every seed."
    assert same in description.notes_of([panels["three"]])
    twice = replace(panels["three"], equal=("total error",))
    assert description.notes_of([panels["three"], twice, twice])[-1] == (
        "No interval of bytes on the link and total error, which are the same in every seed."
    )
    assert all(line.marks[0].y_interval is None for line in panels["two"].lines)
    assert "No interval of fewer than three seeds." in panels["two"].notes


def test_a_curve_without_bytes_is_named_where_they_are_logarithmic(tmp_path: Path) -> None:
    """A single worker sends nothing."""
    for workers in (1, 2):
        for density in (0.001, 0.1):
            records = [
                {"step": step, "train/loss": 1.0, "comm/link_bytes_sent_total": 1e9 * density * (workers - 1)}
                for step in (1, 2)
            ]
            write_run(tmp_path, workers=workers, settings={"density": density}, records=records)
    (group,) = groups(compared_across(read_runs([tmp_path]), "workers"))
    panel = description.curves(group.methods, metrics.BYTES, metrics.LOSS, 100)
    assert panel.x.scale.logarithmic
    absent = "top_k, density 0.1 %, workers 1; top_k, density 10 %, workers 1"
    assert panel.notes[0] == f"{absent}: bytes on the link 0, not on the logarithmic axis."


def test_methods_of_one_density_are_joined_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    for density, sent in ((0.1, 2e6), (0.01, 3e6), (0.001, 1e6)):  # settings that differ in a number
        summary = {"compression/density_mean": 0.01, "comm/link_bytes_sent_total": sent}
        write_run(tmp_path, settings={"density": density}, summary=summary)
    (group,) = groups(read_runs([tmp_path]))
    (family,) = description.families_of(group.methods)
    sent = [group.methods[name][0].summary["comm/link_bytes_sent_total"] for name in family]
    assert sent == [1e6, 2e6, 3e6]
