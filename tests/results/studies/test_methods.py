"""The page, learning rates and figure of the study of all methods, from small run folders."""

import re
from pathlib import Path

import pytest
import yaml
from command_line import ROOT
from configs import resolved
from results_commands import command_of_results
from run_folders import write_run

from results.compare.measures import LINK_BYTES
from results.read.folders import read_runs
from results.read.run import Run
from results.studies.methods import tuning
from results.studies.methods.page import page
from results.studies.methods.tasks import TASKS
from results.studies.methods.tuning import chosen
from trainers.config.checks import check
from trainers.files import files as run_files

main = command_of_results("study", "methods")
METHODS = sorted(path.stem for path in (ROOT / "conf/compressor").glob("*.yaml"))


def write(
    folder: Path, method: str, accuracy: float, *, rate: float, seed: int, task: str = "resnet20"
) -> Path:
    return write_run(
        folder,
        name=f"methods_{task}-{method}",
        compressor="none" if method == "none" else "top_k",
        seed=seed,
        budget={"method": method},
        optimizer={"lr": rate},
        summary={"test/accuracy": accuracy, LINK_BYTES: 2e6 if method == "none" else 1e6},
    )


def tried(folder: Path) -> list[Run]:
    """Runs of two methods at three learning rates; ef21's best rate is the highest."""
    for rate, dense, ef21 in ((0.01, 0.8, 0.3), (0.03, 0.9, 0.4), (0.1, 0.9, 0.5)):
        write(folder, "none", dense, rate=rate, seed=3)
        write(folder, "ef21", ef21, rate=rate, seed=3)
    return read_runs([folder])


def compared(folder: Path, **accuracies: float) -> list[Run]:
    for method, accuracy in accuracies.items():
        for seed in range(3):
            write(folder, method, accuracy + seed / 100, rate=0.03 if method == "none" else 0.1, seed=seed)
    return read_runs([folder])


def rows(text: str, method: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith(f"| `{method}` |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_best_rate_is_chosen_and_of_equal_ones_the_lowest(tmp_path: Path) -> None:
    assert chosen(tried(tmp_path)) == {"resnet20": {"ef21": 0.1, "none": 0.03}}


def test_rates_of_several_seeds_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "none", 0.9, rate=0.1, seed=4)
    with pytest.raises(ValueError, match="by runs of one seed, got 3, 4"):
        chosen(tried(tmp_path))


def test_tuning_writes_the_rates_that_sweeps_read_and_ends_where_one_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / tuning.RATES
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\nbudget:\n  rates:\n    resnet20: {none: 1.0, qsgd: 0.5}\n")
    monkeypatch.setattr(tuning, "ROOT", tmp_path)
    tried(tmp_path / "outputs/methods_rates")
    words = ["--tune", "--root", str(tmp_path / "outputs")]
    assert main(words) == 1
    assert "the choices of make methods have changed: commit them" in capsys.readouterr().err
    assert file.read_text().startswith("# @package _global_\n")
    rates = {"resnet20": {"ef21": 0.1, "none": 0.03, "qsgd": 0.5}}
    assert yaml.safe_load(file.read_text()) == {"budget": {"rates": rates}}
    assert main(words) == 0


def test_the_page_has_a_row_a_method_and_marks_rates_at_an_end(tmp_path: Path) -> None:
    text = page(compared(tmp_path / "a", none=0.9, ef21=0.5), tried(tmp_path / "b"))
    assert rows(text, "none")[0] == ["`none`", "91.00 ± 1.00", "2.00", "0.03"]
    assert rows(text, "ef21")[0] == ["`ef21`", "51.00 ± 1.00", "1.00", "0.1\\*"]
    assert "four learning rates with seed 3" in " ".join(text.split())
    assert rows(text, "qsgd") == [["`qsgd`", "resnet20", "not run"]]


def test_a_method_that_does_not_train_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, rates = compared(tmp_path / "a", none=0.9, ef21=0.1), tried(tmp_path / "b")
    failed = write(tmp_path / "a", "strom", 0.1, rate=0.3, seed=1)
    read = run_files.read_summary

    def summary(folder: Path) -> dict:
        error = {"status": "failed", "error": "step 7: the gradient is not finite"}
        return read(folder) | (error if folder == failed else {})

    monkeypatch.setattr(run_files, "read_summary", summary)
    text = page(runs, rates)
    (why,) = [row[2] for row in rows(text, "ef21") if row[1] == "resnet20"]
    quality, sent = why.split("; ")
    assert (
        quality == "test/accuracy 0.110 ± 0.010 at rate 0.1, not better than 20 %, twice as good as a guess"
    )
    assert sent == "1 % of the entries sent"
    assert [row[2] for row in rows(text, "strom")] == ["rate 0.3, seed 1: step 7: the gradient is not finite"]
    assert [row for row in rows(text, "none") if row[1] == "resnet20"] == []


def test_page_and_figure_are_written(tmp_path: Path) -> None:
    compared(tmp_path / "a", none=0.9, qsgd=0.5)
    tried(tmp_path / "b")
    words = [str(tmp_path / "a"), "--rates", str(tmp_path / "b"), "--table", str(tmp_path / "page.md")]
    assert main([*words, "--figures", str(tmp_path / "figures")]) == 0
    assert (tmp_path / "page.md").read_text().startswith("# Every method\n\n- Command: `make methods`\n")
    linked = re.findall(r"\((methods-\w+\.png)\)", (tmp_path / "page.md").read_text())
    assert linked == ["methods-quantised.png"]  # no other group has a method
    assert [path.name for path in (tmp_path / "figures").iterdir()] == linked


def test_a_task_calls_a_method_by_its_compressor_or_feedback() -> None:
    assert resolved("experiment=methods/resnet20", "compressor=dgc")["budget"]["method"] == "dgc"
    ef21 = resolved("+sweeps=methods/rates_madelon_ef21", "compressor=top_k", "feedback=ef21")
    assert (ef21["budget"]["method"], ef21["name"]) == ("ef21", "methods_madelon-ef21")


@pytest.mark.slow  # 0.3 s each; the config group's test composes all methods with the defaults
@pytest.mark.parametrize("experiment", ["quick", *(f"methods/{task}" for task in TASKS)])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_composes_and_is_valid(method: str, experiment: str) -> None:
    config = resolved(f"experiment={experiment}", f"compressor={method}")
    check(config)
    assert config["compressor"]["_target_"].startswith("compressors.")
