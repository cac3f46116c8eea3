"""Plain values: the values of configs, records and other JSON objects."""

from typing import Any

Json = Any  # what a file holds, before its schema was looked at
Config = dict[str, Any]  # resolved: numbers, texts, flags and null in lists and mappings
Fields = dict[str, Any]  # of a JSON object that is read back; ``schemas.py`` has their types and bounds
Record = dict[str, float]  # of metrics.jsonl: a step, an epoch, metrics
