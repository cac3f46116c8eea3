"""Hydra's own options and settings on the command line."""

import re
from pathlib import Path

import pytest
from command_line import command

from trainers.config import words


def test_options_may_follow_overrides() -> None:
    assert words.checked(["seed=0,1", "-m", "workers=2"]) == ["-m", "seed=0,1", "workers=2"]
    assert words.checked(["seed=0", "--cfg", "job"]) == ["--cfg", "job", "seed=0"]
    assert words.checked(["-m", "--cfg", "job", "+sweeps=smoke"]) == ["--cfg", "job", "+sweeps=smoke"]


def test_a_setting_with_dashes_is_answered_with_the_setting() -> None:
    """Not taken for a shortened --experimental-rerun."""
    for others in (["seed=0"], ["--seed=0"]):
        with pytest.raises(ValueError, match=r"=quick.*; settings have no dashes: experiment=quick; --help"):
            words.checked(["--experiment=quick", *others])


@pytest.mark.parametrize("word", ["hydra.run.dir=x", "hydra.verbose=true"])
def test_settings_of_hydra_without_effect_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="has no effect: "):
        words.checked([word])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("größe=1", "settings and options have ASCII characters only, got größe=1"),
        ("\u2013m", "settings and options have ASCII characters only, got \u2013m"),
        ("trainer.steps", "trainer.steps must have a value, as trainer.steps=VALUE"),
        ("+top_k", "top_k must have a value, as top_k=VALUE"),
        ("seed=", "seed must have a value: seed=null for none, \"seed=''\" for an empty text"),
        ("name=ö", "name: a value with other than ASCII characters needs quotes: \"name='ö'\""),
        ("budget.threshold=None", "budget.threshold must be null for no value, got None, which is a text"),
        (
            "budget.threshold=0.1,None",
            "budget.threshold must be null for no value, got None, which is a text",
        ),
    ],
)
def test_words_that_hydra_misreads_are_refused(word: str, said: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(said)}$"):
        words.checked([word])


def test_a_deletion_needs_no_value() -> None:
    assert words.checked(["~optimizer.momentum", "--config-name", "config"]) == [
        *("--config-name", "config"),
        "~optimizer.momentum",
    ]


def test_a_quoted_value_may_have_any_characters(tmp_path: Path) -> None:
    printed = command("name='größe'", "--cfg", "job", "--package", "name")
    assert (printed.returncode, printed.stdout.strip()) == (0, "größe")


@pytest.mark.parametrize("typed", [["--hydra-help"], ["-m", "--cfg", "job", "+sweeps=smoke"]])
def test_hydras_pages_are_printed(typed: list[str]) -> None:
    printed = command(*typed)
    assert printed.returncode == 0 and printed.stderr == "" and printed.stdout


def test_sweeps_of_agents_are_no_options_of_hydra() -> None:
    for typed in ("--help", "+sweeps=nothing"):
        said = command(typed)
        listed = said.stdout + said.stderr
        assert "smoke" in listed and "wandb/" not in listed and "sweeps/wandb" not in listed


@pytest.mark.parametrize("word", ["hydra.mode=MULTIRUN", "++hydra.mode=MULTIRUN"])
def test_a_typed_mode_is_followed(word: str, tmp_path: Path) -> None:
    sweep = command(word, "seed=0,1", "model=mlp", "workers=x", "tracker=none", f"output={tmp_path}")
    assert sweep.returncode == 1
    assert sweep.stderr.splitlines()[1:] == ["error: as job 1"], sweep.stderr


def test_settings_of_one_method_in_one_experiment_are_printed(tmp_path: Path) -> None:
    words = ["experiment=quick", "compressor=random_block", "trainer.steps=1", "tracker=none"]
    done = command(*words, f"output={tmp_path}")
    said = "conf/exception/quick-random_block.yaml sets optimizer.lr=0.03, before the command line\n"
    assert done.returncode == 0 and done.stdout.startswith(said)
