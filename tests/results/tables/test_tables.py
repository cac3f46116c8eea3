"""Comparison tables: hand-computed numbers, the baseline, notes on missing numbers, formats."""

import csv
import io
import math
import statistics
from pathlib import Path

import pytest
from results_commands import command_of_results
from run_folders import NUM_PARAMETERS, write_run

from results.compare.comparison import compare
from results.read.folders import compared_across, read_runs
from results.tables.formats import comma_separated, latex, markdown

main = command_of_results("table")

SEEDS = (0, 1, 2)
ACCURACY = {"none": (0.90, 0.92, 0.97), "top_k": (0.88, 0.91, 0.95), "hard_threshold": (0.91, 0.92, 0.96)}
SENT = {"none": 120_000.0, "top_k": 2400.0, "hard_threshold": 1200.0}


def write_methods(folder: Path, methods: dict = ACCURACY, **config: object) -> None:
    for method, accuracies in methods.items():
        for seed, accuracy in enumerate(accuracies):
            summary = {"test/accuracy": accuracy, "comm/link_bytes_sent_total": SENT[method]}
            summary["comm/compression_ratio"] = SENT["none"] / SENT[method]
            write_run(folder, compressor=method, seed=seed, summary=summary, **config)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    write_methods(tmp_path / "runs")
    return tmp_path / "runs"


