"""The study of three key parameters, from small run folders."""

import math
import statistics
from pathlib import Path

import pytest
from results_commands import command_of_results
from run_folders import FEEDBACK, NO_FEEDBACK, write_run

from results.compare.statistics import paired_difference
from results.read.folders import read_runs
from results.studies.three_parameters.combinations import Combination, networks
from results.studies.three_parameters.effects import CHANGES, effect, pairs, ratio
from results.studies.three_parameters.figure import draw

main = command_of_results("study", "three_parameters")

SEEDS = (0, 1, 2)
DENSITIES = (0.1, 0.01)
PLAIN = (0.96, 0.97, 0.99)
SCHEMES = (("random_k", True), ("random_k", False), ("random_block", True), ("random_block", False))
SCHEMES += (("top_k", None),)


def accuracy(scheme: str, shared: bool | None, scope: str, lost: bool, density: float, seed: int) -> float:
    """Accuracy from additive effects, except that feedback has a larger effect at the lower density."""
    value = PLAIN[seed] - 0.02 - {"random_k": 0.0, "random_block": 0.01, "top_k": -0.015}[scheme]
    value -= 0.03 * (shared is False) + 0.005 * (scope == "global") * (1 + seed)
    return value - lost * (0.2 if density == 0.1 else 0.4)


def records(reduce_seconds: float, error: float, sent: float, quality: float) -> list[dict]:
    """Records of five steps, of which the first took 100 times as long as the others."""
    lines = [
        {"step": step, "time/reduce_seconds": reduce_seconds * (100 if step == 1 else 1)}
        for step in range(1, 6)
    ]
    lines[-1] |= {
        "compression/total_error": error,
        "comm/link_bytes_sent_total": sent,
        "test/accuracy": quality,
    }
    return lines


def write_study(folder: Path, name: str = "net", seeds: tuple[int, ...] = SEEDS) -> None:
    for seed in seeds:
        plain = records(0.001, 0.0, 1e6, PLAIN[seed])
        write_run(folder, compressor="none", name=f"{name}-none", seed=seed, records=plain)
    cells = [
        (scheme, shared, scope, lost, density, seed)
        for scheme, shared in SCHEMES
        for scope in ("layer", "global")
        for lost in (False, True)
        for density in DENSITIES
        for seed in seeds
    ]
    for scheme, shared, scope, lost, density, seed in cells:
        sent = 1e6 * density * (1 if shared else 2)
        error = (2.0 if lost else 1.0) / density
        seconds = 0.003 if scheme == "top_k" else 0.002 if scheme == "random_k" else 0.001
        write_run(
            folder,
            compressor=scheme,
            name=f"{name}-{scheme}",
            seed=seed,
            settings={"density": density} | ({} if shared is None else {"shared_coordinates": shared}),
            feedback=NO_FEEDBACK | {"scale": None} if lost else FEEDBACK,
            scope=scope,
            records=records(seconds, error, sent, accuracy(scheme, shared, scope, lost, density, seed)),
        )


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    write_study(folder)
    return folder


