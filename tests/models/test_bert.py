"""BERT: sizes, tasks, refusals, and pretrained folders written by transformers."""

import json
from pathlib import Path

import pytest
import torch
from configs import resolved
from glue_files import UNITS
from random_damage import DAMAGE, damage
from safetensors.torch import load_file, save_file

import data.torchvision_shim  # noqa: F401  has to come before the first import of transformers
from models.bert import SIZES, Classifier, MaskedModel, bert
from trainers.comm.communicator import Communicator
from trainers.run.build import build_training

WORDS = len(UNITS)


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def bert_count(words: int, layers: int, width: int, positions: int = 512) -> int:
    """Parameters of the embeddings of words, positions and two sentence types, their norm, and the layers."""
    attention = 4 * (width * width + width)
    feed_forward = 2 * 4 * width * width + 5 * width
    return (words + positions + 2 + 2) * width + layers * (attention + feed_forward + 4 * width)


@pytest.mark.parametrize(
    ("config", "classifier", "masked"),
    [
        ("bert_tiny", 4_386_178, 4_416_698),
        ("bert_mini", 11_171_074, 11_201_594),
        ("bert_base", 109_483_778, 109_514_298),
    ],
)
def test_parameter_counts(config: str, classifier: int, masked: int) -> None:
    """By a formula and by published numbers; tied weights count once."""
    layers, width = SIZES[config]
    body = bert_count(30_522, layers, width)
    assert body + width * width + width + 2 * width + 2 == classifier
    assert body + width * width + 3 * width + 30_522 == masked
    with torch.device("meta"):
        assert count(bert(vocabulary_size=30_522, num_classes=2, config=config)) == classifier
        assert count(bert(vocabulary_size=30_522, masked=True, config=config)) == masked


def test_kinds_and_shapes() -> None:
    tokens = torch.randint(WORDS, (3, 7))
    classifier = bert(vocabulary_size=WORDS, num_classes=5)
    assert isinstance(classifier, Classifier)
    assert classifier(tokens, torch.ones(3, 7, dtype=torch.bool)).shape == (3, 5)
    masked = bert(vocabulary_size=WORDS, masked=True)
    assert isinstance(masked, MaskedModel)
    assert masked(tokens, torch.tensor([[1, 4]] * 3)).shape == (3, 2, WORDS)


def test_padding_does_not_change_a_sentence() -> None:
    torch.manual_seed(0)
    model = bert(vocabulary_size=WORDS, num_classes=2).eval()
    tokens = torch.randint(WORDS, (2, 6))
    padded = torch.cat([tokens, torch.randint(WORDS, (2, 4))], 1)
    mask = torch.arange(10).expand(2, -1) < 6
    plain = model(tokens, mask[:, :6])
    torch.testing.assert_close(model(padded, mask), plain, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(model(padded, torch.ones_like(mask)), plain, atol=1e-4)


def test_dropout_reaches_every_layer() -> None:
    def rates(**settings: object) -> set[float]:
        model = bert(vocabulary_size=WORDS, num_classes=2, **settings)
        return {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}

    assert rates() == {0.1}
    assert rates(dropout=0.0) == {0.0}
    tokens, mask = torch.randint(WORDS, (2, 6)), torch.ones(2, 6, dtype=torch.bool)
    model = bert(vocabulary_size=WORDS, num_classes=2, dropout=0.0).train()
    assert torch.equal(model(tokens, mask), model(tokens, mask))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked model in the hub's format."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    path = tmp_path_factory.mktemp("bert")
    BertForMaskedLM(config).save_pretrained(path)
    return path


def test_pretrained_weights_arrive(folder: Path) -> None:
    from safetensors.torch import load_file

    saved = load_file(folder / "model.safetensors")
    for model in (
        bert(vocabulary_size=WORDS, masked=True, pretrained=str(folder)),
        bert(vocabulary_size=WORDS, num_classes=3, pretrained=str(folder)),
    ):
        found = {name.removeprefix("network."): p for name, p in model.named_parameters()}
        shared = found.keys() & saved.keys()
        assert len(shared) >= 21
        assert all(torch.equal(found[name], saved[name]) for name in shared)
    assert found["classifier.weight"].shape == (3, 16)


def test_pretrained_and_resaved_as_a_classifier(folder: Path, tmp_path: Path) -> None:
    """A fine-tuned folder can be loaded only with the same number of classes."""
    bert(vocabulary_size=WORDS, num_classes=3, pretrained=str(folder)).network.save_pretrained(tmp_path)
    bert(vocabulary_size=WORDS, num_classes=3, pretrained=str(tmp_path))
    with pytest.raises(ValueError, match=r"model\.pretrained=.* cannot be read: .*"):
        bert(vocabulary_size=WORDS, num_classes=2, pretrained=str(tmp_path))


def edited(folder: Path, target: Path, **changes: object) -> str:
    target.mkdir(exist_ok=True)
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text()) | changes
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


