"""Sweep files for Weights & Biases: schema, command lines of its agent, the same runs as Hydra's sweeps."""

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from configs import CONF, resolved

from trainers.config.checks import check, refuse_settings_without_effect
from trainers.files.goals import OBJECTIVE, Objective

SWEEPS = CONF.parent / "sweeps"
ALL = sorted((SWEEPS / "wandb").glob("*.yaml"))
SEARCHES = [path for path in ALL if path.stem.startswith("search_")]
FILES = [path for path in ALL if path not in SEARCHES]  # grids


def commands(path: Path) -> Iterator[list[str]]:
    """Command lines that W&B's agent makes for all runs of a grid, or for the bounds of a search."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    sweep = yaml.safe_load(path.read_text())
    names = list(sweep["parameters"])
    bounds = [
        [one["min"], one["max"]] if "min" in one else one["values"] for one in sweep["parameters"].values()
    ]
    for values in itertools.product(*bounds):
        arguments = {name: {"value": value} for name, value in zip(names, values, strict=True)}
        macros = create_sweep_command_args({"args": arguments})
        macros |= {"env": ["/usr/bin/env"], "interpreter": ["python"], "program": [sweep["program"]]}
        words = create_sweep_command(copy.deepcopy(sweep["command"]))
        yield [
            word for part in words for word in (macros[part[2:-1]] if part.startswith("${") else [str(part)])
        ]


def hydra_runs(path: Path) -> list[list[str]]:
    """The overrides of every job of Hydra's own sweep of the same name."""
    sweep = yaml.safe_load((SWEEPS / path.name).read_text())
    parameters = sweep["hydra"]["sweeper"]["params"]
    lists = [[f"{key}={value}" for value in str(values).split(",")] for key, values in parameters.items()]
    return [[f"+sweeps={path.stem}", *job] for job in itertools.product(*lists)]


def settings(overrides: list[str]) -> frozenset[tuple[str, str]]:
    """Overrides as pairs, with numbers in one format, without output and tracker."""
    pairs = [override.split("=") for override in overrides]
    kept = [(key, value) for key, value in pairs if not key.startswith(("output", "tracker"))]
    return frozenset((key, f"{float(value):g}" if value[0].isdigit() else value) for key, value in kept)


def chosen(overrides: list[str]) -> str:
    """The checked config of these overrides, without output and tracker."""
    config = resolved(*overrides)
    check(config)
    refuse_settings_without_effect(config, {override.split("=")[0].lstrip("+") for override in overrides})
    return json.dumps({key: value for key, value in config.items() if key not in ("output", "tracker")})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_one_that_wandb_loads(path: Path) -> None:
    from wandb.sdk.launch.sweeps.utils import load_sweep_config

    sweep = load_sweep_config(str(path))
    assert sweep["method"] == "grid" and (SWEEPS.parent / sweep["program"]).is_file()
    assert all(set(parameter) == {"values"} for parameter in sweep["parameters"].values())
    text = path.read_text()
    assert text.startswith(f"# wandb sweep sweeps/wandb/{path.name}, ")
    assert f"\n# {len(list(commands(path)))} runs, " in text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_agents_run_what_the_sweep_of_hydra_runs(path: Path) -> None:
    lines = list(commands(path))
    assert all(line[:3] == ["/usr/bin/env", "python", "run.py"] for line in lines)
    here, there = [line[3:] for line in lines], hydra_runs(path)
    assert len({settings(run) for run in here}) == len(here) == len(there)
    assert {settings(run) for run in here} == {settings(run) for run in there}
    twin = next(run for run in there if settings(run) == settings(here[-1]))
    assert chosen(here[-1]) == chosen(twin)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_runs_go_to_wandb_and_to_a_folder_of_their_own(path: Path) -> None:
    config = resolved(*next(commands(path))[3:])
    assert config["tracker"]["mode"] == "online"
    assert config["output"] == f"outputs/wandb/{path.stem}"
    assert config["output"] != resolved(f"+sweeps={path.stem}")["output"]


@pytest.mark.parametrize("path", SEARCHES, ids=lambda path: path.stem)
def test_agents_can_run_a_search_within_its_bounds(path: Path) -> None:
    sweep, lines = yaml.safe_load(path.read_text()), list(commands(path))
    assert len(lines) == 2 ** len(sweep["parameters"])
    for line in lines:
        assert line[:3] == ["/usr/bin/env", "python", "run.py"]
        chosen(line[3:])
    tracker = resolved(*lines[0][3:])["tracker"]
    assert (sweep["metric"]["name"], sweep["metric"]["goal"]) == (OBJECTIVE, "maximize")
    assert tracker["objective"] and tracker["byte_budget"] > 0 and tracker["mode"] == "online"


def test_the_objective_of_a_search() -> None:
    """Larger is better; each factor of ten above the budget costs 1."""
    accuracy = Objective("test/accuracy", byte_budget=1e6)
    sent = "comm/link_bytes_sent_total"
    assert accuracy.value({"test/accuracy": 0.9, sent: 1e6}) == 0.9
    assert accuracy.value({"test/accuracy": 0.9, sent: 1e8}) == pytest.approx(0.9 - 2)
    assert accuracy.value({"test/accuracy": 0.9}) is None
    assert accuracy.value({sent: 1e6}) is None
    assert Objective("test/accuracy").value({"test/accuracy": 0.5}) == 0.5
    least = Objective("convex/suboptimality", 1e3)
    assert least.value({"convex/suboptimality": 1e-6, sent: 10}) == pytest.approx(6)
    assert least.value({"convex/suboptimality": 1e-6, sent: 1e4}) == pytest.approx(5)
    assert least.value({"convex/suboptimality": 0.0, sent: 10}) is None
