"""Figures of small run folders, checked in matplotlib's axes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_commands import command_of_results
from run_folders import write_run

from results.compare.statistics import mean_and_interval
from results.figures import kinds as figures
from results.figures import metrics
from results.figures.groups import Group, groups
from results.figures.panels import NothingToDraw
from results.read.folders import read_runs

main = command_of_results("figures")

SEEDS = (0, 1, 2)


def records(value: float, density: float, error: float, number: int = 20) -> list[dict[str, Any]]:
    """Records of steps 10, 20, ...: the loss falls from ``value``; every compression error is ``error``."""
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


def drawn_by(name: str, group: Group, quality: str | None = None) -> Any:
    return figures.FIGURES[name](group, metrics.quality(group.runs, quality))


def texts(figure: Any) -> str:
    return "\n".join(text.get_text() for text in figure.texts)


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts() if text.get_text().strip()]


def lines(axis: Any) -> dict[str, Any]:
    """The lines of an axis, by their method's label."""
    return {line.get_label(): line for line in axis.lines if not line.get_label().startswith("_")}


def bars(axis: Any) -> list[np.ndarray]:
    """The ends of each interval, [2, 2]."""
    return [segment for each in axis.collections for segment in each.get_segments()]


def dots(axis: Any) -> list[np.ndarray]:
    """The points of the single seeds at each mark, [seeds, 2]."""
    return [line.get_xydata() for line in axis.lines if line.get_markersize() < 3]


def test_quality_stands_at_the_means_with_their_intervals(group: Group) -> None:
    (axis,) = drawn_by("quality_density", group).axes
    found = lines(axis)
    assert set(found) == set(group.methods) and len(found) == 5
    expected = []
    for method, runs in group.methods.items():
        values = [
            [100 * run.summary[name] for run in runs]
            for name in ("compression/density_mean", "test/accuracy")
        ]
        (x, x_half), (y, y_half) = map(mean_and_interval, values)
        (at_x,), (at_y,) = found[method].get_data()
        assert (at_x, at_y) == (pytest.approx(x), pytest.approx(y))
        assert any(seeds.tolist() == np.array(values).T.tolist() for seeds in dots(axis))
        expected.append([[x, y - y_half], [x, y + y_half]])
        if x_half is not None:  # top_k's density does not vary
            expected.append([[x - x_half, y], [x + x_half, y]])
    assert np.allclose(sorted(bar.tolist() for bar in bars(axis)), sorted(expected))
    assert axis.get_xlabel() == "average density, %" and axis.get_xscale() == "log"
    assert axis.get_ylabel() == "test accuracy, % at the end (higher is better)"
    assert axis.get_yscale() == "linear" and axis.get_ylim()[1] <= 101


@pytest.mark.parametrize(("name", "is_said"), [("loss", True), ("quality_bytes", False)])
def test_unequal_bytes_are_said_unless_an_axis_shows_them(name: str, is_said: bool, group: Group) -> None:
    figure = drawn_by(name, group)
    assert ("differ by more than 10%" in texts(figure)) == is_said


def test_curves_are_means_in_their_interval(group: Group) -> None:
    axis, by_bytes = drawn_by("loss", group).axes
    found = lines(axis)
    for method, runs in group.methods.items():
        values = np.array([run.curve("train/loss") for run in runs])
        assert found[method].get_xdata().tolist() == list(range(10, 201, 10))
        assert found[method].get_ydata() == pytest.approx(values.mean(axis=0))
        marked = found[method].get_markevery()
        assert 1 < len(marked) <= 6
        for point in marked:
            x, (mean, half) = 10 * (point + 1), mean_and_interval(values[:, point].tolist())
            low, high = (np.clip(end, *axis.get_ylim()) for end in (mean - half, mean + half))
            assert any(np.allclose(bar, [[x, low], [x, high]]) for bar in bars(axis))
            assert any(np.allclose(seeds, [(x, value) for value in values[:, point]]) for seeds in dots(axis))
    first_method, first = next(iter(group.methods.items()))
    assert lines(by_bytes)[first_method].get_xdata() == pytest.approx(
        np.mean([run.curve("comm/link_bytes_sent_total") for run in first], axis=0) / 1e6
    )
    assert by_bytes.get_xlabel() == "bytes that left a worker, MB"
    assert metrics.BYTES.title == "bytes on the link"


