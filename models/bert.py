"""BERT (Devlin et al., 2019, https://arxiv.org/abs/1810.04805), transformers' implementation.

The small sizes are those of Turc et al., 2019, https://arxiv.org/abs/1908.08962: a head per 64
units of width, and a feed-forward layer four times as wide.
"""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

import data.torchvision_shim  # noqa: F401  has to come before the first import of transformers
from data.checks import is_number, require_count, require_flag, shown

MOST_POSITIONS = 2**17  # each has an embedding, and a square of them goes through every head
SIZES = {"bert_tiny": (2, 128), "bert_mini": (4, 256), "bert_base": (12, 768)}  # layers, width
# What a pretrained BERT need not have, and then starts anew.
_NEW_LAYERS = {
    f"{layer}.{part}" for layer in ("classifier", "bert.pooler.dense") for part in ("weight", "bias")
}


class Classifier(nn.Module):
    """Classes of whole sentences, from the first unit's last state."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits [B, classes] of ``tokens`` [B, T]; ``mask`` [B, T] is False where padded."""
        return self.network(input_ids=tokens, attention_mask=mask).logits


class MaskedModel(nn.Module):
    """Words behind masks; the output layer is the embedding's transpose."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Logits [B, M, words] at the ``positions`` [B, M] of full blocks ``tokens`` [B, T].

        Only there: the output layer is the widest of all, and one position in seven is asked for.
        """
        states = self.network.bert(input_ids=tokens).last_hidden_state  # [B, T, width]
        asked = states.gather(1, positions[..., None].expand(-1, -1, states.shape[-1]))
        return self.network.cls(asked)


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
    """A classifier of sentences, or with ``masked`` a model of masked words, as the data needs it.

    ``config`` is one of ``SIZES``, drawn anew: 109,483,778 parameters for bert_base with 30,522
    words and 2 classes. ``pretrained`` reads a local folder or, with ``download``, a name on the
    hub instead; only safetensors, as the other format is a pickle. ``max_length`` is the data's
    longest input, ``positions`` how many the model has (default 512), ``dropout`` the share
    dropped everywhere (default what the configuration says, 0.1). Raises ``ValueError`` for data
    that is neither classified nor masked, a vocabulary or length that the model does not fit, and
    files that hold something else; ``FileNotFoundError`` where there is no pretrained model.
    """
    _check(config, pretrained, download, positions, dropout)
    if num_classes is None and not masked:
        raise ValueError("model=bert needs data with classes or masked words (data.objective=masked)")
    changes: dict[str, Any] = {"attn_implementation": "eager"}  # the same bits wherever it runs
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
        raise ValueError(f"model.positions has no effect beside model.pretrained={pretrained}")


def _classes(masked: bool) -> tuple[Any, Any]:
    """transformers' configuration and network."""
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
    from safetensors import SafetensorError
    from transformers.utils import logging

    logging.set_verbosity_error()  # what it warns of is checked below, or as it should be
    logging.disable_progress_bar()
    configuration, network = _classes(masked)
    where = {"local_files_only": not download}
    try:
        settings = configuration.get_config_dict(name, **where)[0]
        if settings.get("model_type") != "bert":
            raise ValueError(f"model.pretrained={name} must be a BERT, got {settings.get('model_type')!r}")
        words = settings.get("vocab_size")
        if words != vocabulary_size:
            raise ValueError(
                f"the vocabulary must be the pretrained model's: {words} units in model.pretrained={name}, "
                f"{vocabulary_size} in the data"
            )
        found, report = network.from_pretrained(
            name, **where, use_safetensors=True, output_loading_info=True, **changes
        )
    except OSError as error:
        raise FileNotFoundError(_not_there(name, download)) from error
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"model.pretrained={name} cannot be read: {error}") from error
    missing = sorted(set(report["missing_keys"]) - _NEW_LAYERS)
    if missing:
        raise ValueError(f"model.pretrained={name} lacks {len(missing)} parameters, one is {missing[0]}")
    return found


def _not_there(name: str, download: bool) -> str:
    if Path(name).is_dir():
        return f"model.pretrained={name}: the folder must hold a config.json and a model.safetensors"
    if download:
        return (
            f"model.pretrained={name}: no folder, and the hub does not give a safetensors model of that name"
        )
    return f"model.pretrained={name}: no folder, nor a kept download; model.download=true asks the hub"
