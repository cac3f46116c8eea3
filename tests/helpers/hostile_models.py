"""Hostile pretrained models: invalid configurations and safetensors files."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from glue_files import UNITS, write_sst2
from hostile_files import Damage, Format, put

import data.torchvision_shim  # noqa: F401  must precede the first import of transformers


def write_pretrained(root: Path) -> None:
    """Write SST-2 files, and a BERT in the format of Hugging Face's hub."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    write_sst2(root)
    config = BertConfig(
        vocab_size=len(UNITS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    torch.manual_seed(1)
    BertForMaskedLM(config).save_pretrained(root / "pretrained")


def setting(key: str, value: Any) -> Damage:
    return put(lambda content: json.dumps(json.loads(content) | {key: value}).encode())


SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
SIZES += ("max_position_embeddings", "type_vocab_size")
WRONG = (0, -1, 10**9, 2**62, 10**400, 1.5, "2", None, [], True)
OTHERS = {
    "hidden_act": ("evil", None, 3, ["gelu"], {}),
    "hidden_dropout_prob": (2, -1, "0.1", None, float("nan")),
    "attention_probs_dropout_prob": (1.5, []),
    "classifier_dropout": ("x", 7),
    "initializer_range": (float("inf"), "x", -1, 1e300),
    "layer_norm_eps": (0, -1, float("nan"), "x", 1e300),
    "pad_token_id": (-1, 10**9, "x", 1.5),
    "model_type": ("gpt2", None, 5, []),
    "is_decoder": (True, "x"),
    "add_cross_attention": (True,),
    "tie_word_embeddings": (False, "x"),
    "id2label": ({"0": "a"}, [], 5, {"x": "y"}),
    "num_labels": (10**9, "x"),
    "pruned_heads": ({"0": [0]}, {"0": [0, 1]}, 5),
    "chunk_size_feed_forward": (10**9, 3, "x"),
    "quantization_config": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, {}, 5),
    "auto_map": ({"AutoModel": "evil.Model"}, 5),
    "dtype": ("float16", "evil", 5),
    "torch_dtype": ("float64", "complex64"),
    "attn_implementation": ("evil/kernel", 5),
    "_attn_implementation": ("flash_attention_2",),
    "architectures": (5, ["Evil"]),
    "problem_type": ("regression", 5),
    "output_hidden_states": (True, "x"),
    "return_dict": (False,),
    "gradient_checkpointing": (True,),
    "transformers_version": (5, "99"),
    "position_embedding_type": ("relative_key", 5),
    "bert": (5,),
    "from_pretrained": (5,),
    "__class__": ("x",),
}
CONFIG: dict[str, Damage] = {
    **{
        f"config is {text[:12]}": put(text.encode())
        for text in ("[]", "null", "5", '"x"', "{}", "true", "NaN", "[{}]")
    },
    "nested 100000 deep": put(b"[" * 100_000),
    "nested 100000 deep within": put(lambda content: b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "100 MB": put(lambda content: content[:-2] + b',"a":"' + b"x" * 10**8 + b'"}'),
    "a key twice": put(lambda content: content.rstrip()[:-1] + b',"num_hidden_layers": 1000000000}'),
    **{f"{key}={str(value)[:12]}": setting(key, value) for key in SIZES for value in WRONG},
    **{f"{key}={str(value)[:30]}": setting(key, value) for key, values in OTHERS.items() for value in values},
}


def header(change: Callable[[dict], Any]) -> Damage:
    """Damage: a changed header before the same tensors."""

    def changed(content: bytes) -> bytes:
        (length,) = struct.unpack("<Q", content[:8])
        said = change(json.loads(content[8 : 8 + length]))
        text = said if isinstance(said, bytes) else json.dumps(said).encode()
        return struct.pack("<Q", len(text)) + text + content[8 + length :]

    return put(changed)


def of_all(**fields: Any) -> Callable[[dict], dict]:
    return lambda said: {
        name: part | (fields if name != "__metadata__" else {}) for name, part in said.items()
    }


def numbers(value: bytes) -> Damage:
    """Damage: ``value`` in place of every number of every tensor."""

    def changed(content: bytes) -> bytes:
        (length,) = struct.unpack("<Q", content[:8])
        return content[: 8 + length] + value * ((len(content) - 8 - length) // 4)

    return put(changed)


def _index(path: Path, draw: Random) -> None:
    """Replace the file by an index of several files."""
    path.rename(path.with_name("other.safetensors"))
    index = {"metadata": {}, "weight_map": {"bert.x": "../../../etc/passwd", "y": "other.safetensors"}}
    path.with_name("model.safetensors.index.json").write_text(json.dumps(index))


def _pickle(path: Path, draw: Random) -> None:
    path.unlink()
    path.with_name("pytorch_model.bin").write_bytes(b"\x80\x04.")


TENSORS: dict[str, Damage] = {
    "header of 2^62 bytes": put(lambda content: struct.pack("<Q", 2**62) + content[8:]),
    "header of 99 MB": put(lambda content: struct.pack("<Q", 99_000_000) + content[8:]),
    "header of no bytes": put(lambda content: struct.pack("<Q", 0) + content[8:]),
    "header is []": header(lambda said: []),
    "header is no json": header(lambda said: b"{" * 1000),
    "header nested": header(lambda said: b'{"a":' * 100_000),
    "no tensors": header(lambda said: {}),
    "shapes huge": header(of_all(shape=[2**40])),
    "shapes negative": header(of_all(shape=[-1])),
    "no shapes": header(of_all(shape=[])),
    "all at one place": header(of_all(data_offsets=[0, 64])),
    "beyond the end": header(of_all(data_offsets=[2**40, 2**41])),
    "backwards": header(of_all(data_offsets=[64, 0])),
    "other numbers": header(of_all(dtype="I32")),
    "unknown numbers": header(of_all(dtype="X7")),
    "other names": header(
        lambda said: {f"x.{name}" if "." in name else name: part for name, part in said.items()}
    ),
    "flat": header(
        lambda said: {
            name: part
            | ({"shape": [part["shape"][0] * part["shape"][-1]]} if len(part.get("shape", [])) == 2 else {})
            for name, part in said.items()
        }
    ),
    "not numbers": numbers(struct.pack("<f", float("nan"))),
    "infinite": numbers(struct.pack("<f", float("inf"))),
    "huge": numbers(struct.pack("<f", 3e38)),
    "a list of files": _index,
    "a pickle": _pickle,
}
PRETRAINED = ("data=sst2", "model=bert", "schedule=constant", "model.pretrained=ROOT/pretrained")
MODELS = {
    "config.json": Format(PRETRAINED, write_pretrained, "pretrained/config.json", CONFIG),
    "safetensors": Format(PRETRAINED, write_pretrained, "pretrained/model.safetensors", TENSORS),
}