def rows(text: str, heading: str) -> list[dict[str, str]]:
    """The table below the heading that begins with ``heading``."""
    lines = text.split(f"### {heading}")[1].split("###")[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [dict(zip(table[0], row, strict=True)) for row in table[2:]]


def test_cells_beside_plain_sgd(output: Path) -> None:
    (network,) = networks(read_runs([output]))
    assert len(network.combinations) == 5 * 2 * 2 * 2 and network.densities == [0.1, 0.01]
    assert list(network.combinations)[:2] == [
        Combination("random_k", "shared", "layer", "on", d) for d in DENSITIES
    ]
    cell = Combination("random_block", "own", "global", "off", 0.01)
    ours = [accuracy("random_block", False, "global", True, 0.01, seed) for seed in SEEDS]
    assert network.difference(cell) == paired_difference(ours, PLAIN)
    assert network.reduce.values(list(network.combinations[cell].values())) == [0.001] * 3  # the median


def test_effects_by_hand(output: Path) -> None:
    (network,) = networks(read_runs([output]))
    feedback, block, best, own, scope, *without = CHANGES
    assert len(without) == 4
    assert [len(pairs(network, change, 0.1)) for change in CHANGES] == [10, 4, 2, 4, 5, 4, 2, 4, 5]
    assert effect(network, feedback, 0.1).difference.mean == pytest.approx(-0.2)
    assert effect(network, feedback, 0.01).difference[1:] == (None, None, 3)  # the same in every seed
    assert effect(network, block, 0.1).difference.mean == pytest.approx(-0.01)
    assert effect(network, best, 0.1).difference.mean == pytest.approx(
        0.045
    )  # of which 0.03 for own coordinates
    assert effect(network, own, 0.1).difference.mean == pytest.approx(-0.03)
    by_seed = [-0.005, -0.010, -0.015]
    half = 4.302652729911275 * statistics.stdev(by_seed) / math.sqrt(3)
    assert effect(network, scope, 0.1).difference[:3] == pytest.approx((-0.01, -0.01 - half, -0.01 + half))
    assert ratio(network, feedback, network.total_error) == pytest.approx(2)
    assert ratio(network, own, network.megabytes) == pytest.approx(2)
    assert ratio(network, block, network.reduce) == pytest.approx(0.5)


def test_a_seed_that_a_cell_lacks_does_not_count(tmp_path: Path) -> None:
    write_study(tmp_path)
    runs = read_runs([tmp_path])
    (gone,) = [
        run
        for run in runs
        if (run.compressor, run.seed, run.config["scope"]) == ("top_k", 2, "global")
        and run.config["compressor"]["density"] == 0.1
        and "no feedback" not in run.method
    ]
    (network,) = networks([run for run in runs if run is not gone])
    scope = CHANGES[4]
    assert effect(network, scope, 0.1).difference.mean == pytest.approx(-0.0075)  # seeds 0 and 1
    assert effect(network, scope, 0.01).difference.mean == pytest.approx(-0.01)


def test_a_language_model_is_judged_by_its_loss(tmp_path: Path) -> None:
    for seed in SEEDS:
        for compressor, loss in (("none", 5.0), ("random_k", 5.0 + seed)):
            last = {"step": 1, "time/reduce_seconds": 0.1, "compression/total_error": 1.0}
            last |= {"comm/link_bytes_sent_total": 1.0, "test/perplexity": math.exp(loss), "test/loss": loss}
            write_run(tmp_path, compressor=compressor, name=f"lm-{compressor}", seed=seed, records=[last])
    (network,) = networks(read_runs([tmp_path]))
    assert network.quality.label == "test loss, nats per token"
    assert network.difference(next(iter(network.combinations)))[0] == pytest.approx(1)


def test_page_says_what_the_folders_say(output: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    table = tmp_path / "three.md"
    assert main([str(output), "--table", str(table), "--figures", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "net.png"),
        str(table),
    ]
    text = table.read_text()
    assert "4 workers of 32 samples, 1,000 parameters, 5 steps. Plain SGD (seeds 0, 1, 2)" in text
    every = rows(text, "Every cell")
    assert len(every) == 40
    row = next(row for row in every if row["scheme"] == "random block" and row["density, %"] == "1")
    assert [row[key] for key in ("coordinates", "scope", "feedback", "seeds")] == [
        "shared",
        "layer",
        "on",
        "0, 1, 2",
    ]
    assert row["test accuracy, %"] == "94.33 ± 1.53"
    assert row["minus plain SGD's"] == "-3.00"
    assert row["total error"] == "100"
    assert row["MB that left a worker"] == "0.0100"
    assert row["compression and communication, ms a step"] == "1.00"
    far = rows(text, "Differences from plain SGD")
    assert len(far) == 10 and far[-1]["density 10 %"] == "-1.50 [-2.74, -0.26]"
    changes = rows(text, "What each parameter changes")
    assert [changes[0][key] for key in ("feedback", "at 10 %", "at 1 %", "total error, times")] == [
        "both",
        "-20.00",
        "-40.00",
        "2.00",
    ]


@pytest.mark.slow
def test_page_and_figure_are_rebuilt_byte_for_byte(output: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        main([str(output), "--table", str(tmp_path / name / "three.md"), "--figures", str(tmp_path / name)])
    for name in ("three.md", "net.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_figure_holds_the_means(tmp_path: Path) -> None:
    write_study(tmp_path, "net")
    (network,) = networks(read_runs([tmp_path]))
    figure = draw(network)
    assert len(figure.axes) == 5 * 2
    panel = figure.axes[0]  # quality per layer, with feedback
    (drawn,) = [line for line in panel.lines if line.get_label() == "random block, own coordinates"]
    expected = [
        100 * statistics.mean(accuracy("random_block", False, "layer", False, d, s) for s in SEEDS)
        for d in DENSITIES
    ]
    assert drawn.get_ydata() == pytest.approx(expected)
    across = [list(line.get_ydata()) for line in panel.lines if line.get_color() == "#000000"]
    assert across == [pytest.approx([100 * statistics.mean(PLAIN)] * 2)]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "no finished run in"),
        ([{"compressor": "top_k"}], "must include compressor=none"),
        ([{"compressor": "none"}], "must include one of random_k"),
        ([{"compressor": "none"}, {"compressor": "hard_threshold"}], "must be of none, random_block"),
        (
            [{"compressor": c, "workers": w, "name": f"a-{c}"} for c in ("none", "top_k") for w in (2, 4)],
            "must differ in method, scope and seed alone",
        ),
    ],
)
def test_runs_of_something_else_are_one_line(
    runs: list[dict], said: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for settings in runs:
        write_run(tmp_path, **settings)
    assert main([str(tmp_path), "--figures", str(tmp_path / "figures")]) == 1
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: ") and said in last
