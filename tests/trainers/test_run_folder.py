"""Run folders: their files from open to close, failed runs, and runs that another process finished."""

import json
from pathlib import Path

import pytest
from configs import resolved

from trainers.run.folder import RunFolder

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
    "compressor": {"_target_": "compressors.top_k.TopK", "density": 0.1},
    "data": {"root": ".data", "download": False, "partition": "iid"},
    "trainer": {"epochs": 2, "steps": None, "log_every": 1},
}


def test_what_another_process_finished_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    config = CONFIG | {"output": str(tmp_path)}
    early, late = RunFolder(config), RunFolder(config)
    assert early.summary() is None and late.summary() is None
    early.open()
    early.metrics.touch()
    written = early.close({"test/accuracy": 0.5}, 1.0)
    early.lock.release()
    with pytest.raises(FileExistsError, match="another process has just finished"):
        late.open()
    found = late.summary()
    assert found.pop("checksums").keys() == {"summary.json", "metrics.jsonl"} and found == written


def test_a_failed_run_is_not_finished(tmp_path: Path) -> None:
    folder = RunFolder(CONFIG | {"output": str(tmp_path)})
    folder.open()
    folder.metrics.write_text('{"step": 1}\n')
    folder.close({"error": "why"}, 1.0, "failed")
    assert folder.summary() is None
    assert json.loads((folder.path / "summary.json").read_text())["error"] == "why"
    assert "an earlier attempt left no checkpoint" in folder.open().messages[0]
    assert (folder.path / "metrics.previous.jsonl").read_text() == '{"step": 1}\n'


def test_the_group_of_a_method_with_many_settings_is_one_that_wandb_takes(tmp_path: Path) -> None:
    """W&B refuses groups of more than 128 letters; the label of SparseLoCo alone has twice as many."""
    found = []
    for seed, rate in ((0, 1), (1, 1), (0, 0.5)):
        words = ("experiment=local/sparse_loco", f"seed={seed}", f"local.outer.lr={rate}")
        folder = RunFolder(resolved(*words) | {"output": str(tmp_path)})
        folder.open()
        found.append(folder.facts()["group"])
    first, same, other = found
    assert first == same != other and max(map(len, found)) == 128
    assert first.startswith("local, sparse_loco, first.aggregation senders, ")
