"""Damaged and hostile data files: read within bounds with a valid result, or refused in one line."""

import math
import os
import shutil
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import hostile_archives
import hostile_images
import pytest
import torch
from attempts import Attempt, attempt
from command_line import command
from configs import resolved
from file_damage import DAMAGE
from hostile_files import FORMATS, TRAINING
from hostile_models import MODELS

from trainers.comm.communicator import Communicator
from trainers.config.errors import ConfigError, one_line, refusing
from trainers.run.build import build_training

FORMATS |= MODELS
DRAWN = 500
PER_COMMAND = 10  # one case in this many also runs through run.py
REFUSALS = (ConfigError, OSError)  # an image that cannot be read during training raises ``OSError``
MEGABYTES, SECONDS = 1500, 20  # limit for reading a file


class Case(NamedTuple):
    format: str
    damage: str
    number: int

    def __str__(self) -> str:
        return f"{self.format}: {self.damage} ({self.number})"


def cases() -> list[Case]:
    """Each format's own damage once, then ``DRAWN`` random cases of all damage and formats."""
    found = [(name, damage) for name, kind in FORMATS.items() for damage in kind.own]
    draw = Random(0)
    pairs = [(name, damage) for name in FORMATS for damage in DAMAGE]
    found += draw.sample(pairs, DRAWN)
    return [Case(*pair, number) for number, pair in enumerate(found)]


def words_of(case: Case, root: Path) -> list[str]:
    words = [word.replace("ROOT", str(root)) for word in FORMATS[case.format].words]
    return [
        *words,
        *TRAINING,
        f"data.root={root}",
        "compressor=none",
        "tracker=none",
        "feedback=none",
        "name=hostile",
    ]


@cache
def config_of(words: tuple[str, ...]) -> dict[str, Any]:
    return resolved(*words)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A valid dataset of every format, read once, so that forks have all imports and kernels."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # OpenMP's threads would be missing in a fork
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folder = tmp_path_factory.mktemp("honest")
    for name in FORMATS:
        write_honest(name, folder)
    yield folder
    torch.set_num_threads(threads)


def write_honest(name: str, folder: Path) -> None:
    """Write a dataset and read it from the path of its damaged copies, so that its config is composed."""
    (folder / name).mkdir()
    FORMATS[name].write(folder / name)
    shutil.copytree(folder / name, folder / "root")
    read(words_of(Case(name, "", 0), folder / "root"))
    shutil.rmtree(folder / "root")


def damaged(case: Case, honest: Path) -> Path:
    """Copy the valid dataset and damage one file; returns its path."""
    shutil.copytree(honest / case.format, honest / "root")
    draw = Random(case.number)
    kind = FORMATS[case.format]
    path = draw.choice(sorted((honest / "root").glob(kind.files)))
    (kind.own.get(case.damage) or DAMAGE[case.damage])(path, draw)
    return path


def read(words: list[str]) -> None:
    """Build all parts of a run, and check its training and test batches."""
    if words[0].startswith("archive="):
        with refusing():
            hostile_archives.take(Path(words[0].removeprefix("archive=")))
        return
    with refusing():
        config = deepcopy(config_of(tuple(words)))
        trainer = build_training(config, Communicator(config["workers"]), torch.device("cpu"))
    batches = trainer.loader.batches(0)
    if config["data"]["_target_"] == "data.convex.libsvm.libsvm":
        assert math.isfinite(trainer.model.start_value) and trainer.num_steps == 1
        return
    for batch in batches:
        check(batch)
        loss, _ = trainer.dataset.task.loss(trainer.model, batch, None)
        assert loss.isfinite(), loss
    for split, samples in trainer.dataset.held_out.items():
        check(trainer.dataset.held_out_batch(split, torch.arange(min(8, len(samples)))))


def check(batch: Any) -> None:
    for name, part in batch._asdict().items():
        if isinstance(part, torch.Tensor):
            assert part.numel() and part.isfinite().all() and part.double().abs().max() < 2**31, name


def faults(case: Case, path: Path, found: Attempt) -> list[str]:
    """The faults of how a file was read or refused."""
    wrong = []
    if found.kind not in ("loaded", "refused"):
        wrong.append(found.said.strip()[-1500:])
    if found.kind == "refused" and not names(found.said, path):
        wrong.append(f"does not name {path}: {found.said}")
    if found.kind == "refused" and ("\n" in found.said or len(found.said) > 1000):
        wrong.append(f"is no line: {found.said[:1000]}")
    if found.megabytes > MEGABYTES:
        wrong.append(f"took {found.megabytes:.0f} MB")
    if found.seconds > SECONDS:
        wrong.append(f"took {found.seconds:.0f} s")
    return wrong


def names(said: str, path: Path) -> bool:
    """Whether a line names the file, its folder, or the dataset that it is a part of."""
    folders = [one_line(OSError(place)) for place in (path, *path.parents[:2])]
    split = any(f"the {split} split" in said for split in ("training", "validation", "test"))
    return split or any(folder in said for folder in folders) or path.stem in said.replace(":", "").split()


@pytest.mark.slow
def test_hostile_files(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = tmp_path / "ghostscript"
    monkeypatch.setenv("PATH", f"{hostile_images.fake_ghostscript(tmp_path, marker)}:{os.environ['PATH']}")
    wrong, kinds = {}, {"loaded": 0, "refused": 0}
    chosen = cases()
    for case in chosen:
        root = honest / "root"
        path = damaged(case, honest)
        words = words_of(case, root)
        found = attempt(lambda words=words: read(words), REFUSALS)
        kinds[found.kind] = kinds.get(found.kind, 0) + 1
        problems = faults(case, path, found)
        if case.number % PER_COMMAND == 0 and not problems and not words[0].startswith("archive="):
            problems += faults_of_command(words, tmp_path / "output", found)
        if marker.exists():
            problems.append("looked for Ghostscript")
            marker.unlink()
        if problems:
            wrong[str(case)] = problems
            print(f"{case}: {problems}", flush=True)
        shutil.rmtree(root)
    print(kinds)
    assert not wrong, f"{len(wrong)} of {len(chosen)}: {list(wrong)}"
    assert min(kinds["loaded"], kinds["refused"]) > len(chosen) // 20


def faults_of_command(words: list[str], output: Path, found: Attempt) -> list[str]:
    """The faults of run.py's output for the same file."""
    result = command(*words, f"output={output}")
    shutil.rmtree(output, ignore_errors=True)
    if result.returncode == 0:
        return [] if found.kind == "loaded" else ["run.py trained with it"]
    one_line = result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return [] if one_line and "Traceback" not in result.stdout else [f"run.py says: {result.stderr[-1500:]}"]
