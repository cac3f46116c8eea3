"""Figures of run folders written by hand, read back from matplotlib's axes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.compare.statistics import mean_and_interval
from results.figures import command as figures
from results.figures import metrics
from results.figures.groups import Group, groups
from results.figures.panels import NothingToDraw
from results.read.folders import read_runs

main = command_of_results("figures")

SEEDS = (0, 1, 2)


def records(value: float, density: float, error: float, number: int = 20) -> list[dict[str, Any]]:
    """Steps 10, 20, ... of a run whose loss falls from ``value`` and that errs by ``error`` in each."""
    return [
        {
            "step": 10 * i,
            "epoch": i / 10,
            "train/loss": value / i,
            "compression/density": density,
            "compression/density_mean": density,
            "compression/error": error,
            "compression/total_error": error * 10 * i,
            "comm/link_bytes_sent_total": 1e8 * density * i,
            "test/accuracy": 0.5 + value / 100,
        }
        for i in range(1, number + 1)
    ]


def write_sweep(folder: Path) -> None:
    """Two densities of top_k, two thresholds and no compression, three seeds each."""
    for seed in SEEDS:
        for density in (0.01, 0.1):
            write_run(
                folder,
                seed=seed,
                settings={"density": density},
                records=records(2 + seed, density, 8 + seed),
            )
        for threshold, density in ((0.1, 0.005), (0.02, 0.05)):
            write_run(
                folder,
                compressor="hard_threshold",
                seed=seed,
                settings={"threshold": threshold, "density": 0.01},
                records=records(3 + seed, density * (1 + seed / 10), 2 + seed),
            )
        write_run(folder, compressor="none", seed=seed, records=records(4 + seed, 1.0, 0.0))


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    write_sweep(folder)
    return folder


@pytest.fixture
def group(output: Path) -> Group:
    (group,) = groups(read_runs([output]))
    return group


def draw(name: str, group: Group, quality: str | None = None) -> Any:
    return figures.FIGURES[name](group, metrics.quality(group.runs, quality))


def texts(figure: Any) -> str:
    return "\n".join(text.get_text() for text in figure.texts)


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts() if text.get_text().strip()]


def containers(axis: Any) -> dict[str, Any]:
    """Points with error bars by their method."""
    return {container.get_label(): container for container in axis.containers}


def half_widths(container: Any) -> list[float]:
    """Half the length of each error bar, x before y, as drawn."""
    halves = []
    for bars in container[2]:
        (segment,) = bars.get_segments()
        halves.append(float(np.abs(segment[1] - segment[0]).max()) / 2)
    return halves


def test_quality_stands_at_the_means_with_their_intervals(group: Group) -> None:
    (axis,) = draw("quality_density", group).axes
    found = containers(axis)
    assert set(found) == set(group.methods) and len(found) == 5
    for method, runs in group.methods.items():
        x, x_half = mean_and_interval([100 * run.summary["compression/density_mean"] for run in runs])
        y, y_half = mean_and_interval([100 * run.summary["test/accuracy"] for run in runs])
        (at_x,), (at_y,) = found[method][0].get_data()
        assert (at_x, at_y) == (pytest.approx(x), pytest.approx(y))
        expected = [half for half in (x_half, y_half) if half is not None]  # top_k's density does not vary
        assert half_widths(found[method]) == pytest.approx(expected)
    assert axis.get_xlabel() == "average density, %" and axis.get_xscale() == "log"
    assert axis.get_ylabel() == "test accuracy, % at the end (higher is better)"
    assert axis.get_yscale() == "linear" and axis.get_ylim()[1] <= 101


def test_an_interval_beyond_the_panel_is_said(tmp_path: Path, group: Group) -> None:
    for seed in SEEDS:
        write_run(tmp_path, seed=seed, summary={"test/accuracy": 0.4 + 0.2 * seed})
        for threshold in (0.1, 0.2, 0.3):
            settings = {"threshold": threshold, "density": 0.01}
            write_run(tmp_path, compressor="hard_threshold", seed=seed, settings=settings)
    (wide,) = groups(read_runs([tmp_path]))
    assert "reaches beyond the panel" in texts(draw("quality_bytes", wide))
    assert "reaches beyond the panel" not in texts(draw("quality_bytes", group))


def test_one_line_joins_the_settings_of_a_compressor(group: Group) -> None:
    (axis,) = draw("total_error_bytes", group).axes
    joined = [line for line in axis.lines if len(line.get_xdata()) == 2 and line.get_marker() == "None"]
    joined = [line for line in joined if line.get_label() == "_"]
    assert len(joined) == 2
    for line in joined:  # the more is sent, the smaller the error: sorted along the axis
        assert line.get_xdata()[0] < line.get_xdata()[1]


def test_curves_are_means_in_their_interval(group: Group) -> None:
    axis, by_bytes = draw("loss", group).axes
    lines = {line.get_label(): line for line in axis.lines}
    for method, runs in group.methods.items():
        values = np.array([run.curve("train/loss") for run in runs])
        assert lines[method].get_xdata().tolist() == list(range(10, 201, 10))
        assert lines[method].get_ydata() == pytest.approx(values.mean(axis=0))
    drawn = by_bytes.lines[0].get_xdata()
    first = next(iter(group.methods.values()))
    assert drawn == pytest.approx(
        np.mean([run.curve("comm/link_bytes_sent_total") for run in first], axis=0) / 1e6
    )
    mean, half = mean_and_interval([run.curve("train/loss").iloc[0] for run in first])
    band = axis.collections[0].get_paths()[0].vertices
    at = band[np.isclose(band[:, 0], 10)]
    assert at[:, 1].max() == pytest.approx(mean + half)
    assert by_bytes.get_xlabel() == "bytes that left a worker, MB"
    assert metrics.BYTES.title == "bytes on the link"


def test_zero_is_named_where_an_axis_is_logarithmic(group: Group) -> None:
    figure = draw("error", group)
    assert figure.axes[1].get_yscale() == "log"
    assert "none: total error 0, not on the logarithmic axis." in texts(figure)
    none = next(line for line in figure.axes[1].lines if line.get_label() == "none")
    assert not np.isfinite(none.get_ydata()).any()


def test_a_gap_in_a_curve_is_explained(tmp_path: Path) -> None:
    lines = [{"step": i, "compression/density": 0.0 if i < 5 else 10.0**-i} for i in range(1, 11)]
    write_run(tmp_path, records=lines)
    (group,) = groups(read_runs([tmp_path]))
    figure = draw("density", group)
    assert "Gaps are where density of a step is 0" in texts(figure)
    (line,) = figure.axes[0].lines
    assert np.isfinite(line.get_ydata()).tolist() == [False] * 4 + [True] * 6


def test_layers_in_the_order_of_the_model(group: Group) -> None:
    density, error = draw("layers", group).axes
    assert [label.get_text() for label in density.get_yticklabels()] == [
        "first.weight (900)",
        "first.bias (100)",
    ]
    assert density.get_ylim()[0] > density.get_ylim()[1]  # the first on top
    assert containers(density)["none"][0].get_xdata().tolist() == [1.0, 1.0]
    assert containers(error)["none"][0].get_xdata() == pytest.approx([54.0, 6.0])


def test_title_says_subject_workers_steps_and_seeds(group: Group) -> None:
    said = texts(draw("density", group))
    assert said.startswith("mlp-digits: density against iterations\n4 workers, 200 steps; ")
    assert "mean and 95 % interval over seeds 0, 1, 2" in said


def test_legend_lies_below_the_panels_and_names_all(group: Group) -> None:
    for name in ("quality_bytes", "loss", "layers"):
        figure = draw(name, group)
        figure.draw_without_rendering()
        box = figure.legends[0].get_window_extent()
        assert box.y1 < min(axis.get_tightbbox().y0 for axis in figure.axes)
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0
        assert set(legend(figure)) == {
            "hard_threshold, threshold 0.02",
            "hard_threshold, threshold 0.1",
            "none",
            "top_k, density 1 %",
            "top_k, density 10 %",
        }


def test_one_seed_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, seed=3)
    (group,) = groups(read_runs([tmp_path]))
    figure = draw("loss", group)
    assert "one seed only (3)" in texts(figure)
    assert not figure.axes[0].collections  # no band
    (point,) = draw("quality_density", group).axes[0].containers
    assert not point[2]  # nor bars


def test_two_seeds_and_equal_ones_have_no_band(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "two", seed=seed, records=records(2 + seed, 0.01, 8 + seed))
    for seed in SEEDS:
        write_run(tmp_path / "equal", seed=seed)
    for folder, said in (("two", "mean over seeds 0, 1"), ("equal", "over seeds 0, 1, 2")):
        (group,) = groups(read_runs([tmp_path / folder]))
        assert said in texts(draw("loss", group))
        assert not any(axis.collections for axis in draw("loss", group).axes)
        (point,) = draw("quality_density", group).axes[0].containers
        assert not point[2]


def test_other_seeds_stand_in_the_legend(tmp_path: Path) -> None:
    for seed in SEEDS:
        write_run(tmp_path, seed=seed)
    write_run(tmp_path, compressor="none", seed=1)
    (group,) = groups(read_runs([tmp_path]))
    figure = draw("loss", group)
    assert "over seeds 0, 1, 2 (others: see the legend)" in texts(figure)
    assert legend(figure) == ["none (one seed: 1)", "top_k, density 1 %"]


def test_several_versions_of_the_code_are_marked(tmp_path: Path, group: Group) -> None:
    write_run(tmp_path, seed=0, commit="a" * 40)
    write_run(tmp_path, seed=1, commit="b" * 40, modified=True)
    (several,) = groups(read_runs([tmp_path]))
    note = (
        "Runs of 2 versions of the code: aaaaaaaaaa (1 run), bbbbbbbbbb* (1 run); * with uncommitted changes."
    )
    assert note in texts(draw("loss", several))
    assert "versions" not in texts(draw("loss", group))


def test_a_run_without_the_metric_is_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    lines = [{"step": step, "comm/link_bytes_sent_total": 80.0 * step} for step in (10, 20)]
    write_run(tmp_path, compressor="random_k", records=lines)
    (group,) = groups(read_runs([tmp_path]))
    figure = draw("loss", group)
    assert legend(figure) == ["top_k, density 1 %"]
    assert "Not drawn, for want of a number: random_k, density 0.01." in texts(figure)
    with pytest.raises(NothingToDraw, match=r"^no run has convex/suboptimality$"):
        draw("suboptimality", group)


def test_no_number_at_the_end_is_not_a_point(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path, compressor="none", summary={"test/accuracy": float("nan")})
    (group,) = groups(read_runs([tmp_path]))
    assert list(containers(draw("quality_bytes", group).axes[0])) == ["top_k, density 0.01"]


def test_command_writes_the_same_bytes_twice(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for name in ("a", "b"):
        assert main([str(output), "--to", str(tmp_path / name), "--only", "error,suboptimality"]) == 0
        made.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert made[0] == made[1] and set(made[0]) == {"mlp-digits-error.pdf", "mlp-digits-error.png"}
    printed = capsys.readouterr()
    assert printed.err == "skipped mlp-digits-suboptimality: no run has convex/suboptimality\n" * 2
    assert printed.out.splitlines()[0] == str(tmp_path / "a" / "mlp-digits-error.png")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "pie"], "error: no figure 'pie'; there are quality_density, quality_bytes, "),
        (["--only", "suboptimality"], "error: nothing to draw in "),
        (["--only", "quality_bytes", "--quality", "test/beauty"], "error: nothing to draw in "),
    ],
)
def test_nothing_to_draw_is_an_error(
    options: list[str], said: str, output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(output), "--to", str(tmp_path / "to"), *options]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(said)
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("folder", ["", "not there"])
def test_an_empty_folder_is_one_line(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / folder)]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: no ") and printed.count("\n") == 1


def test_a_quality_of_ones_own(group: Group) -> None:
    (axis,) = draw("quality_density", group, "train/loss").axes
    assert axis.get_ylabel() == "train/loss at the end (lower is better)"


def test_a_name_may_be_a_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = {"$x^$": {"elements": 9, "total_error": 1.0, "density_mean": 0.1}}
    layers["b"] = layers["$x^$"]
    summary = {"layers": layers, "data": {"$y_$": "$"}}
    for seed in SEEDS:
        settings = {"note": "$z^$"}
        write_run(tmp_path / "runs", name="$x^$", seed=seed, settings=settings, summary=summary)
    assert main([str(tmp_path / "runs"), "--to", str(tmp_path / "to")]) == 0
    assert len(list((tmp_path / "to").iterdir())) == 14
