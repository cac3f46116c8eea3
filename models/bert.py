"""BERT (Devlin et al., 2019, https://arxiv.org/abs/1810.04805), transformers' implementation.

The small sizes are those of Turc et al., 2019, https://arxiv.org/abs/1908.08962: a head per 64
units of width, and a feed-forward layer four times as wide.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import data.torchvision_shim  # noqa: F401  must precede the first import of transformers
from data.checks import is_number, require_count, require_flag, shown

MOST_POSITIONS = 2**17  # positions; each has an embedding, and attention is quadratic in their number
SIZES = {"bert_tiny": (2, 128), "bert_mini": (4, 256), "bert_base": (12, 768)}  # layers, width
_MOST_CONFIG_BYTES = 2**20
_MOST_PARAMETERS = 2**30  # parameters; bert-large has 336 million
_LARGEST_WEIGHT = 1e6
_COUNTS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_COUNTS += ("max_position_embeddings", "type_vocab_size")
_SHARES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
_ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
# Parameters that a pretrained file may lack; they are then initialised.
_NEW_LAYERS = {
    f"{layer}.{part}" for layer in ("classifier", "bert.pooler.dense") for part in ("weight", "bias")
}


class Classifier(nn.Module):
    """Sentence classifier on the last state of the first unit."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits [B, classes] of ``tokens`` [B, T]; ``mask`` [B, T] is False for padding."""
        return self.network(input_ids=tokens, attention_mask=mask).logits


class MaskedModel(nn.Module):
    """Model of masked words; the output layer is the embedding's transpose."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits [B, M, words] at the ``positions`` [B, M] of full blocks ``tokens`` [B, T].

        Others have no logits: the output layer is the widest, and one position in seven is predicted.
        """
        states = self.network.bert(input_ids=tokens).last_hidden_state  # [B, T, width]
        selected = states.gather(1, positions[..., None].expand(-1, -1, states.shape[-1]))
        return self.network.cls(selected)


def bert(
    *,
    vocabulary_size: int,
    num_classes: int | None = None,
    masked: bool = False,
    max_length: int | None = None,
    config: str = "bert_tiny",
    pretrained: str | None = None,
    download: bool = False,
    positions: int | None = None,
    dropout: float | None = None,
) -> nn.Module:
    """A sentence classifier, or with ``masked`` a model of masked words, depending on the data.

    ``config`` is one of ``SIZES`` with random weights: 109,483,778 parameters for bert_base with 30,522
    words and 2 classes. Instead, ``pretrained`` reads a local folder or, with ``download``, a model of
    the Hugging Face hub; only safetensors files, because the other format is a pickle. ``max_length`` is
    the data's longest input, ``positions`` the number of positions (default 512), ``dropout`` the
    probability of all dropouts (default that of the configuration, 0.1).

    Raises ``ValueError`` for data that is neither classified nor masked, for a vocabulary or length that
    does not fit the model, and for files with other content; ``FileNotFoundError`` for a missing
    pretrained model.
    """
    _check(config, pretrained, download, positions, dropout)
    if num_classes is None and not masked:
        raise ValueError("model=bert needs data with classes or masked words (data.objective=masked)")
    changes: dict[str, Any] = {"attn_implementation": "eager"}  # the same bits on every machine
    if dropout is not None:
        changes |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        changes |= {"classifier_dropout": None}
    if not masked:
        changes["num_labels"] = num_classes
    if pretrained is not None:
        network = _pretrained(pretrained, download, vocabulary_size, masked, changes)
    else:
        layers, width = SIZES[config]
        network = _drawn(vocabulary_size, layers, width, positions or 512, masked, changes)
    places = network.config.max_position_embeddings
    if max_length is not None and max_length > places:
        raise ValueError(f"data.max_length must be at most the model's {places} positions, got {max_length}")
    return MaskedModel(network) if masked else Classifier(network)


