"""Check of standard JSON, which has no Infinity and NaN."""

import json
from pathlib import Path


def require_json(path: Path) -> None:
    """Check that the file, or each line of a .jsonl file, is standard JSON.

    A checkpoint's description is followed by its checksum, which is no JSON.
    """
    text = path.read_text(encoding="utf-8")
    if path.name.startswith("part-"):
        text = text.splitlines()[0]
    for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
        json.loads(part, parse_constant=lambda word: _refuse(path, word))


def _refuse(path: Path, word: str) -> None:
    raise AssertionError(f"{path}: {word} is no JSON")
