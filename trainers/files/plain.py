"""Plain values: the values of configs, records and other JSON objects."""

from typing import Any

Json = Any  # content of a file before its schema is checked
Config = dict[str, Any]  # resolved: numbers, strings, flags and null in lists and mappings
Fields = dict[str, Any]  # fields of a JSON object from a file; ``schemas.py`` has their types and bounds
Record = dict[str, float]  # line of metrics.jsonl: step, epoch, metrics
