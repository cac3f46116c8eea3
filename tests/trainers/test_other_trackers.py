"""TensorBoard, and several trackers at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import command
from configs import resolved

from trainers.config.checks import check
from trainers.run.tensorboard_tracker import TensorBoard
from trainers.run.trackers import open_trackers

QUICK = ("experiment=quick", "trainer.steps=12", "trainer.batch_size=16")
FACTS = {"method": "top_k", "group": "g", "threshold": None, "command": "python run.py"}
SUMMARY = {
    "train/loss": 1.0,
    "comm/compression_ratio": 8.0,
    "status": "finished",
    "layers": {"0.weight": {"elements": 3, "total_error": 0.5, "density_mean": 0.1}},
}


def record(step: int) -> dict[str, float]:
    return {"step": step, "epoch": step / 10, "train/loss": 1 / step}


def read_events(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return found.Reload()


def scalars(events: Any, name: str) -> dict[int, float]:
    return {event.step: event.value for event in events.Scalars(name)}


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_ends_tensorboard_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    pytest.importorskip("tensorboard")
    tracker = TensorBoard(tmp_path, {}, {})
    tracker.log(record(1))
    assert tracker.writer is not None
    tracker.writer.flush()
    worker = tracker.writer._get_file_writer().event_writer._async_writer._worker
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123
        worker._record_writer._writer = full
        tracker.log(record(2))
        worker.join(600)
        tracker.log(record(3))
        tracker.finish({})
    said = "TensorBoard failed, the training continues without it: [Errno 28] No space left on device\n"
    assert capfd.readouterr().err == said


def test_tensorboard_has_the_records_of_a_run_and_its_settings(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    result = command(*QUICK, "tracker=tensorboard", f"output={tmp_path}")
    assert result.returncode == 0, result.stderr
    (summary,) = tmp_path.glob("mlp-*/*/summary.json")
    events = read_events(summary.parent / "tensorboard")
    rows = [json.loads(line) for line in (summary.parent / "metrics.jsonl").read_text().splitlines()]
    names = {name for row in rows for name in row} - {"step"}
    assert names <= set(events.Tags()["scalars"])
    for name in names:
        expected = {row["step"]: row[name] for row in rows if name in row}
        assert scalars(events, name) == pytest.approx(expected, rel=1e-6)
    totals = json.loads(summary.read_text())
    assert scalars(events, "comm/compression_ratio") == pytest.approx(
        {row["step"]: row["comm/compression_ratio"] for row in rows if "comm/compression_ratio" in row}
    )
    assert scalars(events, "comm/break_even_bits_per_second") == pytest.approx(
        {12: totals["comm/break_even_bits_per_second"]}
    )
    layers = events.Tensors("layers/text_summary")[0].tensor_proto.string_val[0].decode()
    assert all(f"| {name} |" in layers for name in totals["layers"])


def test_tensorboard_has_hyperparameters(tmp_path: Path) -> None:
    plugin = pytest.importorskip("tensorboard.plugins.hparams.plugin_data_pb2")
    config = {"optimizer": {"lr": 0.1}, "seed": 3, "tracker": {"destinations": {}}, "list": [1, 2]}
    tracker = TensorBoard(tmp_path, config, FACTS)
    tracker.log(record(1))
    tracker.finish(SUMMARY)
    events = read_events(tmp_path / "tensorboard")
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    found = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
    assert (found["optimizer.lr"].number_value, found["seed"].number_value) == (0.1, 3)
    assert (found["list"].string_value, found["method"].string_value) == ("(1, 2)", "top_k")
    assert not any(name.startswith("tracker") for name in found)
    content = events.summary_metadata["_hparams_/experiment"].plugin_data.content
    metrics = plugin.HParamsPluginData.FromString(content).experiment.metric_infos
    assert {one.name.tag for one in metrics} == {"train/loss", "comm/compression_ratio"}
    assert scalars(events, "comm/compression_ratio") == {1: 8.0}


@pytest.mark.parametrize("continues", [True, False])
def test_tensorboard_of_a_continued_run_hides_repeated_steps(continues: bool, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    first = TensorBoard(tmp_path, {}, FACTS)
    for step in range(1, 6):
        first.log(record(step) | {"train/loss": -1})
    first.attempt(first.writer.close)  # as if the process was killed before ``finish``
    second = TensorBoard(tmp_path, {}, FACTS, continues=continues)
    for step in range(4 if continues else 1, 7):
        second.log(record(step))
    second.finish(SUMMARY)
    found = scalars(read_events(tmp_path / "tensorboard"), "train/loss")
    old = dict.fromkeys(range(1, 4), -1) if continues else {}
    assert found == pytest.approx({step: 1 / step for step in range(1, 7)} | old)


def test_tensorboard_keeps_the_records_of_a_run_that_fails_as_it_continues(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    first = TensorBoard(tmp_path, {}, FACTS)
    for step in range(1, 6):
        first.log(record(step))
    first.finish(None)
    second = TensorBoard(tmp_path, {}, FACTS, continues=True)
    second.fail("a gradient is not finite")
    second.finish(None)
    events = read_events(tmp_path / "tensorboard")
    assert list(scalars(events, "train/loss")) == [1, 2, 3, 4, 5]
    assert "failure/text_summary" in events.Tags()["tensors"]


def test_tensorboard_has_the_records_before_the_checkpoint_of_another_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    earlier = b"".join(json.dumps(record(step)).encode() + b"\n" for step in (1, 2))
    for step in (3, 4):  # the next part finds the event file of the one before
        tracker = TensorBoard(tmp_path, {}, FACTS, continues=True, earlier=earlier)
        tracker.log(record(step))
        tracker.finish(None)
    found = read_events(tmp_path / "tensorboard").Scalars("train/loss")
    assert [event.step for event in found] == [1, 2, 3, 4]


def test_several_trackers_at_once(tmp_path: Path) -> None:
    config = resolved("tracker=[wandb,tensorboard]", "tracker.mode=offline", "model=mlp")
    settings = {k: v for k, v in config["tracker"].items() if k not in ("_target_", "_partial_")}
    assert list(settings["destinations"]) == ["wandb", "tensorboard"]
    made = open_trackers(folder=tmp_path, name="n", config={}, facts=FACTS, **settings)
    assert [type(one).__name__ for one in made] == ["WeightsAndBiases", "TensorBoard"]


def test_auto_and_another_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.config.destinations.is_installed", lambda name: name != "wandb")
    for words in ("tracker=auto", "tracker=[auto,tensorboard]"):
        check(resolved("model=mlp", words))
    with pytest.raises(ValueError, match="tracker=wandb needs Weights & Biases, which is not installed"):
        check(resolved("model=mlp", "tracker=[tensorboard,wandb]"))


def test_a_tracker_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.config.destinations.is_installed", lambda name: False)
    with pytest.raises(ValueError, match=r"tracker=tensorboard needs .*: pip install -e '\.\[tensorboard\]'"):
        check(resolved("model=mlp", "tracker=tensorboard"))


def test_a_mode_that_wandb_does_not_know_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offlin")
    with pytest.raises(ValueError, match="WANDB_MODE must be online, offline or disabled, got 'offlin'"):
        check(resolved("model=mlp", "tracker=wandb"))
    check(resolved("model=mlp", "tracker=wandb", "tracker.mode=offline"))
