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
# Settings of a config.json that are read; others do not change the network, or name code.
_READ: tuple[str, ...] = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
_READ += ("max_position_embeddings", "type_vocab_size", "hidden_act", "hidden_dropout_prob")
_READ += ("attention_probs_dropout_prob", "classifier_dropout", "initializer_range", "layer_norm_eps")
_READ += ("pad_token_id",)
_FIXED = {"model_type": "bert", "is_decoder": False, "add_cross_attention": False, "pruned_heads": {}}
_FIXED |= {"tie_word_embeddings": True, "position_embedding_type": "absolute", "quantization_config": None}
# Parameters that a pretrained file may lack; they are then initialised.
_NEW_LAYERS = {
    f"{layer}.{part}" for layer in ("classifier", "bert.pooler.dense") for part in ("weight", "bias")
}


class Classifier(nn.Module):
    """Sentence classifier on the last state of the first unit."""

    def __init__(self, network: Any) -> None:  # of transformers
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits [B, classes] of ``tokens`` [B, T]; ``mask`` [B, T] is False for padding."""
        return self.network(input_ids=tokens, attention_mask=mask).logits


class MaskedModel(nn.Module):
    """Model of masked words; the output layer is the embedding's transpose."""

    def __init__(self, network: Any) -> None:  # of transformers
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
        network: Any = _pretrained(pretrained, download, vocabulary_size, masked, changes)
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
    """The network from its two files, a config.json and a model.safetensors."""
    from safetensors.torch import load_file
    from transformers.utils import cached_file, logging

    logging.set_verbosity_error()  # its warnings concern facts that are checked below, or are expected
    logging.disable_progress_bar()
    where = {"local_files_only": not download}
    try:
        described, tensors = (cached_file(name, f, **where) for f in ("config.json", "model.safetensors"))
        if described is None or tensors is None:  # missing, and transformers raised no error
            raise FileNotFoundError
    except OSError as error:
        raise FileNotFoundError(_not_there(name, download)) from error
    configuration, network = _classes(masked)
    try:
        settings = _read_settings(Path(described))
        state = load_file(tensors)
        for part, tensor in state.items():
            if not tensor.isfinite().all():
                raise ValueError(f"{part} in model.safetensors is not finite")
        found, report = network.from_pretrained(
            None,
            config=configuration(**settings | changes),
            state_dict=state,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # the libraries raise many types of errors for damaged files
        raise ValueError(f"model.pretrained={name} cannot be read: {error}") from error
    words = found.config.vocab_size
    if words != vocabulary_size:
        raise ValueError(
            f"model.pretrained={name}: the vocabulary must be the pretrained model's: {words} units in "
            f"config.json, {vocabulary_size} in the data"
        )
    more = [name for name in report["unexpected_keys"] if ".encoder.layer." in f".{name}"]
    if more:
        raise ValueError(f"model.pretrained={name} has more layers than config.json, such as {min(more)}")
    missing = sorted(set(report["missing_keys"]) - _NEW_LAYERS)
    if missing:
        raise ValueError(f"model.pretrained={name} lacks {len(missing)} parameters, such as {missing[0]}")
    return found


def _read_settings(path: Path) -> dict[str, Any]:
    """The settings of a BERT in a config.json. Raises ``ValueError`` for a network of another kind."""
    content = json.loads(path.read_bytes())
    for key, value in _FIXED.items():
        if content.get(key, value) != value:
            raise ValueError(f"{key} in config.json must be {value!r}, got {content[key]!r}")
    return {key: content[key] for key in _READ if key in content}


def _not_there(name: str, download: bool) -> str:
    if Path(name).is_dir():
        return f"model.pretrained={name}: the folder must hold a config.json and a model.safetensors"
    if download:
        return f"model.pretrained={name}: no folder, and the hub has no safetensors model of this name"
    return f"model.pretrained={name}: no folder and no cached download; model.download=true downloads it"
