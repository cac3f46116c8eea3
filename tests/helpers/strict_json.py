"""Check of standard JSON, which has no Infinity and NaN."""

import json
from pathlib import Path


def require_json(path: Path) -> None:
    """Check that the file, or each of its lines that starts with a bracket, is standard JSON."""
    text = path.read_text(encoding="utf-8")
    is_whole = path.name in ("summary.json", "environment.json")
    for part in [text] if is_whole else text.splitlines():
        if part.startswith(("{", "[")):
            json.loads(part, parse_constant=lambda word: _refuse(path, word))


def _refuse(path: Path, word: str) -> None:
    raise AssertionError(f"{path}: {word} is no JSON")
