"""Jobs of a sweep over compressors: each has the settings of its compressor."""

from itertools import product
from pathlib import Path
from typing import Any

import yaml
from command_line import command

from trainers.config.sweep_jobs import jobs_with_own_settings

COMPRESSORS: dict[str, dict[str, Any]] = {
    "none": {"_target_": "compressors.none.NoCompression"},
    "top_k": {"_target_": "compressors.top_k.TopK", "density": 0.1, "schedule": "constant"},
    "hard_threshold": {
        "_target_": "compressors.hard_threshold.HardThreshold",
        "density": 0.1,
        "threshold": None,
    },
}
FEEDBACK = {
    "ef": {"_target_": "compressors.feedback.ErrorFeedback", "scale": "gradient"},
    "none": {"_target_": "compressors.feedback.no_feedback"},
}


def compose(words: list[str]) -> dict[str, Any]:
    """Compose a compressor's settings like Hydra."""
    values = dict(word.split("=") for word in words)
    settings = dict(COMPRESSORS[values.pop("compressor")])
    feedback = FEEDBACK[values.get("feedback", "ef")]
    for key, value in values.items():
        owner, _, name = key.partition(".")
        if owner in ("compressor", "feedback") and name:
            assert name in (settings if owner == "compressor" else feedback)  # otherwise Hydra refuses it
        if owner == "compressor" or (owner == "budget" and name in settings):
            settings[name] = value
    return {"compressor": settings, "feedback": feedback}


def jobs(**values: list[str]) -> list[list[str]]:
    """All combinations, in Hydra's order."""
    words = [[f"{key.replace('__', '.')}={value}" for value in of_key] for key, of_key in values.items()]
    return [list(job) for job in product(*words)]


def test_each_job_takes_the_settings_of_its_compressor() -> None:
    every = jobs(
        compressor=["hard_threshold", "top_k", "none"],
        budget__threshold=["0.1", "0.2"],
        budget__density=["0.01", "0.02"],
        seed=["0", "1"],
    )
    found = jobs_with_own_settings(every, compose)
    assert found == [
        *jobs(compressor=["hard_threshold"], budget__threshold=["0.1", "0.2"], seed=["0", "1"]),
        *jobs(compressor=["top_k"], budget__density=["0.01", "0.02"], seed=["0", "1"]),
        *jobs(compressor=["none"], seed=["0", "1"]),
    ]


def test_a_setting_of_one_value_goes_where_it_belongs() -> None:
    every = jobs(compressor=["top_k", "none"], compressor__schedule=["exponential"])
    expected = [["compressor=top_k", "compressor.schedule=exponential"], ["compressor=none"]]
    assert jobs_with_own_settings(every, compose) == expected


def test_a_job_without_a_residual_takes_no_feedback() -> None:
    every = jobs(compressor=["none", "top_k"], feedback=["ef", "none"], feedback__scale=["step"])
    expected = [["compressor=none"], ["compressor=top_k", "feedback=ef", "feedback.scale=step"]]
    assert jobs_with_own_settings(every, compose) == [*expected, ["compressor=top_k", "feedback=none"]]


def test_a_budget_setting_that_selects_the_compressors_settings_is_kept() -> None:
    def selecting(words: list[str]) -> dict[str, Any]:
        levels = {"budget.level=low": "budget.density=0.1", "budget.level=high": "budget.density=0.2"}
        return compose([levels.get(word, word) for word in words])

    every = jobs(compressor=["top_k", "none"], budget__level=["low", "high"])
    expected = [*jobs(compressor=["top_k"], budget__level=["low", "high"]), ["compressor=none"]]
    assert jobs_with_own_settings(every, selecting) == expected


def test_an_experiment_decides_which_settings_its_jobs_read() -> None:
    """A threshold makes the density ineffective; in whichever order the experiments come."""

    def with_experiments(words: list[str]) -> dict[str, Any]:
        sets = {"experiment=one": ["budget.threshold=0.1"], "experiment=two": []}
        return compose([new for word in words for new in sets.get(word, [word])])

    for names in (["one", "two"], ["two", "one"]):
        every = jobs(
            compressor=["hard_threshold", "none"],
            experiment=names,
            budget__density=["0.01", "0.02"],
        )
        found = jobs_with_own_settings(every, with_experiments)
        assert sorted(found) == [
            ["compressor=hard_threshold", "experiment=one"],
            ["compressor=hard_threshold", "experiment=two", "budget.density=0.01"],
            ["compressor=hard_threshold", "experiment=two", "budget.density=0.02"],
            ["compressor=none", "experiment=one"],
            ["compressor=none", "experiment=two"],
        ]


SMALL = ["model=mlp", "model.hidden=[4]", "workers=2", "trainer.steps=1", "trainer.batch_size=4"]


def test_a_setting_that_the_default_compressor_lacks_goes_where_it_belongs(tmp_path: Path) -> None:
    swept = ["compressor=random_k,none", "compressor.shared_coordinates=false"]
    done = command("-m", *swept, *SMALL, "tracker=none", "isolate=false", f"output={tmp_path}")
    assert done.returncode == 0, done.stderr
    configs = [yaml.safe_load(path.read_text()) for path in tmp_path.glob("*/*/config.yaml")]
    assert sorted(str(config["compressor"].get("shared_coordinates")) for config in configs) == [
        "False",
        "None",
    ]
