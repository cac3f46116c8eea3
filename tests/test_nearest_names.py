"""Nearest valid names in the refusals of misspelt settings and choices."""

from pathlib import Path

import pytest
import yaml
from command_line import command

from trainers.config import nearest

NO_SETTING = "there is no such setting; did you mean"
REFUSED = {
    "compresor=top_k": f"Could not override 'compresor': {NO_SETTING} compressor?",
    "lr=0.1": f"Could not override 'lr': {NO_SETTING} optimizer.lr?",
    "lambda=0.1": f"Could not override 'lambda': {NO_SETTING} budget.threshold or compressor.threshold?",
    "trainer.epoch=3": f"Could not override 'trainer.epoch': {NO_SETTING} trainer.epochs?",
    "compressor=topk": "Could not find 'compressor/topk'; did you mean compressor=top_k? There are",
    "feedback=false": "feedback must be one of diana, ef, ef21, ef21_sgdm, low_pass, momentum_correction, "
    "none, got false; did you mean feedback=none?",
    "data.root=x": "Could not override 'data.root': digits reads no files",
    "hydra/sweeper=optuna": "Could not find 'hydra/sweeper/optuna', which needs its plugin: pip install "
    "hydra-optuna-sweeper",
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_the_nearest_name_is_said(overrides: str) -> None:
    refused = command(*overrides.split())
    assert refused.returncode == 1 and refused.stdout == ""
    assert refused.stderr.startswith(f"error: {REFUSED[overrides]}") and refused.stderr.count("\n") == 1


def test_a_plus_is_advised_for_a_setting_that_no_file_sets() -> None:
    part = {"model": {"_target_": "models.bert.bert"}}
    assert "there is no such setting" in nearest.refusal_of_setting("model.x", "model.x=1", part)
    settings = yaml.safe_load(Path("conf/trainer/default.yaml").read_text())
    del settings["channels_last"]
    part = {"trainer": settings}
    said = nearest.refusal_of_setting("trainer.channels_last", "trainer.channels_last=true", part)
    assert said.endswith("to set it, type +trainer.channels_last=true")
    said = nearest.refusal_of_setting("trainer.channels_last", "x", {"trainer": {"_target_": "os.system"}})
    assert "+" not in said
