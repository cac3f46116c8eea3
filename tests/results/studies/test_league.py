"""The league: the page of small run folders, ranks, and refused commands."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from knobs_here import entry_of
from results_commands import command_of_results
from run_folders import sign, write_run

from results.compare.measures import LINK_BYTES
from results.read.folders import finished_runs
from results.studies.league import options, scores, trials
from results.studies.league.empty_cells import reason_for_no_run
from results.studies.league.tasks import TASKS, TUNING_SEED
from results.studies.league.trials import Outcome, TrainingError, Trainings, Trial, trial_of
from trainers.files import files as run_files

main = command_of_results("study", "league")
SEEDS = range(5)


@pytest.fixture(autouse=True)
def seeds_of_madelon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "madelon", replace(TASKS["madelon"], seeds=len(SEEDS)))


def write(
    folder: Path,
    method: str,
    share: int | None,
    seed: int,
    sent: float,
    gap: float,
    lr: float = 3e-8,
    task: str = "madelon",
) -> Path:
    stand_in = {"ef_sign": "random_block", "powersgd": "random_k", "qsgd": "accordion"}.get(method, method)
    knob = None
    if share:
        knob = "compressor.rank=2" if method == "powersgd" else "budget.density=0.01"
    budget = {"method": method, "share": share, "knob": knob}
    records = [
        {
            "step": step,
            "train/loss": 1.0,
            "convex/suboptimality": gap * 100 / step,
            "time/gradient_seconds": 0.01,
            "time/update_seconds": 0.001,
            "time/reduce_seconds": 0.005,
            "time/communication_seconds": 0.001,
        }
        for step in (10, 50, 100)
    ]
    return write_run(
        folder / ("league" if seed in SEEDS else "league_tuning"),
        name=f"league_{task}-{method}",
        compressor=stand_in,
        seed=seed,
        budget=budget,
        optimizer={"lr": lr},
        workers=4,
        records=records,
        summary={LINK_BYTES: sent, "convex/suboptimality": gap, "compression/total_error": sent, "step": 100},
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for seed in (*SEEDS, TUNING_SEED):
        write(tmp_path, "none", None, seed, 1e8, 0.01)
        write(tmp_path, "top_k", 20, seed, 5e6, 0.02 + seed / 1e4)
        write(tmp_path, "ef_sign", None, seed, 1e8 / 32, 0.015)
    write(tmp_path, "powersgd", 20, TUNING_SEED, 1e8 / 4, 0.01)
    return tmp_path


def page_of(root: Path) -> str:
    path = root / "page.md"
    assert main(["--root", str(root), "--table", str(path), "--figures", str(root)]) == 0
    return path.read_text()


def test_the_data_beside_the_page_predict_its_times_and_repeat_its_runs(root: Path) -> None:
    (path,) = [
        folder / "environment.json"
        for folder in root.glob("league/*ef_sign/*")
        if run_files.read_config(folder)["seed"] == 0
    ]
    words = ["compressor=ef_sign", "budget.knob='a=1 b=2'", "diagnostics=[gap]", "seed=0", "output=/a"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"overrides": words}))
    page_of(root)
    data = json.loads((root / "page.json").read_text())
    (told,) = data["tasks"].values()
    (found,) = scores.task_runs(finished_runs([root / "league"]))
    for own, one in zip((found.dense, *found.settings), told["settings"], strict=True):
        link = data["latency_seconds"] * one["rounds"] + 8 * one["step_bytes"] / 1e9
        step = told["compute_seconds"] + one["compression_seconds"] + link
        expected = scores.seconds_to_quality(told["target"], found, own)[1]
        steps = one["steps_to_target"]
        assert (steps and steps * step) == (expected and pytest.approx(expected, rel=1e-3)), one["method"]
    assert [one["steps_to_target"] for one in told["settings"]] == [50, None, 100]
    (signs,) = (one for one in told["settings"] if one["method"] == "ef_sign")
    assert signs["quality"] == [0.015, 0.015, 0.015]
    assert signs["command"] == (
        "python run.py -m compressor=ef_sign \"budget.knob='a=1 b=2'\" 'diagnostics=[gap]' seed=0,1,2,3,4"
    )


def rows(text: str, method: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith(f"| `{method}` |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_ranks_methods_and_says_why_cells_are_empty(root: Path) -> None:
    text = page_of(root)
    overall, at_20, *empty = rows(text, "ef_sign")
    assert overall[1] == "0.50" and at_20[2].startswith("1.0 (1 to 1)")
    assert rows(text, "top_k")[1][2].startswith("2.0 (2 to 2)")
    assert at_20[-3:] != ["not reached"] * 3  # none has 0.02 after half of its steps, ef_sign by step 100
    assert empty == [["`ef_sign`", "madelon", "dense/100, dense/500", "sends dense/32 at least"]]
    assert rows(text, "powersgd")[-1][3] == "sends dense/4 at least with rank=2"
    assert rows(text, "dgc")[-1] == ["`dgc`", "madelon", "dense/20, dense/100, dense/500", "not run"]
    assert "15 trainings are compared, and 4 more" in text


def test_a_task_on_which_methods_are_still_to_be_trained_is_not_ranked_overall(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TASKS, "second", TASKS["madelon"])
    for seed in SEEDS:
        write(root, "none", None, seed, 2e7, 0.01, lr=1e-9, task="second")
        write(root, "top_k", 20, seed, 1e6, 0.02, lr=1e-9, task="second")
        write(root, "ef_sign", 20, seed, 1e6, 0.02, lr=1e-9, task="second")
    text = page_of(root)
    assert "Mean over tasks (madelon) of rank" in text
    assert "method has not been trained yet (second) are left out." in text
    assert "Not trained on second: `powersgd`." in text


def test_two_rows_are_judged_together_and_other_bytes_with_the_tuning_seed_are_said(root: Path) -> None:
    for seed in SEEDS:
        write(root, "hard_threshold", 20, seed, 4e6, 0.01 + seed / 1e3)
        write(root, "hard_threshold", 100, seed, 8e5, 0.01 + seed / 1e3, lr=1e-8)
        write(root, "top_k", 100, seed, 1e6, 0.02 + seed / 1e4, lr=1e-8)
    write(root, "hard_threshold", 20, TUNING_SEED, 5e6, 0.013)
    write(root, "hard_threshold", 100, TUNING_SEED, 8.1e5, 0.013, lr=1e-8)
    text = page_of(root).split("## Threshold and Top-k")[1].split("## madelon")[0]
    # t = 12.9 with 4 degrees of freedom: p = 0.00021, times 2
    assert text.count("| exploratory | -0.00820 [-0.00997, -0.00643] | lower | 0.00042 | - |") == 2
    words = " ".join(text.split())
    assert "sent 4 MB with the compared seeds, mean, and 5 MB with the tuning seed." in words
    assert "is 0.0120 ± 0.0016, and with the tuning seed 0.0130." in words
    assert words.count("with the compared seeds, mean") == 1


def test_the_page_names_settings_that_are_not_the_leagues(root: Path) -> None:
    """With ``--set`` the lengths in its texts may be others than those of its trainings."""
    (path,) = [
        path
        for path in root.glob("league/*top_k/*/environment.json")
        if run_files.read_config(path.parent)["seed"] == 0
    ]
    environment = json.loads(path.read_text())
    words = ["experiment=league/madelon", "seed=0", "budget.density=0.01", "trainer.steps=100", "data.root=x"]
    path.write_text(json.dumps(environment | {"overrides": words}))
    text = page_of(root)
    assert "**Settings that are not the league's: `trainer.steps=100` (1 of 19 trainings).**" in text


def test_the_page_says_why_a_task_excludes_a_method(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = replace(TASKS["madelon"], excluded={"dgc": "is not for this task"})
    monkeypatch.setitem(TASKS, "madelon", changed)
    assert rows(page_of(root), "dgc")[-1][3] == "is not for this task"


def test_a_method_that_fails_says_why() -> None:
    trial = Trial("madelon", "top_k", 20, "budget.density=0.01", 3e-8, TUNING_SEED)
    failed = Outcome(float("nan"), float("nan"), 0, 1.0, "the loss is nan")
    assert reason_for_no_run({trial: failed}, 1e8, 20, 3) == "fails at every rate: the loss is nan"
    assert reason_for_no_run({trial: Outcome(5e6, 0.1, 9, 1.0)}, 1e8, 20, 3) == "not finished"
    other = replace(trial, share=500)
    assert reason_for_no_run(
        {trial: Outcome(9e6, 0.1, 9, 1.0), other: Outcome(1e5, 0.1, 9, 1.0)}, 1e8, 20, 3
    ) == ("sends dense/11.1 at least in its pilots")
    more = {replace(trial, seed=seed): Outcome(8e6, 0.1, 9, 1.0) for seed in range(3)}
    more[trial] = Outcome(5e6, 0.1, 9, 1.0)
    assert reason_for_no_run(more, 1e8, 20, 3) == "sends dense/12.5 with the compared seeds"
    more[replace(trial, seed=1)] = failed
    assert reason_for_no_run(more, 1e8, 20, 3) == "fails with 1 of the 3 compared seeds: the loss is nan"
    del more[replace(trial, seed=1)]
    assert reason_for_no_run(more, 1e8, 20, 3) == "not finished"


@pytest.mark.parametrize("of_20", [4e5, 12e6])
def test_a_setting_for_another_budget_is_shown_if_it_sends_the_most_bytes(of_20: float, root: Path) -> None:
    """The setting for dense/20 sends less than dense/100, or more than dense/20."""
    for seed in SEEDS:
        write(root, "random_k", 20, seed, of_20, 0.01)
        write(root, "random_k", 100, seed, 1e6, 0.01, lr=1e-8)
    by_share = scores.task_runs(finished_runs([root / "league"]))[0].by_share
    shares = {share: by_share[share]["random_k"][0].config["budget"]["share"] for share in (20, 100)}
    assert shares == {20: 100, 100: 100}


def test_a_run_of_another_study_is_no_trial(root: Path) -> None:
    before = trials.ended_trials(root / "league")
    write_run(root / "league", name="league_other-top_k", seed=7)
    assert trials.ended_trials(root / "league") == before


def test_other_overrides_than_those_of_the_finished_run_are_refused(root: Path) -> None:
    folder = write(root, "top_k", 500, 0, 1e5, 0.1)
    trial = trial_of(run_files.read_config(folder))
    entry = entry_of("top_k")
    words = [*trial.overrides(entry, root), "trainer.precision=bf16", "device=cpu"]
    environment = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps(environment | {"overrides": words}))
    assert Trainings(root, ["trainer.precision=bf16"])(entry, trial).sent == 1e5
    with pytest.raises(ValueError, match=r"--set trainer\.precision=bf16, not nothing"):
        Trainings(root, ["checkpoint.every_steps=5"])(entry, trial)


@pytest.mark.parametrize(
    "key", ["optimizer.lr", "seed", "output", "budget.density", "compressor", "+feedback.x"]
)
def test_settings_that_the_league_chooses_are_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"--set must not set {key.lstrip('+')}, which the league chooses"):
        Trainings(tmp_path, ["workers=2", f"{key}=1"])


def test_every_setting_of_a_trial_is_one_that_the_league_chooses() -> None:
    """Knobs of several kinds, and methods without one."""
    for name in ("none", "top_k", "hard_threshold", "adacomp", "cocktail", "two_way", "powersgd", "dgc"):
        entry = entry_of(name)
        knob = entry.knob.overrides(1.0) if entry.knob else ""
        for seed in (0, TUNING_SEED):
            for word in Trial("cifar10", name, 20, knob, 0.1, seed).overrides(entry, Path("out")):
                key = word.partition("=")[0]
                is_own = key in trials.OWN_SETTINGS or key.partition(".")[0] in trials.OWN_GROUPS
                assert is_own or key == "tracker", key


def test_a_further_seed_of_a_method_changes_nothing(root: Path) -> None:
    before = rows(page_of(root), "top_k")
    write(root, "top_k", 20, len(SEEDS), 5e6, 0.5)
    assert rows(page_of(root), "top_k") == before


@pytest.mark.parametrize("missing", ["run", "quality"])
def test_a_method_without_all_seeds_is_left_out(missing: str, root: Path) -> None:
    """The other methods keep their ranks in every seed."""
    folder = [write(root, "qsgd", 20, seed, 4e6, 0.001) for seed in (*SEEDS, TUNING_SEED)][1]
    if missing == "run":
        shutil.rmtree(folder)
    else:
        summary = json.loads((folder / "summary.json").read_text())
        del summary["convex/suboptimality"]
        sign(folder, summary)
    text = page_of(root)
    why = {"run": "not finished", "quality": "fails with 1 of the 5 compared seeds: "}[missing]
    first = rows(text, "qsgd")[0]
    assert first[:3] == ["`qsgd`", "madelon", "dense/20"] and first[3].startswith(why)  # an empty cell
    assert rows(text, "top_k")[1][2].startswith("2.0 (2 to 2)")


def test_a_task_without_a_complete_setting_gets_no_page(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(TASKS, "madelon", replace(TASKS["madelon"], seeds=len(SEEDS) + 1))
    assert main(["--root", str(root), "--table", str(root / "page.md"), "--figures", str(root)]) == 1
    assert f"error: madelon: no setting has all {len(SEEDS) + 1} seeds" in capsys.readouterr().err
    assert not (root / "page.md").exists()


def test_uncommitted_code_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "is_modified", lambda _: True)
    assert main(["--add", "compressor=top_k", "--root", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the page has runs of committed code only: commit your changes first")


def test_an_unknown_method_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(options, "is_modified", lambda _: True)
    assert main(["--add", "compressor=topk", "--root", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: Could not find 'compressor/topk'; did you mean compressor=top_k? There")


@pytest.mark.slow
def test_a_refusal_of_run_py_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--add", "compressor=top_k", "--task", "madelon", "--set", "data.root=/nothing"]
    options += ["--allow-modified"]
    assert main([*options, "--root", str(tmp_path), "--jobs", "1"]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and "/nothing" in line


def test_a_training_that_diverges_fails_alone(tmp_path: Path) -> None:
    """run.py writes a failed summary and prints no run folder."""

    def run_py(command: list[str], *_: Any) -> SimpleNamespace:
        if f"seed={TUNING_SEED}" in command:
            write_run(
                tmp_path / "league_tuning",
                name="league_madelon-top_k",
                seed=TUNING_SEED,
                budget={"method": "top_k", "share": 20, "knob": "budget.density=0.01"},
                optimizer={"lr": 1e-8},
                summary={"status": "failed", "error": "the gradient is not finite"},
            )
        return SimpleNamespace(returncode=1, stdout="", stderr="error: the gradient is not finite")

    lines: list[str] = []
    train = Trainings(tmp_path, report=lines.append, commands=SimpleNamespace(run_py=run_py))
    trial = Trial("madelon", "top_k", 20, "budget.density=0.01", 1e-8, TUNING_SEED)
    with pytest.raises(TrainingError, match="the gradient is not finite"):
        train(entry_of("top_k"), trial)
    with pytest.raises(ValueError, match="the gradient is not finite"):  # refused before it began
        train(entry_of("top_k"), replace(trial, seed=0))
    assert len(lines) == 1 and "not finite" in lines[0]


def test_equal_qualities_share_a_rank() -> None:
    def of(quality: float) -> Any:
        return {0: SimpleNamespace(summary={"test/accuracy": quality})}

    methods = {"a": of(0.5), "b": of(0.7), "c": of(0.5), "d": of(0.1)}
    assert scores.ranks("cifar10", methods) == {"a": [2.5], "b": [1.0], "c": [2.5], "d": [4.0]}


def test_predicted_times_need_dense_training_that_computes_and_reduces_in_turn(root: Path) -> None:
    found = scores.task_runs(finished_runs([root / "league"]))[0]
    own = found.by_share[20]["top_k"]
    assert None not in scores.seconds_to_quality(0.05, found, own)
    for run in found.dense.values():
        run.environment["processes"] = run.workers
    with pytest.raises(ValueError, match="compute is not known: all runs may overlap it with the reduction"):
        scores.seconds_to_quality(0.05, found, own)
