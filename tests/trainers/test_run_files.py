"""Files of a run folder: as a run writes them, or refused in one line that names the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from trainers.files.atomic import write_whole
from trainers.files.files import (
    MissingFileError,
    UnreadableFileError,
    read_config,
    read_environment,
    read_records,
    read_summary,
    read_wandb_id,
)

READERS: dict[str, Callable[[Path], Any]] = {
    "summary.json": read_summary,
    "config.yaml": read_config,
    "environment.json": read_environment,
}
SHAPES = {
    "list": b"[]",
    "null": b"null",
    "number": b"5",
    "text": b'"a"',
    "nothing": b"",
    "not UTF-8": b'{"a": "\xff"}',
    "NUL": b"\0",
    "digits": b"9" * 5000,
}


def refusal(name: str, folder: Path) -> str:
    with pytest.raises(UnreadableFileError) as caught:
        READERS[name](folder)
    assert str(folder / name) in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_what_a_run_wrote_is_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, seed=3)
    assert read_summary(folder)["seed"] == read_config(folder)["seed"] == 3
    assert read_environment(folder)["commit"] == "a" * 40


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", READERS)
def test_other_shapes(tmp_path: Path, name: str, shape: str) -> None:
    folder = write_run(tmp_path)
    (folder / name).write_bytes(SHAPES[shape])
    refusal(name, folder)


@pytest.mark.parametrize("name", READERS)
def test_places_that_are_no_files(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path)
    path = folder / name
    path.unlink()
    with pytest.raises(MissingFileError):
        READERS[name](folder)
    path.mkdir()
    refusal(name, folder)


SUMMARY, CONFIG, ENVIRONMENT = READERS


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        (SUMMARY, {"status": "done"}, "status should be 'finished' or 'failed', got 'done'"),
        (SUMMARY, {"layers": {"a": {"elements": -2}}}, "layers.a.elements should be greater"),
        (SUMMARY, {"test/perplexity": float("inf")}, "holds a number that is not finite"),
        (
            SUMMARY,
            {
                "checksums": dict.fromkeys(("metrics.jsonl", SUMMARY), "0" * 128),
                "data": {"x": [float("nan")]},
            },
            "holds a number that is not finite",
        ),
        (ENVIRONMENT, {"commit": "x\ny"}, "commit should match pattern"),
    ],
)
def test_fields(tmp_path: Path, name: str, fields: dict[str, Any], said: str) -> None:
    folder = write_run(tmp_path)
    change(folder / name, **fields)
    assert said in refusal(name, folder)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (CONFIG, "a: !!python/object:os.system {}\n", "could not determine a constructor"),
        (CONFIG, "seed: 0\n", "has no name"),
    ],
)
def test_texts(tmp_path: Path, name: str, text: str, said: str) -> None:
    folder = write_run(tmp_path)
    (folder / name).write_text(text)
    assert said in refusal(name, folder)


def test_checksums_hold(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    assert read_summary(folder) == summary
    assert read_records(folder, summary) == (folder / "metrics.jsonl").read_bytes()
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace("0.9", "0.8"))
    with pytest.raises(UnreadableFileError, match=r"metrics\.jsonl was changed after it was written"):
        read_records(folder, summary)


def test_one_digit_of_a_summary(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    path = folder / "summary.json"
    text = path.read_text()
    digits = [i for i in range(text.index('"checksums"')) if text[i].isdigit()]
    for i in digits:
        path.write_text(f"{text[:i]}{9 - int(text[i])}{text[i + 1 :]}")
        refusal("summary.json", folder)


@pytest.mark.parametrize(
    ("content", "name"), [(b"ab12cd34\n", "ab12cd34"), (b"../x", None), (b"", None), (b"\xff", None)]
)
def test_the_id_of_a_wandb_run(tmp_path: Path, content: bytes, name: str | None) -> None:
    (tmp_path / "run-id.txt").write_bytes(content)
    assert read_wandb_id(tmp_path / "run-id.txt") == name


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.json", "ours")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a.json", "\ud800")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["ours"]
