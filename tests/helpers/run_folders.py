"""Small run folders, for tests of the code that reads run folders."""

import hashlib
import json
import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from trainers.files.files import summary_checksum

TARGETS = {
    "none": "compressors.none.NoCompression",
    "hard_threshold": "compressors.hard_threshold.HardThreshold",
    "top_k": "compressors.top_k.TopK",
    "random_k": "compressors.random_k.RandomK",
    "random_block": "compressors.random_block.RandomBlock",
    "accordion": "compressors.accordion.Accordion",
}
DEFAULT_SETTINGS = {
    "none": {},
    "hard_threshold": {"threshold": 0.01, "density": 0.01},
    "top_k": {"density": 0.01},
    "random_k": {"density": 0.01, "shared_coordinates": True},
    "random_block": {"density": 0.01, "shared_coordinates": True},
    "accordion": {"k_low": 0.001, "k_high": 0.01, "detection_threshold": 0.5, "period": 10},
}
FEEDBACK = {"_target_": "compressors.feedback.ErrorFeedback", "_partial_": True, "scale": "gradient"}
NO_FEEDBACK = {"_target_": "compressors.feedback.no_feedback", "_partial_": True}
NUM_PARAMETERS = 1000


def write_run(
    folder: Path,
    *,
    name: str | None = None,
    compressor: str = "top_k",
    seed: int = 0,
    records: Iterable[dict[str, Any]] | None = None,
    summary: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    commit: str | None = "a" * 40,
    modified: bool = False,
    **config: Any,
) -> Path:
    """Write a finished run to ``folder``/NAME/ID, with NAME mlp-digits-METHOD; returns its folder.

    ``settings`` are the compressor's. ``config`` has other settings by top-level key; dictionaries are merged
    into the defaults. ``records`` are three steps by default. ``summary`` updates the summary, which has the
    last value of every metric; a value of None removes a key.
    """
    name = name or f"mlp-digits-{compressor}"
    lines = [_record(step) for step in (10, 20, 30)] if records is None else list(records)
    settings = DEFAULT_SETTINGS[compressor] | (settings or {})
    whole = _config(name, {"_target_": TARGETS[compressor], **settings}, seed)
    for key, value in config.items():
        both = isinstance(value, dict) and isinstance(whole.get(key), dict)
        whole[key] = whole[key] | value if both else value
    run_id = hashlib.blake2b(json.dumps(whole, sort_keys=True).encode(), digest_size=5).hexdigest()
    last = {key: value for line in lines for key, value in line.items()}
    totals = {"status": "finished", "id": run_id, "seed": seed, "wall_seconds": 1.5, **last}
    if compressor == "hard_threshold":
        by_rule = 1 / (2 * math.sqrt(settings["density"] * NUM_PARAMETERS))
        totals["compression/threshold"] = by_rule if settings["threshold"] is None else settings["threshold"]
    totals |= {"best": {}, "layers": _layers(), "data": {"name": "digits"}, **(summary or {})}
    totals = {key: value for key, value in totals.items() if value is not None}
    path = folder / name / run_id
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    sign(path, totals)
    (path / "environment.json").write_text(json.dumps(_environment(commit, modified), indent=2) + "\n")
    return path


def sign(folder: Path, summary: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write ``summary``, by default the present one, with correct checksums to ``folder``; returns it."""
    path = folder / "summary.json"
    fields = json.loads(path.read_text()) if summary is None else summary
    records = hashlib.blake2b((folder / "metrics.jsonl").read_bytes()).hexdigest()
    sums = {"metrics.jsonl": records, "summary.json": "0" * 128}
    with suppress(ValueError):  # a number that JSON does not have
        sums["summary.json"] = summary_checksum(fields)
    fields = {**fields, "checksums": sums}
    path.write_text(json.dumps(fields, indent=2) + "\n")
    return fields


def _record(step: int) -> dict[str, Any]:
    """The record of a step with simple numbers: values and indices of 4 bytes, k = 10."""
    return {
        "step": step,
        "epoch": step / 10,
        "train/loss": 1 / step,
        "train/learning_rate": 0.1,
        "compression/input_norm_squared": 4.0,
        "compression/error": 2.0,
        "compression/total_error": 2.0 * step,
        "compression/density": 0.01,
        "compression/density_mean": 0.01,
        "comm/link_bytes_sent": 240.0,  # to 3 other workers
        "comm/link_bytes_sent_total": 240.0 * step,
        "comm/link_bytes_received": 240.0,
        "comm/link_bytes_received_total": 240.0 * step,
        "comm/compression_ratio": 25.0,  # 1000 values of 4 bytes, 1.5 times, over 240
        "comm/bytes_sent": 80.0,
        "comm/bytes_sent_total": 80.0 * step,
        "comm/values_bytes_total": 40.0 * step,
        "comm/indices_bytes_total": 40.0 * step,
        "comm/padding_bytes_total": 0.0,
        "comm/metadata_bytes_total": 0.0,
        "comm/paper_bits_total": 320.0 * step,
        "test/loss": 0.5,
        "test/accuracy": 0.9,
        "time/step_seconds": 0.01,
    }


def _config(name: str, compressor: dict[str, Any], seed: int) -> dict[str, Any]:
    density = compressor.get("density", 0.01)
    return {
        "seed": seed,
        "workers": 4,
        "processes": 1,
        "threads": 1,
        "scope": "layer",
        "device": "auto",
        "output": "outputs",
        "name": name,
        "model": {"_target_": "models.mlp.mlp", "hidden": [256, 128]},
        "data": {"_target_": "data.images.digits.digits", "partition": "iid", "alpha": 0.5},
        "compressor": compressor,
        "feedback": dict(FEEDBACK),
        "budget": {"density": density, "threshold": compressor.get("threshold")},
        "optimizer": {
            "_target_": "trainers.optimizer.sgd",
            "_partial_": True,
            "lr": 0.1,
            "momentum": 0.9,
            "nesterov": True,
            "weight_decay": 1e-4,
            "no_decay": ["batch_norm"],
        },
        "schedule": {"_target_": "trainers.schedules.schedules.ConstantRate"},
        "trainer": {
            "_target_": "trainers.settings.TrainerSettings",
            "epochs": 3,
            "steps": None,
            "batch_size": 32,
            "log_every": 10,
            "evaluate_every": 1,
        },
        "tracker": {"_target_": "trainers.run.trackers.open_trackers", "_partial_": True},
    }


def distributed(path: Path, processes: int) -> None:
    """Give a run's environment a number of processes."""
    environment = json.loads((path / "environment.json").read_text())
    (path / "environment.json").write_text(json.dumps(environment | {"processes": processes}))


def _layers() -> dict[str, dict[str, float]]:
    shares = {"first.weight": 0.9, "first.bias": 0.1}
    return {
        layer: {"elements": int(share * NUM_PARAMETERS), "total_error": 60.0 * share, "density_mean": 0.01}
        for layer, share in shares.items()
    }


def _environment(commit: str | None, modified: bool) -> dict[str, Any]:
    return {
        "command": ["run.py", "compressor=top_k"],
        "started": "2026-01-01T00:00:00Z",
        "commit": commit,
        "commit_is_modified": modified,
        "python": "3.11.7",
        "packages": {"torch": "2.13.0"},
        "platform": "Linux",
        "processor": "a processor",
        "cores": 2,
        "gpus": [],
        "workers": 4,
        "processes": 1,
        "threads": 1,
    }