def cells(text: str, method: str) -> dict[str, str]:
    """The cells of a method's row in a Markdown table, by column."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    head = next(line for line in lines if line[0] == "method")
    row = next(line for line in lines if line[0].startswith(f"`{method}"))
    return dict(zip(head, row, strict=True))


def test_a_row_says_what_the_summaries_say(output: Path) -> None:
    text = markdown(compare(read_runs([output])))
    assert f"## mlp-digits\n\n4 workers, {NUM_PARAMETERS:,} parameters, 30 steps, name digits." in text
    row = cells(text, "top_k")
    assert row["seeds"] == "0, 1, 2"
    percent = [100 * value for value in ACCURACY["top_k"]]
    assert row["test accuracy, %"] == f"{statistics.mean(percent):.2f} ± {statistics.stdev(percent):.2f}"
    assert row["average density, %"] == "1.00"  # the same in every seed
    assert row["total error"] == "60.0"
    assert row["MB that left a worker"] == "0.00240"
    assert row["compression ratio"] == "50.0"
    assert "- other numbers without ±: the same in every seed\n" in text
    assert row["MB handed over"] == "0.00240"
    assert "compression ratio: bytes that would leave a worker without compression" in text


def test_regret_has_a_column_where_it_was_recorded(output: Path, tmp_path: Path) -> None:
    assert "regret, %" not in markdown(compare(read_runs([output])))
    write_run(tmp_path / "more", compressor="top_k", seed=0, summary={"compression/regret": 0.25})
    assert cells(markdown(compare(read_runs([tmp_path / "more"]))), "top_k")["regret, %"] == "25.0"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"top_k": 1310.0}, ""),  # 9 % more than the threshold
        (
            {"top_k": 1330.0},
            "from 0.0012 MB (hard_threshold, lambda 0.01) to 0.00133 MB (top_k, density 0.01)",
        ),
        ({"top_k": 1200.0, "none": 5000.0}, ""),  # dense training does not count
    ],
)
def test_unequal_bytes_are_said(
    sent: dict, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method, number in sent.items():
        monkeypatch.setitem(SENT, method, number)
    write_methods(tmp_path / "runs")
    (section,) = compare(read_runs([tmp_path / "runs"]))
    found = [note for note in section.notes if "differ by more than 10%" in note]
    assert [note.split("equal bytes: ")[1] for note in found] == [said] * bool(said)


def test_other_data_and_other_lengths_are_said(tmp_path: Path) -> None:
    """Equal settings: a package brings other files, and ``trainer.steps`` counts exchanges."""
    one = write_run(tmp_path, summary={"data": {"name": "docs", "words": 7}, "epoch": 1.0})
    other = write_run(
        tmp_path, compressor="none", summary={"data": {"name": "docs", "words": 8}, "epoch": 8.0}
    )
    (section,) = compare(read_runs([tmp_path]))
    assert any(f"words is 8 in {other} and 7 in {one}" in note for note in section.notes)
    assert any("for 1 epochs (top_k, density 0.01) to 8 epochs (none)" in note for note in section.notes)


def test_the_difference_is_paired(output: Path) -> None:
    (section,) = compare(read_runs([output]))
    row = next(row for row in section.rows if row.method.startswith("top_k"))
    differences = [a - b for a, b in zip(ACCURACY["top_k"], ACCURACY["none"], strict=True)]
    half = 4.302652729911275 * statistics.stdev(differences) / math.sqrt(3)
    mean = statistics.mean(differences)
    assert row.common == SEEDS and row.finding is not None
    assert row.finding.difference[:2] == pytest.approx((mean, mean - half))
    shown = cells(markdown([section]), "top_k")["test accuracy, %, minus that of none"]
    interval = f"{100 * mean:+.2f} [{100 * (mean - half):+.2f}, {100 * (mean + half):+.2f}]"
    assert shown == f"{interval}; {row.finding.word()}"
    assert cells(markdown([section]), "none")["test accuracy, %, minus that of none"] == "-"


def test_only_common_seeds_are_compared(tmp_path: Path) -> None:
    write_methods(tmp_path, {"none": (0.9, 0.8), "top_k": (0.85,)})
    write_run(tmp_path, compressor="hard_threshold", seed=7)
    text = markdown(compare(read_runs([tmp_path])))
    name = "test accuracy, %, minus that of none"
    assert cells(text, "top_k")[name] == "-5.00 (one seed)"
    assert cells(text, "top_k")["seeds"] == "0 (one seed)"
    assert cells(text, "hard_threshold")[name] == "no seed with both numbers"
    assert "one seed only of hard_threshold, lambda 0.01; top_k, density 0.01" in text


def test_a_seed_that_diverged_leaves_no_verdict(tmp_path: Path) -> None:
    """Infinite numbers are not in a summary; the mean of the other seeds says nothing of the method."""
    write_methods(tmp_path, {"none": (0.9, 0.91, 0.92, 0.93), "top_k": (0.8, 0.82, 0.81)})
    write_run(tmp_path, compressor="top_k", seed=3, records=[{"step": 1, "epoch": 1.0, "train/loss": 700.0}])
    text = markdown(compare(read_runs([tmp_path])))
    assert cells(text, "top_k")["test accuracy, %, minus that of none"] == "-10.00, over seeds 0, 1, 2"
    assert "top_k, density 0.01 has no test accuracy, % with seed 3, where it was not finite" in text


def test_without_none_top_k_is_the_baseline_and_ratios_stay(tmp_path: Path) -> None:
    write_methods(tmp_path, {name: ACCURACY[name] for name in ("top_k", "hard_threshold")})
    text = markdown(compare(read_runs([tmp_path])))
    row = cells(text, "hard_threshold")
    assert "test accuracy, %, minus that of top_k, density 0.01" in row
    assert row["compression ratio"] == "100"


def test_several_candidates_are_no_baseline(tmp_path: Path) -> None:
    for density in (0.01, 0.1):
        for seed in SEEDS:
            write_run(tmp_path, seed=seed, settings={"density": density})
    runs = read_runs([tmp_path])
    text = markdown(compare(runs))
    assert "2 rows are top_k: --baseline chooses one" in text and "minus that" not in text
    assert "minus that of top_k, density 0.1" in markdown(compare(runs, "top_k, density 0.1"))
    with pytest.raises(ValueError, match="no run of the baseline 'random_k'; there are 'top_k, density"):
        compare(runs, "random_k")


def test_settings_of_one_subject_are_told_apart_and_in_order(tmp_path: Path) -> None:
    for workers in (16, 2, 8):
        write_run(tmp_path, workers=workers)
    write_run(tmp_path, name="another-top_k", workers=2, scope="global")
    titles = [section.title for section in compare(read_runs([tmp_path]))]
    assert titles == ["another", *(f"mlp-digits, workers {workers}" for workers in (2, 8, 16))]


def test_facts_of_runs_compared_across_a_setting_are_those_of_all(tmp_path: Path) -> None:
    for workers, steps in ((2, 60), (4, 30)):
        data = {"name": "digits", "rows_per_worker": 10 * steps}
        write_run(tmp_path, workers=workers, summary={"step": steps, "data": data})
    text = markdown(compare(compared_across(read_runs([tmp_path]), "workers")))
    assert f"\n\n{NUM_PARAMETERS:,} parameters, 30 to 60 steps, name digits.\n" in text


def test_versions_of_the_code_are_marked(output: Path) -> None:
    write_run(output, compressor="random_k", seed=0, commit="b" * 40, modified=True)
    text = markdown(compare(read_runs([output])))
    assert cells(text, "random_k")["code"] == r"bbbbbbbbbb\*"
    assert cells(text, "top_k")["code"] == "aaaaaaaaaa"
    assert r"runs of 2 versions of the code (\*: modified): aaaaaaaaaa (9), bbbbbbbbbb\* (1)" in text


def test_a_table_in_the_terminal_warns_of_modified_code_and_a_file_refuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write_run(tmp_path, modified=True)
    assert main([str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert "(modified)" in shown.out and "warning: mlp-digits: runs of modified code" in shown.err
    for ending in ("md", "csv"):
        assert main([str(tmp_path), "--format", ending, "--to", str(tmp_path / "page")]) == 1
        assert "--allow-modified" in capsys.readouterr().err and not (tmp_path / f"page.{ending}").exists()


def test_dense_methods_have_no_column_of_density(tmp_path: Path) -> None:
    for compressor in ("none", "top_k"):
        write_run(tmp_path, compressor=compressor, summary={"compression/density_mean": 1.0})
    assert "average density" not in markdown(compare(read_runs([tmp_path])))


def test_a_title_names_no_default(tmp_path: Path) -> None:
    for precision in ("fp32", "bf16"):
        write_run(tmp_path, trainer={"precision": precision})
    titles = [section.title for section in compare(read_runs([tmp_path]))]
    assert titles == ["mlp-digits, trainer.precision bf16", "mlp-digits"]


def test_two_seeds_have_no_interval(tmp_path: Path) -> None:
    write_methods(tmp_path, {"none": (0.9, 0.8), "top_k": (0.85, 0.7)})
    sections = compare(read_runs([tmp_path]))
    text = markdown(sections)
    row = cells(text, "top_k")
    assert (row["seeds"], row["test accuracy, %"]) == ("0, 1 (2 seeds)", "77.50 (2 seeds)")
    assert row["test accuracy, %, minus that of none"] == "-7.50 (2 seeds)"
    assert "- no ± and no interval, of fewer than three seeds: none; top_k, density 0.01\n" in text
    written = list(csv.DictReader(io.StringIO(comma_separated(sections))))
    assert {row["test/accuracy std"] + row["difference low"] for row in written} == {""}
    assert "±" not in "".join(line for line in text.splitlines() if line.startswith("|"))


def test_what_a_run_lacks_is_a_dash(output: Path) -> None:
    lacks = {"test/accuracy": None, "layers": None, "comm/compression_ratio": None}
    write_run(output, compressor="random_k", summary=lacks)
    row = cells(markdown(compare(read_runs([output]))), "random_k")
    assert (row["test accuracy, %"], row["compression ratio"]) == ("-", "-")
    assert row["test accuracy, %, minus that of none"] == "no seed with both numbers"


def test_a_diverged_run_is_not_hidden(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_methods(tmp_path, {"none": (0.9, 0.8, 0.7), "top_k": (0.85, math.nan, 0.8)})
    row = cells(markdown(compare(read_runs([tmp_path]))), "top_k")
    assert row["seeds"] == "0, 2 (2 seeds)" and row["test accuracy, %"] == "82.50 (2 seeds)"
    said = capsys.readouterr().err
    assert said.startswith("left out ") and "a number that is not finite" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("total_errors", "shown"),
    [
        ((15727.0, 15000.0, 15363.5), "15364 ± 364"),
        ((0.9999, 0.9999, 0.9999), "1.00"),
        ((2542.1, 2542.4, 2542.25), "2542.2 ± 0.2"),
        ((1.25e-12, 1.5e-12, 1.375e-12), "1.38e-12 ± 1.25e-13"),
        ((0.0, 0.0, 0.0), "0"),
        ((3e9, 3e9, 3e9), "3.00e+09"),
    ],
)
def test_numbers_are_shown_with_the_digits_that_count(
    tmp_path: Path, total_errors: tuple[float, ...], shown: str
) -> None:
    for seed, error in enumerate(total_errors):
        write_run(tmp_path, seed=seed, summary={"compression/total_error": error})
    assert cells(markdown(compare(read_runs([tmp_path]))), "top_k")["total error"] == shown


def test_a_value_that_stands_for_any_speed_is_in_no_mean(tmp_path: Path) -> None:
    for seed, speed in enumerate((7e9, 1e15, 8e9)):
        write_run(tmp_path, seed=seed, summary={"comm/break_even_bits_per_second": speed})
    (row,) = csv.DictReader(io.StringIO(comma_separated(compare(read_runs([tmp_path])))))
    found = {key: value for key, value in row.items() if key.startswith("comm/break_even") and value}
    assert found == {
        "comm/break_even_bits_per_second lowest": "7000000000.0",
        "comm/break_even_bits_per_second highest": "1000000000000000.0",
    }


def test_command_writes_all_formats_and_the_same_bytes_twice(output: Path, tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        assert main([str(output), "--format", "all", "--to", str(tmp_path / name)]) == 0
        made.append([(tmp_path / f"{name}.{kind}").read_bytes() for kind in ("md", "csv", "tex")])
    assert made[0] == made[1]
    rows = list(csv.DictReader(io.StringIO(made[0][1].decode())))
    top_k = next(row for row in rows if row["compressor"] == "top_k")
    assert float(top_k["test/accuracy mean"]) == pytest.approx(statistics.mean(ACCURACY["top_k"]), rel=1e-15)
    assert float(top_k["test/accuracy std"]) == statistics.stdev(ACCURACY["top_k"])
    assert (top_k["baseline"], top_k["difference seeds"], top_k["verdict"]) == (
        "none",
        "0 1 2",
        "not comparable",
    )
    assert float(top_k["difference low"]) < float(top_k["difference"]) < float(top_k["difference high"])


def test_latex_is_escaped_and_balanced(output: Path) -> None:
    write_run(output, name="50%_of & more-top_k", workers=2)
    text = latex(compare(read_runs([output])))
    assert r"hard\_threshold, lambda 0.01" in text and r"50\%\_of \& more" in text
    assert r"91.33 $\pm$ 3.51" in text and r"test accuracy, \%" in text
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert text.isascii()
    bodies = [line for line in text.splitlines() if line.endswith(r"\\")]
    columns = {line.replace(r"\&", "").count("&") for line in bodies}
    assert len(bodies) == 6 and len(columns) == 2  # one table with a difference column, one without
