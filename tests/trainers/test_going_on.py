"""The start of a run: from its own last valid checkpoint, from none, or from a given one."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from resuming import assert_same, config_of, crash_after, outcome, records, train

from results.read.folders import read_runs
from results.read.matching import by_setting
from trainers.config.errors import ConfigError
from trainers.launch.stopping import StoppedError, StopRequest
from trainers.run import session, training
from trainers.run.folder import RunFolder, identity_of

SETTINGS = (
    *("model=mlp", "data=digits", "compressor=top_k", "workers=4", "trainer.batch_size=8"),
    *("trainer.steps=9", "trainer.evaluate_every=100", "checkpoint.every_steps=2"),
)


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train(config_of(tmp_path_factory.mktemp("whole"), *SETTINGS))


def interrupted(output: Path, *overrides: str) -> tuple[dict[str, Any], RunFolder]:
    """A run that was interrupted after step 7, with checkpoints of steps 4 and 6."""
    config = config_of(output, *SETTINGS, *overrides)
    with crash_after(7):
        training.train(config)
    folder = RunFolder(config)
    assert sorted(p.name for p in folder.checkpoints.iterdir()) == ["step-000000004", "step-000000006"]
    return config, folder


def damage_the_last(folder: RunFolder) -> None:
    (part,) = (folder.checkpoints / "step-000000006").glob("*.safetensors")
    part.write_bytes(part.read_bytes()[:-1])


def damage_all(folder: RunFolder) -> None:
    for part in folder.checkpoints.glob("*/*.json"):
        part.write_text("{}")


def lose_records(folder: RunFolder) -> None:
    """Truncate the records between the two checkpoints."""
    lines = folder.metrics.read_text().splitlines(keepends=True)
    folder.metrics.write_text("".join(lines[:5]))


def add_half_a_line(folder: RunFolder) -> None:
    with folder.metrics.open("a") as file:
        file.write('{"step": 8, "epo')


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_the_last, ["step-000000006: part-0-of-1.safetensors was changed after it", "after step 4"]),
        (damage_all, ["starting again"]),
        (lose_records, ["step-000000006: metrics.jsonl was changed after the checkpoint", "after step 4"]),
        (add_half_a_line, ["continuing after step 6"]),
    ],
)
def test_it_goes_on_from_what_is_good(
    damage: Callable[[RunFolder], None],
    said: list[str],
    tmp_path: Path,
    whole: dict[str, Any],
    capsys: pytest.CaptureFixture,
) -> None:
    config, folder = interrupted(tmp_path)
    damage(folder)
    assert_same(whole, train(config))
    told = capsys.readouterr().out
    assert all(words in told for words in said)
    bad = {damage_the_last: 1, damage_all: 2, lose_records: 1, add_half_a_line: 0}[damage]
    assert told.count("a checkpoint cannot be used") == bad
    if damage is damage_all:
        assert (folder.path / "metrics.previous.jsonl").read_text().count("\n") == 7


def test_never(tmp_path: Path, whole: dict[str, Any], capsys: pytest.CaptureFixture) -> None:
    interrupted(tmp_path)
    config = config_of(tmp_path, *SETTINGS, "resume=never")
    assert_same(whole, train(config))
    assert "continuing" not in capsys.readouterr().out


def test_an_earlier_checkpoint_of_its_own(
    tmp_path: Path, whole: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    before, folder = interrupted(tmp_path)
    config = config_of(tmp_path, *SETTINGS, f"resume={folder.checkpoints / 'step-000000004'}")
    config["output"] = os.path.relpath(tmp_path)  # relative, as by default
    assert identity_of(config).id == folder.id
    training.train(config)
    assert_same(whole, outcome(before))
    assert "continuing after step 4" in capsys.readouterr().out


def test_another_runs_checkpoint(tmp_path: Path) -> None:
    """A longer run that starts at the end of a shorter one; it has its own run folder."""
    short = config_of(tmp_path, *SETTINGS)
    trained = train(short)
    longer = config_of(tmp_path, *SETTINGS, "trainer.steps=12", f"resume={RunFolder(short).path}")
    fresh = config_of(tmp_path, *SETTINGS, "trainer.steps=12")
    assert len({identity_of(config).id for config in (short, longer, fresh)}) == 3
    with crash_after(11):
        training.train(longer)
    going_on = train(longer)  # from its own step 10, though resume names step 9
    assert [r["step"] for r in going_on["records"] if "train/loss" in r] == list(range(1, 13))
    assert going_on["records"][: len(trained["records"])] == trained["records"]
    assert RunFolder(short).summary() is not None
    assert RunFolder(longer).summary()["origin"].startswith(f"{RunFolder(short).id} step-000000009 ")
    found = read_runs([tmp_path])
    assert {run.id for run in found} == {run.path.name for run in found}  # also computed from the files
    assert len(by_setting(found)) == 2


def test_another_number_of_workers(tmp_path: Path) -> None:
    before, folder = interrupted(tmp_path)
    asked = f"resume={folder.path}"
    with pytest.raises(ConfigError, match="workers must be 4 as in the checkpoint, got 2"):
        session.run(config_of(tmp_path, *SETTINGS, "workers=2", asked))
    fewer = config_of(tmp_path, *SETTINGS, "workers=2", asked, "checkpoint.redistribute=true")
    result = train(fewer)
    assert [r["step"] for r in result["records"] if "train/loss" in r] == list(range(1, 10))
    seventh = records(RunFolder(fewer))[6]
    sixth = records(RunFolder(before))[5]
    for name in ("compression/total_error", "comm/bytes_sent_total", "comm/paper_bits_total"):
        assert 0 < seventh[name] - sixth[name] < sixth[name] / 2, name


@pytest.mark.parametrize(("length", "last_step"), [("trainer.epochs=2", 45), ("trainer.steps=30", 30)])
def test_another_batch_size(tmp_path: Path, length: str, last_step: int) -> None:
    """With trainer.epochs the epoch goes on, with other steps; with trainer.steps the step goes on."""
    sized = [*SETTINGS[:4], "checkpoint.every_steps=null", "trainer.evaluate_every=100"]
    short = config_of(tmp_path, *sized, "trainer.batch_size=8", "trainer.epochs=0.5")
    last = train(short)["records"][-1]
    twice = config_of(tmp_path, *sized, "trainer.batch_size=16", length, f"resume={RunFolder(short).path}")
    rows = [row for row in train(twice)["records"] if row["step"] > 0]
    epochs = [row["epoch"] for row in rows if "train/loss" in row]
    assert epochs == sorted(epochs) and last["epoch"] in epochs
    assert rows[-1]["step"] == last_step
    if length == "trainer.epochs=2":
        assert max(after - before for before, after in pairwise(epochs)) < 0.07  # one step, rounded
        last_row, samples = [row for row in rows if "train/loss" in row][-1], 45 * 16  # of a worker
        per_sample = last_row["comm/link_bytes_sent_total"] / samples
        assert last_row["comm/link_bytes_per_sample"] == pytest.approx(per_sample)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("resume=nowhere",), "resume must be auto, never or the path of a checkpoint, got 'nowhere'"),
        (("resume=null",), "resume must be auto, never or the path"),
        (("resume=tests",), "resume=tests: there is no checkpoint in this folder"),
    ],
)
def test_refused(tmp_path: Path, change: tuple[str, ...], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        session.run(config_of(tmp_path, *SETTINGS, *change))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return interrupted(tmp_path_factory.mktemp("broken"))[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["model=logistic_regression"], r"does not fit this run: model/.* is .* and .* in this run"),
        (["compressor=none"], "compressor, feedback and scope must be those of the checkpoint"),
        (["trainer.steps=6"], "the checkpoint is at step 6, and this run ends at 6"),
        (["optimizer=adam", "optimizer.lr=0.01"], "optimizer: SGD in the checkpoint and Adam in this run"),
        (
            ["optimizer.momentum=0", "optimizer.nesterov=false"],
            "momentum_buffer is .* and absent in this",
        ),
        (["local=steps"], "local, or trainer.batch_size with hidden states, must be that of the checkpoint"),
        (
            ["trainer.average_reset_epochs=1"],
            "trainer.average_reset_epochs must be null in both or in neither",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit(
    change: list[str], said: str, broken: RunFolder, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        session.run(config_of(tmp_path, *SETTINGS, *change, f"resume={broken.path}"))


@pytest.mark.parametrize(("resume", "way"), [("auto", "the same command"), ("never", "resume=auto")])
def test_a_request_to_stop(
    resume: str, way: str, tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends after the current step and saves its state. A notebook keeps the error's frames."""
    config = config_of(tmp_path, *SETTINGS, "checkpoint.every_steps=null")
    requests = iter([0, 0, 15])
    monkeypatch.setattr(StopRequest, "signal", property(lambda self: next(requests)))
    with pytest.raises(StoppedError, match=f"after step 3; its state is saved; {way} continues") as kept:
        training.train(config | {"resume": resume})
    monkeypatch.undo()
    assert [p.name for p in RunFolder(config).checkpoints.iterdir()] == ["step-000000003"]
    assert_same(whole, train(config))
    assert kept.traceback


@pytest.mark.parametrize(("at_end", "left"), [("false", []), ("true", ["step-000000009"])])
def test_finished_runs_leave_no_checkpoints_unless_asked(
    tmp_path: Path, at_end: str, left: list[str]
) -> None:
    config = config_of(tmp_path, *SETTINGS, f"checkpoint.at_end={at_end}")
    training.train(config)
    assert [path.name for path in RunFolder(config).path.glob("checkpoint/*")] == left