def _check(
    config: str, pretrained: str | None, download: bool, positions: int | None, dropout: float | None
) -> None:
    require_flag("model.download", download)
    if not isinstance(config, str) or config not in SIZES:
        raise ValueError(f"model.config must be one of {', '.join(SIZES)}, got {shown(config)}")
    if dropout is not None and not (is_number(dropout) and 0 <= dropout < 1):
        raise ValueError(f"model.dropout must be in [0, 1) or null, got {shown(dropout)}")
    if positions is not None:
        require_count("model.positions", positions, maximum=MOST_POSITIONS)
    if pretrained is None and download:
        raise ValueError("model.download has no effect without model.pretrained")
    if pretrained is not None and not (isinstance(pretrained, str) and pretrained):
        raise ValueError(f"model.pretrained must be a folder or a name on the hub, got {pretrained!r}")
    if pretrained is not None and positions is not None:
        raise ValueError(f"model.positions has no effect together with model.pretrained={pretrained}")


def _classes(masked: bool) -> tuple[Any, Any]:
    """transformers' configuration and network classes."""
    from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

    return BertConfig, BertForMaskedLM if masked else BertForSequenceClassification


def _drawn(
    vocabulary_size: int, layers: int, width: int, positions: int, masked: bool, changes: dict[str, Any]
) -> nn.Module:
    configuration, network = _classes(masked)
    return network(
        configuration(
            vocab_size=vocabulary_size,
            num_hidden_layers=layers,
            hidden_size=width,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
            max_position_embeddings=positions,
            pad_token_id=None,
            **changes,
        )
    )


