"""Program that compares two checkpoints tensor by tensor; its argument and its output are JSON.

``python -m results deltas`` runs it.
"""

import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from trainers.deltas.delta import as_seen, change_of

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, None: None}


def compare(old: str, new: str, dtype: str | None) -> dict[str, Any]:
    """Tensors, words and bytes by group, which is a name with * in the place of its numbers; removed names.

    ``old`` and ``new`` are safetensors files, or folders with some. One pair of tensors is in memory at a
    time. Raises ``ValueError`` and ``OSError``.
    """
    groups: dict[str, dict[str, int]] = {}
    with ExitStack() as stack:
        before, after = (_tensors(Path(path), stack) for path in (old, new))
        for name, file in after.items():
            pair = [before[name].get_tensor(name)] if name in before else []
            seen = [as_seen({name: x}, DTYPES[dtype])[name] for x in (*pair, file.get_tensor(name))]
            change = change_of(seen[0] if pair else None, seen[-1])
            is_sent = change.num_changed or not pair
            own = {
                "tensors": 1,
                "words": change.num_words,
                "changed": change.num_changed,
                "whole_bytes": seen[-1].nbytes,
                "delta_bytes": change.content.nbytes if is_sent else 0,
            }
            group = groups.setdefault(re.sub(r"\d+", "*", name), dict.fromkeys(own, 0))
            for key, value in own.items():
                group[key] += value
        return {"groups": groups, "removed": sorted(before.keys() - after.keys())}


def _tensors(path: Path, stack: ExitStack) -> dict[str, Any]:
    """The opened file of every tensor, by the tensor's name."""
    found: dict[str, Any] = {}
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    for own in files:
        try:
            file = stack.enter_context(safe_open(own, framework="pt"))
        except SafetensorError as error:
            raise ValueError(f"{own} is not a safetensors file: {error}") from error
        for name in file.keys():  # noqa: SIM118 (not a dict)
            if name in found:
                raise ValueError(f"{own}: {name} is in another file of the folder too")
            found[name] = file
    if not files:
        raise FileNotFoundError(f"no safetensors file in {path}")
    return found


if __name__ == "__main__":
    try:
        print(json.dumps(compare(**json.loads(sys.argv[1]))))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
