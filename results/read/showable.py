"""Checks of a run folder's content before tables, figures and pages show it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from results.escaping import one_line

LONGEST_TEXT = 500  # characters of a name or setting
LONGEST_METHOD = 1000  # characters of a method with all its settings
LARGEST_NUMBER = 1e150  # the squares of larger ones are infinite
LARGEST_INTEGER = 2**63 - 1
MOST_LAYERS = 10_000
FILES = ("config.yaml", "metrics.jsonl", "summary.json", "environment.json")
_MAPPINGS = ("optimizer", "schedule", "wire", "budget")  # optional settings of a config
_WORDS = ("feedback.scale", "data.name", "data.partition", "scope")
_NUMBERS = ("trainer.epochs", "trainer.steps", "trainer.batch_size", "workers", "optimizer.lr", "data.alpha")
_NUMBERS += ("model.l2", "model.offset")
_OF_THRESHOLD = ("compressor.threshold", "compressor.density")  # numbers of compressor=hard_threshold
PROBLEM = ("smoothness", "start_value", "optimum_value")  # fields of a summary; each must be a number


def require_within(folder: Path) -> None:
    """Raise ``ValueError`` for a link to a path outside the run folder or to a missing file.

    A file outside the folder does not belong to the run.
    """
    own = folder.resolve()
    for name in FILES:
        path = folder / name
        if not path.is_symlink():
            continue
        try:
            leads_to = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:  # a loop of links raises RuntimeError before Python 3.13
            raise ValueError(f"{name} is a link that leads nowhere") from error
        if not leads_to.is_relative_to(own):
            raise ValueError(f"{name} is a link that leads out of the folder")


def require_config(config: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for settings that cannot be shown or compared."""
    _require_plain(config, "config.yaml")
    for key in _MAPPINGS:
        if not isinstance(config.get(key, {}), dict):
            raise ValueError(f"config.yaml: {key} must be a mapping, got {_short(config[key])}")
    is_threshold = str(_at(config, "compressor._target_")).endswith(".HardThreshold")
    for key in (*_WORDS, *_NUMBERS, *(_OF_THRESHOLD if is_threshold else ())):
        value = _at(config, key)
        kinds = (str,) if key in _WORDS else (int, float)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            kind = "text" if key in _WORDS else "a number"
            raise ValueError(f"config.yaml: {key} must be {kind}, got {_short(value)}")
    if is_threshold and (density := _at(config, "compressor.density")) is not None and density <= 0:
        raise ValueError(f"config.yaml: compressor.density must be > 0, got {density}")


def require_summary(summary: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for totals and facts that a table cannot show."""
    _require_plain(summary, "summary.json")
    if len(summary.get("layers", {})) > MOST_LAYERS:
        raise ValueError(f"summary.json: {len(summary['layers']):,} layers, more than {MOST_LAYERS:,}")
    if "layers" in summary and not any(layer["elements"] for layer in summary["layers"].values()):
        raise ValueError("summary.json: layers has no elements")
    if not isinstance(summary.get("data", {}).get("name", ""), str):
        raise ValueError(f"summary.json: data.name must be text, got {_short(summary['data']['name'])}")
    problem = summary.get("problem")
    if problem and not all(type(problem.get(key)) in (int, float) for key in PROBLEM):
        raise ValueError(f"summary.json: problem must have the numbers {', '.join(PROBLEM)}")


def require_method(name: str) -> None:
    """Raise ``ValueError`` for a method whose name is too long for a table's row."""
    if len(name) > LONGEST_METHOD:
        raise ValueError(f"config.yaml: the method's settings have {len(name):,} characters")


def _require_plain(nested: Mapping[str, Any], file: str) -> None:
    for key, value in _leaves(nested):
        for text in (key, value) if isinstance(value, str) else (key,):
            if len(text) > LONGEST_TEXT:
                raise ValueError(f"{file}: a text of {len(text):,} characters, more than {LONGEST_TEXT}")
            if not text.isprintable():
                raise ValueError(f"{file}: {_short(text)} holds characters that cannot be shown")
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise ValueError(f"{file}: {one_line(key)} has more than 63 bits")
        if isinstance(value, float) and not abs(value) <= LARGEST_NUMBER:
            raise ValueError(
                f"{file}: {one_line(key)} must be a number up to {LARGEST_NUMBER:g}, got {value}"
            )


def _leaves(nested: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is not a mapping or list, with its last key."""
    if isinstance(nested, dict):
        for name, value in nested.items():
            if isinstance(value, (dict, list)):
                yield name, None
            yield from _leaves(value, name)
    elif isinstance(nested, list):
        for value in nested:
            yield from _leaves(value, key)
    else:
        yield key, nested


def _at(config: Mapping[str, Any], key: str) -> Any:
    group, _, name = key.rpartition(".")
    return (config.get(group) or {}).get(name) if group else config.get(name)


def _short(value: object) -> str:
    shown = one_line(ascii(value))
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
