"""Settings of Weights & Biases, by precedence: command line, environment variables, defaults."""

import pytest

from trainers.config.wandb_settings import VARIABLES, wandb_settings

NOTHING = dict.fromkeys(VARIABLES)
VALUES = {
    "project": "p",
    "entity": "me",
    "group": "g",
    "job_type": "j",
    "notes": "two words",
    "tags": ["a", "b"],
    "mode": "offline",
}
OTHERS = {"WANDB_TAGS": "c", "WANDB_MODE": "disabled"}


def test_nothing_typed_and_no_variable() -> None:
    assert wandb_settings(NOTHING, {}) == ({"project": "total-error", "mode": "offline"}, "")


@pytest.mark.parametrize("key", VARIABLES)
def test_typed_wins_over_variable_wins_over_default(key: str) -> None:
    typed, variable = NOTHING | {key: VALUES[key]}, VARIABLES[key]
    other = {variable: OTHERS.get(variable, "other")}
    settings, said = wandb_settings(typed, other)
    assert settings[key] == VALUES[key]
    word = "a,b" if key == "tags" else VALUES[key]
    assert (
        said == f"settings of Weights & Biases: tracker.{key}={word} instead of {variable}={other[variable]}"
    )
    settings, said = wandb_settings(NOTHING, other)
    assert settings[key] == (["c"] if key == "tags" else other[variable])
    assert said == f"settings of Weights & Biases: {variable}={other[variable]}"
    same = {variable: ",".join(VALUES[key]) if key == "tags" else VALUES[key]}
    assert wandb_settings(typed, same)[1] == "", "nothing is overridden"


def test_a_project_with_its_entity() -> None:
    settings, said = wandb_settings(NOTHING | {"project": "me/name"}, {"WANDB_ENTITY": "you"})
    assert (settings["entity"], settings["project"]) == ("me", "name")
    assert said == "settings of Weights & Biases: tracker.entity=me instead of WANDB_ENTITY=you"
    settings, _ = wandb_settings(NOTHING, {"WANDB_PROJECT": "me/name"})
    assert (settings["entity"], settings["project"]) == ("me", "name")
    with pytest.raises(ValueError, match="names another entity"):
        wandb_settings(NOTHING | {"project": "me/name", "entity": "you"}, {})


def test_no_tags_can_be_typed() -> None:
    assert wandb_settings(NOTHING | {"tags": []}, {"WANDB_TAGS": "a"})[0]["tags"] == []


@pytest.mark.parametrize(
    ("name", "value"), [("WANDB_MODE", "sometimes"), ("WANDB_PROJECT", "a:b"), ("WANDB_TAGS", "a,,b")]
)
def test_a_variable_that_is_no_good_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be "):
        wandb_settings(NOTHING, {name: value})


def test_what_a_variable_cannot_change_is_said() -> None:
    assert (
        wandb_settings(NOTHING, {"WANDB_NAME": "n"})[1]
        == "settings of Weights & Biases: WANDB_NAME is ignored"
    )
    agent = {"WANDB_SWEEP_ID": "s", "WANDB_PROJECT": "of-sweep"}
    settings, said = wandb_settings(NOTHING | {"project": "typed"}, agent)
    assert settings["project"] == "of-sweep"
    assert "the project of its sweep instead of tracker.project=typed" in said
