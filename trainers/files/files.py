"""Reading of a run folder's files, with all checks of their content.

It does not import torch, because results use it too. For a damaged file, readers raise
``UnreadableFileError``, whose message is one line that names the file.
"""

import hashlib
import json
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ValidationError

from trainers.files.plain import Fields, Json
from trainers.files.schemas import Config, Environment, Job, Summary

CHECKPOINT_FORMAT = 1  # others are refused
SUMMARY, RECORDS, CONFIG, ENVIRONMENT = "summary.json", "metrics.jsonl", "config.yaml", "environment.json"
# libyaml's loader takes a tenth of the time of PyYAML's own loader
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


class UnreadableFileError(ValueError):
    """A file with content that a run cannot have written; one line with the file and the reason."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class MissingFileError(UnreadableFileError):
    """A missing file."""


def read_summary(folder: Path) -> Fields:
    """summary.json of a run that finished or failed, with a correct checksum, and so with finite numbers."""
    path = folder / SUMMARY
    summary = parse_json(read_file(path), path)
    require_schema(Summary, summary, path)
    if summary["checksums"][SUMMARY] != _checksum_of(summary, path):
        raise UnreadableFileError(f"{path} was changed after it was written: its checksum is wrong")
    return summary


def read_records(folder: Path, summary: Fields) -> bytes:
    """The bytes of metrics.jsonl, compared with the checksum in ``summary``."""
    path = folder / RECORDS
    content = read_file(path)
    if summary["checksums"][RECORDS] != hashlib.blake2b(content).hexdigest():
        raise UnreadableFileError(
            f"{path} was changed after it was written: it does not have the checksum in {SUMMARY}"
        )
    return content


def read_config(folder: Path) -> Fields:
    """config.yaml: settings by name, as plain values in lists and mappings."""
    path = folder / CONFIG
    text = _decoded(read_file(path), path)
    try:
        config = yaml.load(text, Loader=_YAML)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{path} is not a config: {_one_line(error)}") from error
    require_schema(Config, config, path)
    return config


def read_environment(folder: Path) -> Fields:
    """environment.json, which is informative; runs and reports do not require it."""
    path = folder / ENVIRONMENT
    environment = parse_json(read_file(path), path)
    require_schema(Environment, environment, path)
    return environment


def read_job(path: Path) -> Fields:
    """The record of a sweep's job; the file's name is the job's number."""
    job = parse_json(read_file(path), path)
    require_schema(Job, job, path)
    if str(job["number"]) != path.stem:
        raise UnreadableFileError(f"{path} is the record of job {job['number']}")
    return job


def read_description(path: Path) -> Fields:
    """The description of a checkpoint's part: one line, and the checksum of that line."""
    content = read_file(path)
    line, *rest = content.split(b"\n")
    if rest != [hashlib.blake2b(line).hexdigest().encode(), b""]:
        raise UnreadableFileError(f"{path} was changed after it was written")
    description = parse_json(line, path)
    if description["format"] != CHECKPOINT_FORMAT:
        raise UnreadableFileError(f"{path} has format {description['format']}, not {CHECKPOINT_FORMAT}")
    return description


def read_wandb_id(path: Path) -> str | None:
    """The id of a W&B run, which becomes part of a folder's name; None without a valid file."""
    try:
        name = _decoded(read_file(path), path).strip()
    except UnreadableFileError:
        return None
    return name if re.fullmatch(r"[0-9a-z]{1,64}", name) else None


def printable(text: str) -> str:
    """``text`` as one line without line ends, terminal escapes and invalid characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def summary_checksum(summary: Mapping[str, object]) -> str:
    """Checksum of all fields except ``checksums``, independent of their order and of white space.

    Raises ``ValueError`` for a number that JSON does not have.
    """
    fields = {key: value for key, value in summary.items() if key != "checksums"}
    line = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(line.encode()).hexdigest()


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"{path} is missing") from error
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error.strerror}") from error


def parse_json(content: bytes, path: Path) -> Json:
    """JSON; like Python's json, also with NaN and infinity."""
    try:
        return json.loads(_decoded(content, path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnreadableFileError):
            raise
        raise UnreadableFileError(f"{path} is not JSON: {_one_line(error)}") from error


def require_schema(schema: type[BaseModel], value: object, path: Path) -> None:
    """Raise ``UnreadableFileError`` with the first field that does not match the schema."""
    try:
        schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "its content"
        if first["type"] == "missing":
            raise UnreadableFileError(f"{path} has no {where}") from error
        rule = first["msg"][first["msg"].index("should") :] if "should" in first["msg"] else first["msg"]
        got = _short.repr(first["input"])
        raise UnreadableFileError(f"{path}: {where} {_one_line(rule)}, got {got}") from error


def _checksum_of(summary: Mapping[str, object], path: Path) -> str:
    try:
        return summary_checksum(summary)
    except ValueError as error:
        raise UnreadableFileError(f"{path} holds a number that is not finite") from error


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFileError(f"{path} is not UTF-8") from error


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