def test_what_does_not_fit_pretrained_is_refused(folder: Path, tmp_path: Path) -> None:
    name = str(folder)
    with pytest.raises(ValueError, match=rf"vocabulary must be .*: {WORDS} units in .*, 99 in the data"):
        bert(vocabulary_size=99, num_classes=2, pretrained=name)
    with pytest.raises(
        ValueError, match=r"data\.max_length must be at most the model's 24 positions, got 25"
    ):
        bert(vocabulary_size=WORDS, num_classes=2, max_length=25, pretrained=name)
    with pytest.raises(ValueError, match=r"model\.positions has no effect together with model\.pretrained"):
        bert(vocabulary_size=WORDS, num_classes=2, positions=24, pretrained=name)
    other = edited(folder, tmp_path / "other", model_type="gpt2")
    with pytest.raises(ValueError, match=r"model_type in config\.json must be 'bert', got 'gpt2'"):
        bert(vocabulary_size=WORDS, num_classes=2, pretrained=other)
    deeper = edited(folder, tmp_path / "deeper", num_hidden_layers=2)
    with pytest.raises(ValueError, match=r"lacks 16 parameters, such as bert\.encoder\.layer\.1"):
        bert(vocabulary_size=WORDS, num_classes=2, pretrained=deeper)
    weights = {name: tensor.clone() for name, tensor in load_file(folder / "model.safetensors").items()}
    more = {name.replace("layer.0", "layer.1"): tensor.clone() for name, tensor in weights.items()}
    save_file(weights | more, Path(deeper) / "model.safetensors")
    shallow = edited(Path(deeper), tmp_path / "shallow", num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"has more layers than config\.json, such as bert\.encoder"):
        bert(vocabulary_size=WORDS, num_classes=2, pretrained=shallow)


def test_a_folder_without_safetensors_is_refused(folder: Path, tmp_path: Path) -> None:
    """A pickle of the weights beside the config is not opened."""
    name = edited(folder, tmp_path / "pickled")
    weights = tmp_path / "pickled" / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(FileNotFoundError, match=r"must hold a config\.json and a model\.safetensors"):
        bert(vocabulary_size=WORDS, num_classes=2, pretrained=name)
    weights.write_bytes(content[:100])
    with pytest.raises(ValueError, match=r"model\.pretrained=.* cannot be read"):
        bert(vocabulary_size=WORDS, num_classes=2, pretrained=name)
    with pytest.raises(FileNotFoundError, match=r"no folder and no cached download; model\.download=true"):
        bert(vocabulary_size=WORDS, num_classes=2, pretrained="nobody/nothing")


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_damaged_pretrained_files(file: str, kind: str, folder: Path, tmp_path: Path) -> None:
    for seed in range(8):
        name = edited(folder, tmp_path / str(seed))
        damage(tmp_path / str(seed) / file, kind, seed)
        try:
            bert(vocabulary_size=WORDS, num_classes=2, pretrained=name)
        except ValueError as error:
            assert name in str(error)  # noqa: PT017  some damage leaves a valid file
        else:
            assert kind in ("flipped bit", "zeros")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_classes": None}, r"needs data with classes or masked words"),
        ({"config": "bert_huge"}, r"model\.config must be one of bert_tiny, bert_mini, bert_base, got"),
        ({"dropout": 1.0}, r"model\.dropout must be in \[0, 1\) or null, got 1\.0"),
        ({"positions": 8, "max_length": 9}, r"data\.max_length must be at most the model's 8 positions"),
        ({"download": True}, r"model\.download has no effect without model\.pretrained"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bert(**{"vocabulary_size": WORDS, "num_classes": 2} | settings)


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        (("model=bert", "data=digits"), "data must be one of sst2"),
        (("model=bert", "data=python_docs"), "data.objective must be masked"),
        (
            ("model=lstm", "data=python_docs", "data.objective=masked"),
            "data.objective must be next_token or windows",
        ),
    ],
)
def test_models_that_do_not_go_with_the_data(overrides: tuple[str, ...], remedy: str) -> None:
    config = resolved(*overrides)
    with pytest.raises(ValueError, match=f"cannot be trained on the data of .*; {remedy}$"):
        build_training(config, Communicator(config["workers"]), torch.device("cpu"))
