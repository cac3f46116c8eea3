"""One command, one folder: what the id depends on, what is written, what a crash leaves."""

import copy
import json
from pathlib import Path

import pytest
from configs import resolved

from trainers.run_folder import RunFolder, run_id

CONFIG = {
    "seed": 0,
    "workers": 8,
    "processes": 1,
    "threads": 1,
    "device": "auto",
    "output": "outputs",
    "name": "a-b-c",
    "tracker": {"mode": None},
    "resume": "auto",
    "checkpoint": {"every_steps": None},
    "timeout_seconds": 1800,
    "diagnostics": {"every": 50},
    "budget": {"density": 0.1},
    "compressor": {"density": 0.1},
    "data": {"root": ".data", "download": False, "partition": "iid"},
    "trainer": {"epochs": 2, "steps": None, "overlap": False, "log_every": 1},
}

KNOWN_IDS = (
    ("quick", "top_k", "718bb36640"),
    ("three_parameters/lstm", "top_k", "a08be4c0e0"),
    ("convex/madelon_sgd", "top_k", "fcaea28948"),
    ("small/neumf", "hard_threshold", "9c0ea946df"),
    ("autolrs/resnet20", "none", "539e756a2a"),
)


def changed(*path: str, to: object) -> dict:
    config = copy.deepcopy(CONFIG)
    inner = config
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = to
    return config


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("processes",), 4),
        (("threads",), 2),
        (("device",), "cuda"),
        (("output",), "elsewhere"),
        (("name",), "x"),
        (("tracker",), {}),
        (("resume",), "never"),
        (("checkpoint",), {"every_steps": 3}),
        (("timeout_seconds",), 5),
        (("diagnostics",), {"every": 10, "xi": {}}),
        (("data", "root"), "/data"),
        (("data", "download"), True),
        (("trainer", "overlap"), True),
        (("compressor", "schedule"), "constant"),
    ],
)
def test_what_cannot_change_the_result_is_not_in_the_id(path: tuple[str, ...], to: object) -> None:
    assert run_id(changed(*path, to=to)) == run_id(CONFIG)


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("seed",), 1),
        (("workers",), 4),
        (("compressor", "density"), 0.2),
        (("compressor", "schedule"), "exponential"),
        (("data", "partition"), "by_label"),
        (("trainer", "epochs"), 3),
        (("trainer", "steps"), 3),
    ],
)
def test_what_can_change_the_result_is_in_the_id(path: tuple[str, ...], to: object) -> None:
    assert run_id(changed(*path, to=to)) != run_id(CONFIG)


@pytest.mark.parametrize(
    ("path", "equal"),
    [
        (("compressor", "threshold"), (0, 0.0, -0.0)),
        (("compressor", "threshold"), (2, 2.0)),
        (("optimizer", "momentum"), (0.0, 0, -0.0)),
        (("optimizer", "lr"), (10, 1e1)),
        (("data", "mean"), ([0, 1.0], [0.0, 1], [-0.0, 1])),
    ],
)
def test_equal_numbers_have_one_id(path: tuple[str, ...], equal: tuple) -> None:
    ids = [run_id(changed(*path, to=value)) for value in equal]
    assert len(set(ids)) == 1
    assert ids[0] == run_id(changed(*path, to=equal[0]))
    assert run_id(changed(*path, to=3)) not in ids
    assert run_id(changed(*path, to=False)) not in ids


def test_the_ids_of_presets_are_those_of_their_runs() -> None:
    """Folders of earlier runs are found again: these ids are of the runs behind the pages."""
    for preset, method, known in KNOWN_IDS:
        assert run_id(resolved(f"experiment={preset}", f"compressor={method}")) == known


def test_the_plain_wire_has_the_ids_there_were_before_wires() -> None:
    plain = {"_target_": "compressors.wire.Wire", "indices": "plain", "values": "fp32"}
    assert run_id(CONFIG | {"wire": plain}) == run_id(CONFIG)
    ids = {run_id(CONFIG)}
    for changes in ({"indices": "auto"}, {"values": "int8"}, {"indices": "auto", "values": "int8"}):
        coded = CONFIG | {"wire": plain | changes}
        ids.add(run_id(coded))
        assert run_id(changed("trainer", "overlap", to=True) | {"wire": plain | changes}) != run_id(coded)
    assert len(ids) == 4


def test_the_usual_passes_have_the_ids_there_were_before_others() -> None:
    usual = {"reshard": "never", "drop_last": False}
    assert run_id(changed("data", to=CONFIG["data"] | usual)) == run_id(CONFIG)
    others = ({"reshard": "epoch"}, {"drop_last": True}, {"reshard": "epoch", "drop_last": True})
    ids = {run_id(changed("data", to=CONFIG["data"] | usual | other)) for other in others}
    assert len(ids | {run_id(CONFIG)}) == 4


def test_epochs_do_not_matter_beside_steps() -> None:
    one, other = changed("trainer", "steps", to=5), changed("trainer", "steps", to=5)
    other["trainer"]["epochs"] = 99
    assert run_id(one) == run_id(other)


def test_what_another_process_finished_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    config = changed("output", to=str(tmp_path))
    early, late = RunFolder(config), RunFolder(config)
    assert early.summary() is None and late.summary() is None
    early.open()
    early.metrics.touch()
    written = early.close({"test/accuracy": 0.5}, 1.0)
    with pytest.raises(FileExistsError, match="another process has just finished"):
        late.open()
    found = late.summary()
    assert found.pop("checksums").keys() == {"summary.json", "metrics.jsonl"} and found == written


def test_a_folder_from_open_to_close(tmp_path: Path) -> None:
    folder = RunFolder(changed("output", to=str(tmp_path)))
    assert folder.path == tmp_path / "a-b-c" / folder.id
    assert folder.summary() is None
    assert folder.open().checkpoint is None
    assert folder.summary() is None
    folder.metrics.write_text('{"step": 1, "epoch": 0.5}\n')
    folder.close({"test/accuracy": 0.5}, 2.5)
    assert folder.summary()["test/accuracy"] == 0.5
    assert folder.summary()["wall_seconds"] == 2.5
    assert {path.name for path in folder.path.iterdir()} == {
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "summary.json",
    }


def test_a_failed_run_is_not_finished(tmp_path: Path) -> None:
    folder = RunFolder(changed("output", to=str(tmp_path)))
    folder.open()
    folder.metrics.write_text('{"step": 1}\n')
    folder.close({"error": "why"}, 1.0, "failed")
    assert folder.summary() is None
    assert json.loads((folder.path / "summary.json").read_text())["error"] == "why"
    assert "an earlier try left no checkpoint" in folder.open().messages[0]
    assert (folder.path / "metrics.previous.jsonl").read_text() == '{"step": 1}\n'
