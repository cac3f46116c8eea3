"""Untrusted pretrained files: bounds of the configuration and of the weights."""

import shutil
from pathlib import Path
from random import Random

import pytest
import torch
from file_damage import DAMAGE
from glue_files import UNITS
from hostile_models import CONFIG, TENSORS, write_pretrained

from models.bert import bert

WORDS = len(UNITS)
REFUSED = {
    "config is []": "config.json must contain a JSON object, got list",
    "config is null": "config.json must contain a JSON object, got NoneType",
    "config is NaN": "config.json must contain a JSON object, got float",
    "config is {}": "config.json: model_type must be 'bert', got None",
    "nested 100000 deep": "config.json is not JSON",
    "a key twice": "a model must have at most 1073741824 parameters, got 2224",
    "num_hidden_layers=1000000000": "a model must have at most 1073741824 parameters, got 2224",
    "hidden_size=1000000000": "a model must have at most 1073741824 parameters",
    "intermediate_size=-1": "config.json: intermediate_size must be an integer >= 1, got -1",
    "max_position_embeddings=1.5": "config.json: max_position_embeddings must be an integer >= 1, got 1.5",
    "num_attention_heads=True": "config.json: num_attention_heads must be an integer >= 1, got True",
    "hidden_act=evil": "config.json: hidden_act must be gelu or",
    "hidden_dropout_prob=nan": "config.json: hidden_dropout_prob must be in [0, 1), got nan",
    "layer_norm_eps=0": "config.json: layer_norm_eps must be in (0, 1], got 0",
    "is_decoder=True": "config.json: is_decoder must be false, got True",
    "pruned_heads={'0': [0]}": "config.json: pruned_heads must be empty",
    "header of 2^62 bytes": "model.safetensors cannot be read",
    "no tensors": "model.safetensors cannot be read",
    "all at one place": "model.safetensors cannot be read",
    "not numbers": "model.safetensors holds a number that is not finite",
    "other numbers": "model.safetensors must hold floating-point numbers, got torch.int32",
    "other names": "lacks",
    "flat": "cannot be read",
    "a list of files": "the folder must hold a config.json and a model.safetensors",
    "endless device": "the folder must hold a config.json and a model.safetensors",
    "a pickle": "the folder must hold a config.json and a model.safetensors",
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("honest")
    write_pretrained(root)
    return root / "pretrained"


@pytest.mark.parametrize("what", REFUSED)
def test_forged_files_are_refused(what: str, honest: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pretrained"
    shutil.copytree(honest, folder)
    if what in CONFIG:
        CONFIG[what](folder / "config.json", Random(0))
    else:
        (TENSORS | DAMAGE)[what](folder / "model.safetensors", Random(0))
    with pytest.raises((ValueError, FileNotFoundError)) as refusal:
        bert(vocabulary_size=WORDS, num_classes=2, pretrained=str(folder))
    said = str(refusal.value)
    assert said.startswith(f"model.pretrained={folder}") and REFUSED[what] in said
    assert len(said.replace(str(folder), "")) < 1000


@pytest.mark.parametrize(
    "what", ["dtype=float16", "auto_map={'AutoModel': 'evil.Model'}", "architectures=['Evil']"]
)
def test_what_does_not_concern_the_network_is_not_looked_at(what: str, honest: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pretrained"
    shutil.copytree(honest, folder)
    CONFIG[what](folder / "config.json", Random(0))
    states = []
    for name in (honest, folder):
        torch.manual_seed(3)
        states.append(bert(vocabulary_size=WORDS, num_classes=2, pretrained=str(name)).state_dict())
    assert all(torch.equal(*pair) for pair in zip(*(state.values() for state in states), strict=True))
    assert {tensor.dtype for tensor in states[0].values() if tensor.is_floating_point()} == {torch.float32}
