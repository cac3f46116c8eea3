"""The published settings of the networks: sizes, elements per iteration, thresholds."""

import math
from pathlib import Path

from results.compare.paper import TRAININGS

TABLE = {  # D, k, lambda
    "ResNet-18 on CIFAR-10": (11_173_962, 11_174, 4.730e-3),
    "SENet-18 on CIFAR-10": (11_389_726, 11_390, 4.685e-3),
    "GoogLeNet on CIFAR-10": (6_166_250, 6_166, 6.367e-3),
    "ResNet-18 on CIFAR-100": (11_220_132, 11_220, 4.720e-3),
    "SENet-18 on CIFAR-100": (11_436_256, 11_436, 4.676e-3),
    "GoogLeNet on CIFAR-100": (6_402_564, 6_403, 6.249e-3),
    "LSTM on WikiText-2": (28_949_319, 28_949, 2.939e-3),
    "NeuMF on MovieLens-20M": (31_832_577, 3_024_095, 1.3e-6),
}


def test_parameters_elements_and_thresholds() -> None:
    found = {t.title: (t.num_parameters, t.expected_elements, t.threshold) for t in TRAININGS}
    assert found.keys() == TABLE.keys()
    for title, (parameters, elements, threshold) in TABLE.items():
        assert found[title][:2] == (parameters, elements)
        assert math.isclose(found[title][2], threshold, rel_tol=2e-4), title


def test_a_printed_threshold_is_the_rule_for_what_the_code_builds() -> None:
    """The paper prints 4.68e-3 for SENet-18 and a number of parameters for which the rule gives 4.71e-3."""
    senet = next(training for training in TRAININGS if training.title == "SENet-18 on CIFAR-10")
    assert abs(senet.threshold - 4.68e-3) < 1e-5
    assert 1 / (2 * math.sqrt(senet.density * senet.printed_parameters)) > 4.71e-3


def test_the_papers_page_has_the_same_table() -> None:
    page = (Path(__file__).parents[3] / "docs/papers/total_error.md").read_text()
    for training in TRAININGS:
        (row,) = (
            line
            for line in page.splitlines()
            if line.startswith(f"| {training.title.replace(' on ', ', ')} | `{training.model}` |")
        )
        assert f"| {training.num_parameters:,} |" in row
        if training.chosen_threshold is None:
            threshold = f"{training.threshold * 1e3:.3f}e-3"
            assert row.endswith(f"| {training.expected_elements:,} | {threshold} |")
        if training.printed_parameters is not None:
            assert f"is printed with {training.printed_parameters:,} parameters" in page
