"""The sweeps of the paper at full size: composition, and the costs in their comments."""

import math
from pathlib import Path
from typing import Any

import pytest
from configs import CONF, resolved
from sweep_files import SWEEPS, jobs_of, name_of, params_of

from trainers.config.checks import check, refuse_settings_without_effect
from trainers.identity.identity import identify

PAPER = [path for path in SWEEPS if path.parent.name == "paper"]
PRESETS = {f"paper/{path.stem}" for path in (CONF / "experiment/paper").glob("*.yaml")}
IMAGES, WORDS = 50_000, 2_088_628  # images of CIFAR's training split, tokens of WikiText-2's
IMAGENET = 1_281_167  # training images
POSITIVES = 20_000_263 - 138_493  # ratings of MovieLens-20M, without the last one of each user


def steps_of(config: dict[str, Any]) -> int:
    """The number of steps of a run, from the published sizes of the datasets."""
    settings, samples = config["trainer"], config["workers"] * (config["trainer"]["batch_size"] or 1)
    if settings["steps"]:
        return settings["steps"]
    name = config["data"]["_target_"].rpartition(".")[2]
    if name == "wikitext2":
        return settings["epochs"] * math.ceil((WORDS // samples - 1) / config["data"]["bptt"])
    if name == "movielens":
        return math.ceil(settings["epochs"] * POSITIVES * (1 + config["data"]["negatives"]) / samples)
    if name == "imagenet":
        return math.ceil(settings["epochs"] * IMAGENET / samples)
    if config["data"]["drop_last"]:
        return settings["epochs"] * (IMAGES // config["workers"] // settings["batch_size"])
    return math.ceil(settings["epochs"] * IMAGES / samples)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem != "dense")) for path in PAPER],
)
def test_a_sweep_of_the_paper_composes_and_costs_what_it_says(path: Path) -> None:
    lengths, ids = {}, set()
    for job in jobs_of(path):
        typed = [f"{key}={value}" for key, value in job.items()]
        config = resolved(f"+sweeps={name_of(path)}", *typed)
        check(config)
        refuse_settings_without_effect(config, {*job})
        assert config["output"].startswith("outputs/paper")
        lengths[job["experiment"]] = steps_of(config)
        ids.add(identify(config).id)
    assert len(ids) == len(jobs_of(path)), "settings that change nothing"
    num_runs = math.prod(len(str(values).split(",")) for values in params_of(path).values())
    whole = sum(steps * num_runs // len(lengths) for steps in lengths.values())
    comment = path.read_text().splitlines()[2]
    each = " to ".join(f"{steps:,}" for steps in sorted({min(lengths.values()), max(lengths.values())}))
    assert f" runs, {each} steps " in comment
    assert f"each, {whole:,} in all; for a " in comment


def test_every_preset_of_the_paper_is_in_a_sweep() -> None:
    crossed = {path.stem: set(params_of(path)["experiment"].split(",")) for path in PAPER}
    assert crossed["dense"] == PRESETS - {"paper/gpt124m"}  # not a network of the paper
    compressed = {name for stem, names in crossed.items() if stem != "dense" for name in names}
    compressed -= {f"resnet18/{path.stem}" for path in (CONF / "experiment/resnet18").glob("*.yaml")}
    assert compressed - {"convex/gisette_sgd"} == crossed["dense"]


def test_runs_of_two_sweeps_are_the_same_runs() -> None:
    """A run that several sweeps contain is trained once."""
    words = ["compressor=top_k", "budget.density=0.001", "feedback=ef", "scope=layer", "seed=0"]
    found = [
        resolved(f"+sweeps=paper/{sweep}", "experiment=paper/resnet18_cifar10", *words)
        for sweep in ("cifar10", "feedback", "entire_model", "accordion")
    ]
    assert len({(identify(config).id, config["output"], config["name"]) for config in found}) == 1


@pytest.mark.parametrize(
    ("row", "words"),
    {
        "none": ["compressor=none"],
        "top_k": ["compressor=top_k"],
        "top_k_global": ["compressor=top_k", "scope=global"],
        "accordion": ["compressor=accordion"],
    }.items(),
)
def test_a_row_of_resnet18_is_the_preset_with_its_settings(row: str, words: list[str]) -> None:
    found = [
        resolved(f"experiment={name}", *own)
        for name, own in ((f"resnet18/{row}", []), ("paper/resnet18_cifar10", words))
    ]
    assert found[0] == found[1]
