"""Hostile run folders: valid run folders with one random change."""

import json
import os
import random
from pathlib import Path
from typing import Any

import yaml
from run_folders import TARGETS, write_run

# Texts that a page, table or figure could misinterpret or cannot show
TEXTS = (
    "<script>hacked=1</script>",
    "<img src=x onerror=hacked=1>",
    "$x^$",
    "$",
    "=1+1",
    "@SUM(A1)",
    "-2+3",
    "| a | b |",
    "`a` **b** [c](javascript:d)",
    "\\input{/etc/passwd}",
    "[2cm]",
    "../../outside",
    "_hidden",
    "",
    ".",
    "1.2.3",
    "density 1.2.3",
    "a\nb",
    "\x1b[2J",
    "\u202eabc",
    "\ud800",
    "\0",
    "é漢😀",
    "漢" * 200,
    "x" * 5000,
    "%{x} {{ 7*7 }} {0}",
    "nan",
)
NUMBERS = (-1, 0, -0.0, 10**400, -(10**30), 2**63, 2**63 - 1, 1e308, -1e308, 1e149, 5e-324, 1e-200)
NUMBERS += (float("nan"), float("inf"), 0.5, 3, True)
SHAPES = (None, [], {}, [[]], [1, [2]], {"a": {"b": 1}}, [None], {"_target_": "os.system"}, ["top_k"])
CONTENTS = (
    b"",
    b"[]",
    b"null",
    b"5",
    b'"text"',
    b"{}",
    b"{",
    b"\xff\xfe",
    b"\0" * 100,
    b"[" * 200_000,
    b'{"a":' * 100_000,
    b'{"step": 1, "step": 2}\n',
    b"a: 1\na: 2\n",
    b"a: &a [*a]\n",
    b"a: !!python/object/apply:os.system [x]\n",
    b'{"step": 1e400}\n' * 50,
    b'{"step": -5, "train/loss": 1}\n',
    b'{"step": 9223372036854775807, "train/loss": 1}\n',
)
FILES = ("summary.json", "config.yaml", "metrics.jsonl", "environment.json")


def write_hostile(folder: Path, seed: int, workers: int) -> str:
    """Write a run folder with one hostile change below ``folder``; returns a description of the change.

    ``workers`` is a setting of the run.
    """
    draw = random.Random(seed)
    compressor = draw.choice(sorted(TARGETS))
    name = f"hostile-{compressor}"
    path = write_run(folder, name=name, compressor=compressor, seed=draw.randrange(3), workers=workers)
    changes = (_replace_file, _replace_file, _link, *[_change_value] * 8, *[_rename] * 3, _remove, _grow)
    return f"seed {seed}: {draw.choice(changes)(path, draw)}"


def _replace_file(path: Path, draw: random.Random) -> str:
    name, content = draw.choice(FILES), draw.choice(CONTENTS)
    (path / name).write_bytes(content)
    return f"{name} is {content[:40]!r}"


def _link(path: Path, draw: random.Random) -> str:
    """Remove a file, or replace it by a folder, a pipe, or a link to another file, itself or a device."""
    name, kind = draw.choice(FILES), draw.choice(("nothing", "folder", "pipe", "out", "loop", "device"))
    file = path / name
    content = file.read_bytes()
    file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "out":
        outside = path.parent / f"outside-{name}"
        outside.write_bytes(content)
        file.symlink_to(outside)
    elif kind == "loop":
        file.symlink_to(name)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    return f"{name} is {kind}"


def _change_value(path: Path, draw: random.Random) -> str:
    value = draw.choice(draw.choice((TEXTS, NUMBERS, SHAPES)))
    return _edit(path, draw, lambda inside, key: inside.__setitem__(key, value), f"is {value!r:.60}")


def _rename(path: Path, draw: random.Random) -> str:
    name = draw.choice(TEXTS)
    return _edit(
        path, draw, lambda inside, key: inside.__setitem__(name, inside.pop(key)), f"is {name!r:.60}"
    )


def _remove(path: Path, draw: random.Random) -> str:
    return _edit(path, draw, lambda inside, key: inside.pop(key), "is not there")


def _grow(path: Path, draw: random.Random) -> str:
    """Add 100 or 3000 keys."""
    many = {f"k{i}": i for i in range(draw.choice((100, 3000)))}
    return _edit(path, draw, lambda inside, key: inside.update(many), f"and {len(many)} others")


def _edit(path: Path, draw: random.Random, change: Any, said: str) -> str:
    """Change one key of one file, at any depth; in metrics.jsonl, in the last line or in all lines."""
    name = draw.choice(("summary.json", "config.yaml", "config.yaml", "metrics.jsonl", "environment.json"))
    file = path / name
    text = file.read_text()
    if name == "metrics.jsonl":
        records = [json.loads(line) for line in text.splitlines()]
        key = draw.choice(sorted(records[0]))
        for record in draw.choice((records, records[-1:])):
            change(record, key)
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        return f"{name}: {key} {said}"
    whole = yaml.safe_load(text) if name == "config.yaml" else json.loads(text)
    inside, key, places = whole, draw.choice(sorted(whole)), []
    while isinstance(inside[key], dict) and inside[key] and draw.random() < 0.8:
        places.append(key)
        inside = inside[key]
        key = draw.choice(sorted(inside))
    change(inside, key)
    file.write_text(_as_yaml(whole) if name == "config.yaml" else json.dumps(whole))
    return f"{name}: {'.'.join([*places, key])} {said}"


def _as_yaml(config: Any) -> str:
    """YAML text in ASCII, because a lone surrogate can be written only as an escape."""
    return yaml.safe_dump(config, allow_unicode=False)
