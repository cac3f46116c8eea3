"""Accidental and deliberate damage to a run folder.

Functions of type ``Damage`` take a random generator and the folder. Deliberate changes have recomputed
checksums, so that they can be detected only by the content of the files.
"""

import hashlib
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

SHAPES = (
    b"[]",
    b"null",
    b"5",
    b'"x"',
    b"{}",
    b"",
    b"\xff\xfe",
    b"{" * 500,
    b'{"a": 1, "a": 2}',
    b"[" * 50_000,
)
VALUES = (
    None,
    True,
    "x",
    "",
    -5,
    39,
    1000,
    2**70,
    0.5,
    -1.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [1],
    {"a": 1},
)
FILES = ("metrics.jsonl", "config.yaml", "environment.json", "summary.json")
PARTIAL = ("metrics.partial", "config.yaml.partial", "environment.json.partial", "summary.json.partial")
Damage = Callable[[random.Random, Path], None]


def replace_description(path: Path, **changes: object) -> None:
    """Change fields of a checkpoint's description and recompute its checksum."""
    line = json.dumps(json.loads(path.read_text().split("\n")[0]) | changes)
    path.write_text(f"{line}\n{hashlib.blake2b(line.encode()).hexdigest()}\n")


def facts_of(step: int, num_workers: int, **changes: Any) -> dict[str, Any]:
    """The ``facts`` in a checkpoint's description, of a run without skipped steps and without a search."""
    return {
        "step": step,
        "epoch": step / 10,
        "steps_in_ledger": step,
        "moved": 0,
        "skipped": 0,
        "skipped_in_a_row": 0,
        "last": {},
        "best": {},
        "search": {},
        "optimizer": {"dict": []},
        "average_period": None,
        "seconds": 1.5,
        "num_workers": num_workers,
        "records": [0, hashlib.blake2b().hexdigest()],
    } | changes


def describe(path: Path, description: Any) -> None:
    """Write a description with a correct checksum."""
    line = json.dumps(description)
    path.write_text(f"{line}\n{hashlib.blake2b(line.encode()).hexdigest()}\n")


def described(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text().split("\n")[0])


def forge(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Apply ``change`` to the description of every checkpoint, and update the checksums."""
    for path in sorted(folder.glob("checkpoint/step-*/part-0-*.json")):
        description = described(path)
        change(description)
        describe(path, description)


def forge_facts(folder: Path, **facts: Any) -> None:
    forge(folder, lambda description: description["facts"].update(facts))


def rename(folder: Path, shift: int) -> None:
    """Add ``shift`` to the step of every checkpoint, in its description and its name."""

    def say(description: dict[str, Any]) -> None:
        description["step"] += shift
        for name in ("step", "steps_in_ledger"):
            description["facts"][name] += shift

    forge(folder, say)
    for path in sorted(folder.glob("checkpoint/step-*"), reverse=shift > 0):
        step, *searched = path.name.removeprefix("step-").split(".")
        path.rename(path.with_name(".".join([f"step-{int(step) + shift:09d}", *searched])))


def forge_records(folder: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Apply ``change`` to the lines of metrics.jsonl, and update the checkpoints' facts about them."""
    path = folder / "metrics.jsonl"
    content = path.read_bytes()
    lengths = {}
    for part in folder.glob("checkpoint/step-*/part-0-*.json"):
        length = described(part)["facts"]["records"][0]
        lengths[part] = content[:length].count(b"\n")
    lines = change(content.decode().splitlines(keepends=True))
    path.write_text("".join(lines))
    for part, count in lengths.items():
        kept = "".join(lines[:count]).encode()
        description = described(part)
        description["facts"]["records"] = [len(kept), hashlib.blake2b(kept).hexdigest()]
        describe(part, description)


def forge_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Apply ``change`` to the names and tensors of every checkpoint's first part."""
    for path in sorted(folder.glob("checkpoint/step-*/part-0-*.safetensors")):
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)
        seal(path)


def seal(path: Path) -> None:
    """Update the size and checksum of a changed file in its description."""
    description = described(path.with_suffix(".json"))
    content = path.read_bytes()
    description |= {"bytes": len(content), "blake2b": hashlib.blake2b(content).hexdigest()}
    describe(path.with_suffix(".json"), description)


# Kinds of damage


def shape(draw: random.Random, folder: Path) -> None:
    (folder / draw.choice(FILES)).write_bytes(draw.choice(SHAPES))


def described_shape(draw: random.Random, folder: Path) -> None:
    """Replace a description, with a correct checksum."""
    for path in folder.glob("checkpoint/step-*/part-0-*.json"):
        line = draw.choice(SHAPES)
        path.write_bytes(line + b"\n" + hashlib.blake2b(line).hexdigest().encode() + b"\n")


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all values in ``value``."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, part in inner for found in [(*path, key), *places_in(part, (*path, key))]]


def change_place(draw: random.Random, value: Any) -> None:
    """Change, remove or add a value inside ``value``; the maximum depth is drawn first."""
    paths = places_in(value)
    depth = draw.randint(1, max(map(len, paths)))
    path = draw.choice([path for path in paths if len(path) <= depth])
    for key in path[:-1]:
        value = value[key]
    what = draw.random()
    if what < 0.1 and isinstance(value, dict):
        del value[path[-1]]
    elif what < 0.15 and isinstance(value, dict):
        value["one more"] = draw.choice(VALUES)
    elif what < 0.3 and type(value[path[-1]]) in (int, float):
        value[path[-1]] += draw.choice((-1, 1, 0.5, 1e-9))
    else:
        value[path[-1]] = draw.choice(VALUES)