def _pretrained(
    name: str, download: bool, vocabulary_size: int, masked: bool, changes: dict[str, Any]
) -> nn.Module:
    """The network from its two files, which are checked before transformers builds it."""
    from transformers.utils import cached_file, logging

    logging.set_verbosity_error()  # its warnings concern facts that are checked below, or are expected
    logging.disable_progress_bar()
    where = {"local_files_only": not download}
    try:
        files = [cached_file(name, file, **where) for file in ("config.json", "model.safetensors")]
        if None in files:  # a file is missing, and transformers raised no error
            raise FileNotFoundError
        settings = _read_settings(Path(files[0]), vocabulary_size)
        state = _read_state(Path(files[1]), _count(settings))
    except OSError as error:
        raise FileNotFoundError(_not_there(name, download)) from error
    except ValueError as error:
        raise ValueError(f"model.pretrained={name}: {error}") from error
    configuration, network = _classes(masked)
    try:
        found, report = network.from_pretrained(
            None,
            config=configuration(**settings | changes),
            state_dict=state,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
    except RuntimeError as error:
        raise ValueError(f"model.pretrained={name} cannot be read: {error}") from error
    missing = sorted(set(report["missing_keys"]) - _NEW_LAYERS)
    if missing:
        raise ValueError(f"model.pretrained={name} lacks {len(missing)} parameters, such as {missing[0]}")
    return found


def _read_settings(path: Path, vocabulary_size: int) -> dict[str, Any]:
    """The settings of a BERT in a config.json.

    Other keys do not change the network, or name code, and are not read. Raises ``ValueError`` for a
    model that is not a BERT or does not have ``vocabulary_size`` words, for settings that are not
    supported, and for sizes that are too large.
    """
    _require_size(path, _MOST_CONFIG_BYTES)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must contain a JSON object, got {type(content).__name__}")
    kind = content.get("model_type")
    if kind != "bert":
        raise ValueError(f"config.json: model_type must be 'bert', got {_shown(kind)}")
    defaults = _classes(masked=False)[0]()
    settings = {key: content.get(key, getattr(defaults, key)) for key in (*_COUNTS, *_SHARES)}
    for key in ("hidden_act", "initializer_range", "layer_norm_eps", "pad_token_id"):
        settings[key] = content.get(key, getattr(defaults, key))
    for key in _COUNTS:
        _require(
            key, settings[key], type(settings[key]) is int and 0 < settings[key] < 2**31, "an integer >= 1"
        )
    words = settings["vocab_size"]
    if words != vocabulary_size:
        raise ValueError(
            f"the vocabulary must be the pretrained model's: {words} units in {path.name}, "
            f"{vocabulary_size} in the data"
        )
    for key in _SHARES:
        value = settings[key]
        is_share = type(value) in (int, float) and 0 <= value < 1
        _require(key, value, is_share or (key == "classifier_dropout" and value is None), "in [0, 1)")
    for key in ("initializer_range", "layer_norm_eps"):
        value = settings[key]
        _require(key, value, type(value) in (int, float) and 0 < value <= 1, "in (0, 1]")
    padding = settings["pad_token_id"]
    is_word = padding is None or (type(padding) is int and 0 <= padding < words)
    _require("pad_token_id", padding, is_word, "null or the id of a unit")
    _require(
        "hidden_act",
        settings["hidden_act"],
        settings["hidden_act"] in _ACTIVATIONS,
        " or ".join(_ACTIVATIONS),
    )
    heads, width = settings["num_attention_heads"], settings["hidden_size"]
    _require("num_attention_heads", heads, width % heads == 0, f"a divisor of hidden_size, {width}")
    for key, usual in (("is_decoder", False), ("add_cross_attention", False), ("tie_word_embeddings", True)):
        _require(key, content.get(key, usual), content.get(key, usual) is usual, json.dumps(usual))
    for key in ("pruned_heads", "quantization_config"):
        _require(key, content.get(key), not content.get(key), "empty")
    kind = content.get("position_embedding_type", "absolute")
    _require("position_embedding_type", kind, kind == "absolute", "absolute")
    if _count(settings) > _MOST_PARAMETERS:
        raise ValueError(f"a model must have at most {_MOST_PARAMETERS} parameters, got {_count(settings)}")
    return settings


def _count(settings: dict[str, Any]) -> int:
    """Number of parameters of the embeddings and the layers."""
    words, width, layers, _, inside, places, kinds = (settings[key] for key in _COUNTS)
    layer = 4 * width * (width + 1) + inside * (2 * width + 1) + 5 * width
    return (words + places + kinds + 2) * width + layers * layer


def _read_state(path: Path, expected: int) -> dict[str, Tensor]:
    """The tensors of a safetensors file; raises ``ValueError`` for NaN and infinite values.

    Checks first that the file's size is at least that of ``expected`` parameters and at most that of four
    times as many 32-bit parameters.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    size = _require_size(path, 16 * expected + 2**24)
    if size < expected:
        raise ValueError(
            f"{path.name} cannot be read: {expected} parameters do not fit into its {size} bytes"
        )
    try:
        state = load_file(path)
    except (SafetensorError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    for name, tensor in state.items():
        if not (tensor.is_floating_point() or name.endswith("position_ids")):
            raise ValueError(
                f"{path.name} must hold floating-point numbers, got {tensor.dtype} in {_shown(name)}"
            )
        if not tensor.abs().max() <= _LARGEST_WEIGHT:
            raise ValueError(f"{path.name} holds a number that is not finite or too large in {_shown(name)}")
    return state


def _require_size(path: Path, most_bytes: int) -> int:
    size = path.stat().st_size
    if size > most_bytes:
        raise ValueError(f"{path.name} must have at most {most_bytes} bytes, got {size}")
    return size


def _require(key: str, value: object, valid: bool, rule: str) -> None:
    if not valid:
        raise ValueError(f"config.json: {key} must be {rule}, got {_shown(value)}")


def _shown(value: object) -> str:
    return repr(value)[:80]


def _not_there(name: str, download: bool) -> str:
    if Path(name).is_dir():
        return f"model.pretrained={name}: the folder must hold a config.json and a model.safetensors"
    if download:
        return f"model.pretrained={name}: no folder, and the hub has no safetensors model of this name"
    return f"model.pretrained={name}: no folder and no cached download; model.download=true downloads it"
