"""Verdicts on the paper's numbers, and the reasons for runs that are not comparable."""

from pathlib import Path

import pytest
from run_folders import write_run

from results.compare.comparison import compare
from results.compare.verdicts import verdict
from results.read.folders import read_runs
from results.tables.formats import markdown


def write_madelon(folder: Path, end: float, start: dict | None = None, **config: object) -> None:
    """The paper's Top-1 run on madelon: the error is 3.1e-4 at first, then ``end`` (in the paper 4e-5)."""
    first = {"convex/suboptimality": 11.50300959057, "convex/distance_squared": 5e-6} | (start or {})
    records = [{"step": 0} | {name: value for name, value in first.items() if value is not None}]
    records += [
        {
            "step": 10 * (i + 1),
            "compression/error": 3.1e-4 if i == 0 else end,
            "comm/link_bytes_sent_total": 36.0,
            "comm/paper_bits_total": 320.0 * (i + 1),
        }
        for i in range(300)
    ]
    usual = {
        "settings": {"density": 0.002},
        "records": records,
        "name": "madelon_sgd-top_k",
        "workers": 20,
        "model": {"_target_": "models.convex.logistic_l2.logistic_l2", "l2": None, "offset": 1e-4},
        "data": {"_target_": "data.convex.libsvm.libsvm", "name": "madelon", "partition": "contiguous"},
        "feedback": {"scale": "step"},
        "optimizer": {"lr": None, "momentum": 0.0, "weight_decay": 0.0},
        "trainer": {"steps": 3000, "batch_size": 1},
    }
    problem = {"smoothness": 29790805.64933511, "start_value": 12.17092905, "optimum_value": 0.6679195534}
    summary = {"convex/suboptimality": 0.02, "problem": problem, "data": {"name": "madelon"}}
    write_run(folder, summary=summary, **(usual | config))


@pytest.mark.parametrize(("end", "word"), [(4.4e-5, "reproduced"), (6e-5, "not reproduced")])
def test_every_published_value_stands_beside(tmp_path: Path, end: float, word: str) -> None:
    write_madelon(tmp_path, end)
    sections = compare(read_runs([tmp_path]))
    found = sections[0].rows[0].verdict
    assert found.word == word
    assert found.published == (
        "mean ‖e‖² peak 0.0003; mean ‖e‖² end 4e-05; f(x) - f* start 11.5; ‖x - x*‖² start 5e-06; "
        "bits per worker end 9.6e+04"
    )
    assert f"end {end:.3g}, read 4e-05, ratio {end / 4e-5:.3g} (1/1.26 to 1.26 agrees)" in found.reason
    assert "bits per worker at the end 9.6e+04, by rule 9.6e+04, ratio 1 (1e-06 agrees)" in found.reason
    assert "missing, since no value of the paper's was read: f(x) - f* after the start" in found.reason
    text = markdown(sections)
    assert f"| {word} |" in text
    assert "L 29790805.649 (paper 29790805.649)" in text


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"convex/suboptimality": 11.6}, "not reproduced"),
        ({"convex/distance_squared": 5.1e-6}, "not reproduced"),
        ({"convex/suboptimality": None, "convex/distance_squared": None}, "reproduced"),
    ],
)
def test_no_value_is_judged_alone(tmp_path: Path, changes: dict, word: str) -> None:
    write_madelon(tmp_path, 4e-5, start=changes)
    found = verdict(read_runs([tmp_path]))
    assert found.word == word
    assert ("f(x) - f* at the start not recorded" in found.reason) == (None in changes.values())


@pytest.mark.parametrize(
    ("setting", "difference"),
    [
        ({"workers": 10}, "workers 10 instead of 20"),
        ({"nodes": 4}, "nodes 4 instead of unset"),
        (
            {"optimizer": {"lr": None, "momentum": 0.9, "weight_decay": 0.1}},
            "momentum 0.9 instead of 0, weight decay 0.1 instead of 0",
        ),
        (
            {"schedule": {"_target_": "trainers.schedules.schedules.Cosine"}},
            "schedule Cosine instead of ConstantRate",
        ),
        (
            {"feedback": {"_target_": "compressors.feedback.LowPass", "scale": "step"}},
            "feedback LowPass instead of ErrorFeedback",
        ),
        ({"wire": {"values": "bf16"}}, "values sent as bf16 instead of fp32"),
    ],
)
def test_another_setting_is_not_comparable(tmp_path: Path, setting: dict, difference: str) -> None:
    write_madelon(tmp_path, 4e-5, **setting)
    found = verdict(read_runs([tmp_path]))
    assert found == ("not comparable", f"not the paper's setting: {difference}", "")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "the paper trained no mlp"),
        (
            {"model": {"_target_": "models.lstm.lstm"}},
            "not the paper's LSTM on WikiText-2: data digits instead of wikitext2, workers 4 instead of 8, "
            "batch per worker 32 instead of 128, epochs 3 instead of 90, rate 0.1 instead of 1.25, "
            "parameters 1,000 instead of 28,949,319",
        ),
        (
            {
                "model": {"_target_": "models.resnet.resnet18"},
                "data": {"_target_": "data.images.cifar.cifar100"},
                "workers": 8,
                "trainer": {"epochs": 300, "batch_size": 256},
            },
            "not the paper's ResNet-18 on CIFAR-100: parameters 1,000 instead of 11,220,132",
        ),
    ],
)
def test_networks_say_why_they_are_not_comparable(tmp_path: Path, config: dict, reason: str) -> None:
    write_run(tmp_path, **config)
    assert verdict(read_runs([tmp_path])) == ("not comparable", reason, "")


def test_the_papers_own_setting_has_no_number_either(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        model={"_target_": "models.lstm.lstm"},
        data={"_target_": "data.text.language_modelling.wikitext2"},
        optimizer={"lr": 1.25},
        workers=8,
        trainer={"epochs": 90, "batch_size": 128},
        summary={"layers": {"all": {"elements": 28_949_319}}},
    )
    found = verdict(read_runs([tmp_path]))
    assert found.word == "not comparable" and "no number of its figures is known" in found.reason