def test_zero_is_named_where_an_axis_is_logarithmic(group: Group) -> None:
    figure = drawn_by("error", group)
    assert figure.axes[1].get_yscale() == "log"
    assert "none: total error 0, not on the logarithmic axis." in texts(figure)
    none = lines(figure.axes[1])["none"]
    assert not np.isfinite(none.get_ydata()).any()


def test_layers_in_the_order_of_the_model(group: Group) -> None:
    density, error = drawn_by("layers", group).axes
    assert [label.get_text() for label in density.get_yticklabels()] == [
        "first.weight (900)",
        "first.bias (100)",
    ]
    assert density.get_ylim()[0] > density.get_ylim()[1]  # the first layer is on top
    assert lines(density)["none"].get_xdata().tolist() == [1.0, 1.0]
    assert lines(density)["none"].get_linestyle() == "None"  # layers are no sequence
    assert lines(error)["none"].get_xdata() == pytest.approx([54.0, 6.0])


def test_two_seeds_and_equal_ones_have_no_interval_and_say_why(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "two", seed=seed, records=records(2 + seed, 0.01, 8 + seed))
    for seed in SEEDS:
        write_run(tmp_path / "equal", seed=seed)
    whys = {
        "two": "No interval of fewer than three seeds.",
        "equal": "No interval of training loss, which is the same in every seed.",
    }
    for folder, said in (("two", "mean over seeds 0, 1; dots"), ("equal", "over seeds 0, 1, 2")):
        (group,) = groups(read_runs([tmp_path / folder]))
        figure = drawn_by("loss", group)
        assert said in texts(figure) and whys[folder] in texts(figure)
        assert not any(map(bars, [*figure.axes, *drawn_by("quality_density", group).axes]))
        assert dots(figure.axes[0])


def test_a_run_without_the_metric_is_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    lines = [{"step": step, "comm/link_bytes_sent_total": 80.0 * step} for step in (10, 20)]
    write_run(tmp_path, compressor="random_k", records=lines)
    (group,) = groups(read_runs([tmp_path]))
    figure = drawn_by("loss", group)
    assert legend(figure) == ["top_k, density 1 %"]
    assert "Not drawn, for want of a number: random_k, density 1 %." in texts(figure)
    with pytest.raises(NothingToDraw, match=r"^no run has convex/suboptimality$"):
        drawn_by("suboptimality", group)


def test_command_writes_the_same_bytes_twice(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for name in ("a", "b"):
        assert (
            main([str(output), "--to", str(tmp_path / name), "--pdf", "--only", "error,suboptimality"]) == 0
        )
        made.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert made[0] == made[1] and set(made[0]) == {"mlp-digits-error.pdf", "mlp-digits-error.png"}
    printed = capsys.readouterr()
    assert printed.err == "skipped mlp-digits-suboptimality: no run has convex/suboptimality\n" * 2
    assert printed.out.splitlines()[0] == str(tmp_path / "a" / "mlp-digits-error.png")


def test_a_name_may_be_a_formula(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = {"$x^$": {"elements": 9, "total_error": 1.0, "density_mean": 0.1}}
    layers["b"] = layers["$x^$"]
    summary = {"layers": layers, "data": {"$y_$": "$"}}
    for seed in SEEDS:
        settings = {"note": "$z^$"}
        write_run(tmp_path / "runs", name="$x^$", seed=seed, settings=settings, summary=summary)
    assert main([str(tmp_path / "runs"), "--to", str(tmp_path / "to")]) == 0
    assert len(list((tmp_path / "to").iterdir())) == 7
