"""API keys are refused where they are typed; test_wandb_online searches the files of a run for them."""

from pathlib import Path

import pytest
from command_line import command

from trainers.config.api_keys import refuse_keys
from trainers.config.composition import compose
from trainers.config.errors import ConfigError

KEY = "0123456789abcdef0123456789abcdef01234567"  # in the format of Weights & Biases
QUICK = ("experiment=quick", "trainer.steps=2")


def test_a_config_that_reads_a_key_from_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "quite a secret word")
    with pytest.raises(ConfigError, match=r"^name looks like an API key or password"):
        compose(["name=${oc.env:WANDB_API_KEY}"])


@pytest.mark.parametrize(
    "word",
    [
        f"+tracker.api_key={KEY}",
        "+wandb.password=abc",
        f"name={KEY}",
        "name=my-quite-secret-word",
        "data.home=https://me:word@example.org",
        "tracker.group=hf_abcdefghijklmnopqrstuvwx",
        f"WANDB_API_KEY={KEY}",
    ],
)
def test_a_key_that_is_typed_goes_nowhere(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "my-quite-secret-word")
    with pytest.raises(ValueError, match="looks like an API key") as refusal:
        refuse_keys([*QUICK, word])
    assert word.partition("=")[2] not in str(refusal.value)


def test_usual_words_are_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_KEY", "/home/me/.ssh/key")
    monkeypatch.setenv("SOME_TOKEN", "x")
    hub = f"model.pretrained=/home/me/.ssh/key/snapshots/{KEY}"
    refuse_keys(
        [*QUICK, "data.evaluation_tokens=5", "data.vocabulary=x", hub, "-m", "+sweeps=smoke", "seed=0,1"]
    )


def test_a_typed_key_leaves_no_file(tmp_path: Path) -> None:
    result = command("-m", *QUICK, f"output={tmp_path / 'o'}", f"+tracker.api_key={KEY}")
    assert result.returncode == 1 and KEY not in result.stderr + result.stdout
    assert result.stderr.count("\n") == 1 and not (tmp_path / "o").exists()