def description(draw: random.Random, folder: Path) -> None:
    seed = draw.random()
    forge(folder, lambda found: change_place(random.Random(seed), found))


def facts(draw: random.Random, folder: Path) -> None:
    seed = draw.random()
    forge(folder, lambda found: change_place(random.Random(seed), found["facts"]))


def step(draw: random.Random, folder: Path) -> None:
    rename(folder, draw.choice((-1, 1, 2, 1000)))


def record(draw: random.Random, folder: Path) -> None:
    """An invalid value in a record, or another step or epoch. Another loss is not used: it could be valid."""

    def change(lines: list[str]) -> list[str]:
        number = draw.randrange(len(lines))
        found = json.loads(lines[number])
        if draw.random() < 0.5:
            name = draw.choice(("step", "epoch"))
            found[name] = draw.choice([value for value in VALUES if value != found[name]])
        else:
            found[draw.choice(sorted(found))] = draw.choice((None, True, "x", [], {}, float("nan"), 10**400))
        return [*lines[:number], json.dumps(found) + "\n", *lines[number + 1 :]]

    forge_records(folder, change)


def lines(draw: random.Random, folder: Path) -> None:
    """Lines of metrics.jsonl out of order, missing or repeated, or an additional line without a record."""

    def change(found: list[str]) -> list[str]:
        one, other = sorted(draw.sample(range(len(found)), 2))
        ways = (found[::-1], found[:one] + found[one + 1 :], found[:other] + found[one:], ["[]\n", *found])
        return draw.choice(ways)

    forge_records(folder, change)


def tensors(draw: random.Random, folder: Path) -> None:
    """A tensor is missing, or has another shape, type or name."""
    what, chance = draw.randrange(4), draw.random()

    def change(found: dict[str, torch.Tensor]) -> None:
        name = random.Random(chance).choice(sorted(found))
        if what == 0:
            del found[name]
        elif what == 1:
            found[name] = torch.cat([found[name].flatten(), found[name].flatten()])
        elif what == 2:
            found[name] = found[name].to(torch.float64 if found[name].dtype != torch.float64 else torch.int32)
        else:
            found[f"{name}/x"] = found.pop(name)

    forge_tensors(folder, change)


def header(draw: random.Random, folder: Path) -> None:
    """An invalid header of a safetensors file."""
    for path in folder.glob("checkpoint/step-*/part-0-*.safetensors"):
        content = bytearray(path.read_bytes())
        content[: draw.randrange(1, 200)] = draw.randbytes(draw.randrange(1, 200))
        path.write_bytes(content)
        seal(path)


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def swap(draw: random.Random, folder: Path) -> None:
    one, other = draw.sample(files_below(folder), 2)
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


def truncate(draw: random.Random, folder: Path) -> None:
    path = draw.choice(files_below(folder))
    path.write_bytes(path.read_bytes()[: draw.randrange(max(1, path.stat().st_size))])


def flip(draw: random.Random, folder: Path) -> None:
    path = draw.choice([path for path in files_below(folder) if path.stat().st_size])
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def link_places(folder: Path) -> list[Path]:
    """Paths that a run reads or writes, existing or not."""
    saved = [path.relative_to(folder) for path in folder.glob("checkpoint/**/*")]
    names = [*FILES, *PARTIAL, "metrics.previous.jsonl", "checkpoint", "wandb", "wandb/run-id.txt"]
    places = [folder / name for name in (*names, *saved, "checkpoint/step-000000008")]
    places += [folder / path.parent / "part-0-of-1.partial" for path in saved if path.suffix == ".json"]
    return [*places, folder.parent / f".{folder.name}.lock", folder]


def put_link(place: Path, outside: Path) -> None:
    """Move ``place`` to a path in ``outside`` and link to it; if ``place`` is missing, create that path."""
    place.parent.mkdir(exist_ok=True)
    is_folder = place.is_dir() or place.name in ("checkpoint", "wandb") or place.name.startswith("step-")
    target = outside / ("folder" if is_folder else "file")
    if place.exists() or place.is_symlink():
        place.rename(target)
    elif is_folder:
        target.mkdir()
        (target / "theirs").write_text("theirs")
    else:
        target.write_text("theirs")
    place.symlink_to(target)


def link(draw: random.Random, folder: Path) -> None:
    put_link(draw.choice(link_places(folder)), outside_of(folder))


def thing(draw: random.Random, folder: Path) -> None:
    """A pipe or a folder in place of a file, or a file in place of a folder."""
    place = draw.choice(link_places(folder)[:-1])
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():
        place.rename(outside_of(folder) / "moved")
        place.write_text("a file")
        return
    place.unlink(missing_ok=True)
    if draw.random() < 0.5:
        os.mkfifo(place)
    else:
        place.mkdir()


def outside_of(folder: Path) -> Path:
    """A folder outside the run's output; runs must not change it."""
    return folder.parents[2] / "outside"


def state_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Mode and content hash of all entries of a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (about.st_mode, hashlib.blake2b(content).hexdigest())
    return found


KINDS: tuple[Damage, ...] = (
    *(shape, described_shape, description, facts, facts, step, record, lines, tensors, header),
    *(swap, truncate, flip, link, link, thing),
)
NAMES_A_FILE = re.compile(
    r"\.(jsonl?|yaml|lock|partial|safetensors|txt)\b|step-\d{9}|/(checkpoint|wandb)\b|/\w{10}\b"
)
