"""The CIFAR-10 study's page and figures, from small run folders."""

from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from results.compare.measures import LINK_BYTES
from results.figures.panels import NothingToDraw
from results.read.folders import read_runs
from results.studies.catalogue import load
from results.studies.cifar10.density import in_epoch
from results.studies.cifar10.figures import figures
from results.studies.cifar10.sections import SECTIONS, by_section, label_of, missing
from trainers.files import files as run_files

page = load("cifar10").page
COSINE = {"_target_": "trainers.schedules.schedules.Cosine", "peak": 10, "warmup_epochs": 1}
MATCHED = {"one_percent": 0.04, "tenth_percent": 0.2}
# Compressor, its settings and other settings, by section and label
PLACES: dict[str, dict[str, tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "main": {
        "none": ("none", {}, {}),
        "Top-k 1 %": ("top_k", {"density": 0.01}, {}),
        "Top-k 1 %, whole model": ("top_k", {"density": 0.01}, {"scope": "global"}),
        "Top-k 0.1 %": ("top_k", {"density": 0.001}, {}),
        "threshold, bytes of Top-k 1 %": ("hard_threshold", {"threshold": 0.04}, {}),
        "threshold, bytes of Top-k 0.1 %, whole model": (
            "hard_threshold",
            {"threshold": 0.2},
            {"scope": "global"},
        ),
        "threshold, rule for 0.1 %": ("hard_threshold", {"threshold": None, "density": 0.001}, {}),
    },
    "five seeds": {
        "Top-k 1 %": ("top_k", {"density": 0.01}, {"trainer": {"precision": "fp32"}}),
        "threshold, bytes of Top-k 1 %": (
            "hard_threshold",
            {"threshold": 0.04},
            {"trainer": {"precision": "fp32"}},
        ),
    },
    "precision": {"none": ("none", {}, {"trainer": {"precision": "fp32"}})},
    "100 epochs": {"none": ("none", {}, {"trainer": {"epochs": 100, "precision": "fp32"}})},
}
ACCURACIES = {"none": 0.84, "Top-k 1 %": 0.82, "threshold, bytes of Top-k 1 %": 0.83}
BYTES = {
    "none": 100e6,
    "Top-k 1 %": 5e6,
    "Top-k 1 %, whole model": 7e6,
    "Top-k 0.1 %": 5e5,
}


def records(density: float, accuracy: float) -> list[dict[str, float]]:
    """Records of five epochs of ten steps; the first epoch sends 4 ``density``, the last 2 ``density``."""
    sent, lines = 0.0, []
    for step in range(1, 51):
        sent += density * {0: 4, 4: 2}.get((step - 1) // 10, 1)
        if step % 5 == 0:
            line = {"step": step, "epoch": step / 10, "train/loss": 1 / step, "train/learning_rate": 0.1}
            line |= {"compression/input_norm_squared": 4.0, "compression/error": 2.0}
            line |= {"compression/density": density, "compression/density_mean": sent / step}
            line |= {"compression/total_error": 2.0 * step, "test/accuracy": accuracy, "test/loss": 0.5}
            lines.append(line)
    return lines


def write(folder: Path, section: str, label: str, *, seed: int = 0, matched: object = MATCHED) -> Path:
    compressor, settings, config = PLACES[section][label]
    accuracy = ACCURACIES.get(label, 0.8) + (seed if label == "none" else seed**2) / 1000
    whole = {
        "workers": 8,
        "model": {"_target_": "models.resnet.resnet20"},
        "budget": {"matched": matched},
        "schedule": COSINE,
    } | config
    trainer = {"epochs": 5, "batch_size": 16, "precision": "bf16"} | config.get("trainer", {})
    density = settings.get("density") or 0.001
    return write_run(
        folder,
        name="cifar10",
        compressor=compressor,
        settings=settings,
        seed=seed,
        records=records(density, accuracy),
        summary={
            LINK_BYTES: BYTES.get(label, 5.2e6) + 1e5 * seed,
            "diagnostics/gap": 7.0,
            "compression/regret": None if compressor == "none" else 0.25,
        },
        **whole | {"trainer": trainer},
    )


def rows(text: str, label: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith(f"| {label} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_threshold_that_no_pilot_found_has_its_number(tmp_path: Path) -> None:
    write(tmp_path, "main", "threshold, bytes of Top-k 1 %", matched={"one_percent": "not found yet"})
    (run,) = read_runs([tmp_path])
    assert label_of(run) == "threshold 0.04"


def test_two_settings_are_no_row(tmp_path: Path) -> None:
    write(tmp_path, "main", "none")
    PLACES["main"]["other"] = ("none", {}, {"optimizer": {"lr": 0.5}})
    try:
        write(tmp_path, "main", "other")
    finally:
        del PLACES["main"]["other"]
    with pytest.raises(
        ValueError, match=r"would be one row, none, and differ: optimizer.lr 0.(1 and 0.5|5 and 0.1)$"
    ):
        by_section(read_runs([tmp_path]))


def test_densities_of_the_first_and_the_last_epoch_are_those_of_all_their_steps(tmp_path: Path) -> None:
    write(tmp_path, "main", "Top-k 1 %")
    (run,) = read_runs([tmp_path])
    assert in_epoch(run, 1) == pytest.approx(0.04) and in_epoch(run, -1) == pytest.approx(0.02)
    (short,) = read_runs([write_run(tmp_path / "short")])  # records at epochs 1 to 3 alone
    assert in_epoch(short, -1) == pytest.approx(0.01)
    (less,) = read_runs([write_run(tmp_path / "less", records=[{"step": 1, "epoch": 0.3}])])
    assert in_epoch(less, 1) is None


def test_what_has_not_run_says_so_and_is_in_no_word(tmp_path: Path) -> None:
    write(tmp_path, "main", "none")
    runs = read_runs([tmp_path])
    text = page(runs, [])
    number = sum(len(missing(section, methods)) for section, methods in by_section(runs).items())
    assert number == sum(map(len, SECTIONS.values())) - 1
    assert f"1 of the {number + 1} rows have a finished run." in text
    assert rows(text, "Top-k 1 %")[0][3] == rows(text, "Top-k 0.1 %")[0][3] == "no finished run"
    assert ".png" not in text and "## Comparisons" not in text and "84.00 (one seed)" in text


def test_runs_in_fp32_and_of_100_epochs_have_their_sections(tmp_path: Path) -> None:
    write(tmp_path, "precision", "none")
    write(tmp_path, "100 epochs", "none")
    for seed in range(3, 6):
        for label in PLACES["five seeds"]:
            write(tmp_path, "five seeds", label, seed=seed)
    runs = read_runs([tmp_path])
    assert {section: [*own] for section, own in by_section(runs).items() if own} == {
        section: [*PLACES[section]] for section in ("five seeds", "precision", "100 epochs")
    }
    text = page(runs, [])
    assert "## 100 epochs" in text and "accuracy in % of 84.00 (one seed) after" in text
    (look,) = rows(text, "five seeds: threshold, bytes of Top-k 1 % minus Top-k 1 %")
    assert look[1] == "primary"


def test_a_run_that_failed_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(2):
        write(tmp_path, "main", "none", seed=seed)
    runs = read_runs([tmp_path])
    assert "## Runs that failed\n\nNone.\n" in page(runs, [])
    failed, read = write(tmp_path, "main", "Top-k 1 %", seed=1), run_files.read_summary

    def summary(folder: Path) -> dict:
        error = {"status": "failed", "error": "step 7: the gradient is not finite"}
        return read(folder) | (error if folder == failed else {})

    monkeypatch.setattr(run_files, "read_summary", summary)
    assert "| main | Top-k 1 % | 1 | step 7: the gradient is not finite |" in page(runs, [])


def test_two_seeds_have_no_interval_and_no_word(tmp_path: Path) -> None:
    for seed in range(2):
        for label in ACCURACIES:
            write(tmp_path, "main", label, seed=seed)
    text = page(read_runs([tmp_path]), [])
    assert "82.05 (2 seeds)" in text and "## Comparisons" not in text


def test_a_figure_without_runs_says_so(tmp_path: Path) -> None:
    write(tmp_path, "precision", "none")
    for _, draw in figures(read_runs([tmp_path]), []):
        with pytest.raises(NothingToDraw):
            draw()
