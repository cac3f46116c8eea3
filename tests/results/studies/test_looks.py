"""The comparisons of a study's page: kinds, equal runs, margins."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from run_folders import write_run

from results.compare.measures import Measure
from results.read.folders import read_runs
from results.studies.catalogue import STUDIES
from results.studies.kit import PAGES, ROOT, Seeds
from results.studies.looks import comparisons, judged, looks

ACCURACY = Measure.recorded("test/accuracy", "test accuracy, %", 100, 2)
ACCURACIES = {  # of three seeds; minus none: -9.2, -6.7 and -7.2, -0.1 to 0.2, 1
    "none": (0.84, 0.84, 0.84),
    "layers": (0.748, 0.773, 0.768),
    "whole": (0.748, 0.773, 0.768),
    "other": (0.748, 0.773, 0.768),
    "near": (0.839, 0.841, 0.842),
}
ERRORS = {"other": 7.0}  # its runs are others, with the same accuracy
TOLD: dict[str, Any] = {
    "methods": dict.fromkeys(ACCURACIES),
    "primary": [["near", "none"]],
    "comparisons": [
        ["layers", "none"],
        ["whole", "none"],
        ["near", "none"],
        ["layers", "near"],
        ["other", "none"],
    ],
    "margin": {"test/accuracy": "1 point"},
}


@pytest.fixture
def methods(tmp_path: Path) -> dict[str, Seeds]:
    found: dict[str, Seeds] = {}
    for label, values in ACCURACIES.items():
        for seed, accuracy in enumerate(values):
            summary = {"test/accuracy": accuracy, "compression/total_error": ERRORS.get(label, 3.0)}
            write_run(tmp_path / label, seed=seed, summary=summary)
        found[label] = {run.seed: run for run in read_runs([tmp_path / label])}
    return found


def test_primary_comparisons_are_judged_by_themselves_and_equal_runs_once(methods: dict[str, Seeds]) -> None:
    found = looks(TOLD, methods, ACCURACY)
    assert [(each.kind, each.one, each.other) for each in found] == [
        ("primary", "near", "none"),
        ("exploratory", "layers", "none"),
        ("exploratory", "layers", "near"),
        ("exploratory", "other", "none"),
    ]
    assert [each.finding.together for each in found if each.finding] == [1, 3, 3, 3]
    # t = 10.1 with 2 degrees of freedom: p = 0.0097, times 2; raised to that of layers minus near
    assert found[1].cells == "exploratory | -7.70 [-10.99, -4.41] | lower | 0.023 | not shown"
    text = comparisons(found)
    cells = "primary | +0.07 [-0.31, +0.45] | not resolved | 0.53 | within 1 point, p 0.0044"
    assert f"| near minus none | {cells} |" in text
    assert "among 3 exploratory comparisons (Holm), the p of the one primary comparison needs no" in text


def test_a_margin_in_per_cent_is_that_of_the_other_method(methods: dict[str, Seeds]) -> None:
    (found,) = looks(TOLD | {"comparisons": [], "margin": {"test/accuracy": "2 %"}}, methods, ACCURACY)
    assert found.margin == pytest.approx(0.02 * 0.84)


def test_a_primary_comparison_is_repeated_without_the_seeds_that_were_known(tmp_path: Path) -> None:
    """The first two seeds are 10 points higher, the others are not."""
    accuracies = {"a": (0.9, 0.91, 0.80, 0.81, 0.83), "b": (0.8, 0.81, 0.81, 0.80, 0.83)}
    methods = {}
    for label, values in accuracies.items():
        for seed, accuracy in enumerate(values):
            write_run(tmp_path / label, seed=seed, summary={"test/accuracy": accuracy})
        methods[label] = {run.seed: run for run in read_runs([tmp_path / label])}
    told = {"methods": dict.fromkeys(methods), "primary": [["a", "b", 2]], "comparisons": [["b", "a"]]}
    found = looks(told, methods, ACCURACY)
    assert [each.new is None for each in found] == [False, True]
    text = comparisons(found)
    assert "| a minus b | primary | +4.00 [-2.86, +10.86] | not resolved | 0.18 | - |" in text
    # -1, 1 and 0 points: s = 1, and the half width is 4.303 / sqrt(3)
    assert "| a minus b, seeds 2, 3, 4 | +0.00 [-2.48, +2.48] | not resolved | 1 | - |" in text
    for known in ([], [0]):  # none was known
        found = looks({**told, "primary": [["a", "b", *known]]}, methods, ACCURACY)
        assert found[0].new is None and "known" not in comparisons(found)


def test_a_primary_comparison_without_runs_is_named(capsys: pytest.CaptureFixture) -> None:
    assert judged({"primary": [["a", "b"]]}, [None]) == []
    assert capsys.readouterr().err == "warning: no runs for the primary comparison a minus b\n"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"margin": {"test/accuracy": 1}}, "margin of test/accuracy must be like '1 point' or '1 %', got 1"),
        (
            {"primary": [["nera", "none"]]},
            "comparisons must be of none, layers, whole, other, near, got nera",
        ),
        (
            {"primary": [["near", "none", "3"]]},
            r"primary comparisons must be like .*, got \['near', 'none', '3'\]",
        ),
        ({"primary": [["near", "none", 3, 4]]}, r"primary comparisons must be like .*, got .* 3, 4\]"),
        ({"comparisons": [["near", "none", 3]]}, r"comparisons must be like \[one, other\], got .* 3\]"),
    ],
)
def test_a_mistake_in_study_yaml_is_named(
    wrong: dict[str, Any], said: str, methods: dict[str, Seeds]
) -> None:
    with pytest.raises(ValueError, match=said):
        looks(TOLD | wrong, methods, ACCURACY)


@pytest.mark.parametrize("name", STUDIES)
def test_a_committed_page_has_the_primary_comparisons_of_its_study(name: str) -> None:
    told = yaml.safe_load((ROOT / PAGES / name / "study.yaml").read_text(encoding="utf-8"))
    page = (ROOT / PAGES / name / f"{name}.md").read_text(encoding="utf-8")
    assert page.count("| primary |") == len(told.get("primary", ())) <= 3
    assert ("docs/statistics.md" in page) == ("primary" in told)
