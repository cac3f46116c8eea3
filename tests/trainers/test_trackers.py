"""Trackers: terminal, file and Weights & Biases."""

import io
import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from trainers.run.described import axis_of
from trainers.run.terminal import Terminal
from trainers.run.trackers import JsonLines, open_trackers
from trainers.run.wandb_tracker import WeightsAndBiases

RECORD = {
    "step": 3,
    "epoch": 0.5,
    "train/loss": 1.25,
    "compression/density": 0.01,
    "compression/total_error": 12.5,
}


FACTS = {"method": "top_k, density 0.01", "group": "mlp-digits, top_k, density 0.01, 0123456789"}


def open_one(folder: Path, destination: str = "wandb", **settings: object) -> Any:
    """The tracker of a run in ``folder``."""
    config = settings.pop("config", {})
    destinations = {destination: "required"}
    (tracker,) = open_trackers(
        folder=folder, name="n", config=config, facts=FACTS, destinations=destinations, **settings
    )
    return tracker


SHOWN_AGAIN = b"\x1b[?25h"  # the cursor, at the end of live output


class ATerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_json_lines_are_on_disk_at_once_and_have_no_infinity(tmp_path: Path) -> None:
    tracker = JsonLines(tmp_path / "metrics.jsonl")
    tracker.log(RECORD)
    with pytest.raises(ValueError, match="not JSON compliant"):
        tracker.log(RECORD | {"test/perplexity": math.inf})
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [RECORD]
    tracker.finish(None)


@pytest.mark.parametrize("replaced", [False, True])
def test_records_that_nobody_would_find_are_refused(tmp_path: Path, replaced: bool) -> None:
    tracker = JsonLines(tmp_path / "metrics.jsonl")
    tracker.log(RECORD)
    tracker.sync()
    (tmp_path / "metrics.jsonl").unlink()
    if replaced:
        (tmp_path / "metrics.jsonl").touch()
    for use in (lambda: tracker.log(RECORD), tracker.sync):
        how = "replaced" if replaced else "removed"
        with pytest.raises(FileNotFoundError, match=rf"^/.*metrics.jsonl was {how} during the run$"):
            use()
    tracker.finish(None)


def test_plain_lines_where_there_is_no_terminal() -> None:
    """Every tenth record and all evaluations, without values of an earlier one."""
    stream = io.StringIO()
    terminal = Terminal(10, stream)
    for step in range(3):
        terminal.log(RECORD | {"step": step})
    terminal.log({"step": 3, "epoch": 0.5, "test/loss": 1.0, "test/perplexity": 20.0})
    terminal.log({"step": 4, "epoch": 0.5, "test/loss": 800.0, "test/accuracy": 0.75})
    terminal.finish({})
    first, before, after = stream.getvalue().splitlines()
    assert first == "step 0  epoch 0.50  loss 1.2500  density 1.000%  total error 12.5"
    assert "test perplexity 20.00" in before and "perplexity" not in after
    assert "test accuracy 75.00%" in after


def test_an_evaluation_of_a_printed_step_does_not_print_its_record_again() -> None:
    """As after the first of some steps that are as long as an epoch, in local steps."""
    stream = io.StringIO()
    terminal = Terminal(10, stream)
    for step in (1, 2):
        terminal.log(RECORD | {"step": step})
        terminal.log({"step": step, "epoch": 0.5, "test/accuracy": 0.75})
    terminal.finish({})
    record = "loss 1.2500  density 1.000%  total error 12.5"
    assert stream.getvalue().splitlines() == [
        f"step 1  epoch 0.50  {record}",
        "step 1  epoch 0.50  test accuracy 75.00%",
        f"step 2  epoch 0.50  {record}  test accuracy 75.00%",
    ]


def test_the_live_line_shows_the_steps_and_what_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a run resumed after step 100, with the speed between its records: 30 steps in 200 s."""
    clock = [0.0]
    monkeypatch.setattr("rich.console.monotonic", lambda: clock[0])
    stream = ATerminal()
    terminal = Terminal(200, stream, first_step=100)
    for step in (120, 150):
        clock[0] += 200  # records can be many steps apart
        terminal.log(RECORD | {"step": step, "comm/link_bytes_sent_total": 1234.5e3 * step})
    terminal.finish({})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).split("\r")[-1]
    assert re.search(r"step 150 of 200 +6 min left +0\.15 steps/s +loss 1\.2500 +sent 185 MB", shown), shown


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_pseudo_terminal_shows_loss_and_density_as_curves(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each from its lowest to its highest value; none of equal values, and none without block characters."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w", encoding=encoding) as stream:
        terminal = Terminal(10, stream)
        for step, loss in enumerate((2.0, 1.0, 0.25), 1):
            terminal.log(RECORD | {"step": step, "train/loss": loss})
        terminal.log({"step": 3, "epoch": 0.5, "test/accuracy": 0.75})
        terminal.finish({})
    with os.fdopen(ours, "rb", buffering=0) as screen:
        said = b""
        while not said.endswith(SHOWN_AGAIN):
            said += screen.read(1 << 12)
    assert b"step 3 of 10" in said
    assert ("loss    █▄▁  0.25 to 2\r\n".encode() in said) == (encoding == "utf-8")
    assert "density ▁".encode() not in said  # the density is 1 % in all records


def test_a_long_curve_has_means_of_as_many_records_each() -> None:
    terminal = Terminal(1000, ATerminal())
    for step in range(1000):
        terminal.log(RECORD | {"step": step, "train/loss": float(step // 500)})
    terminal.finish({})
    blocks = re.findall("[▁▂▃▄▅▆▇█]+", terminal.stream.getvalue())[-1]
    assert blocks == "▁" * 15 + "▄" + "█" * 15  # 31 means of 32 records


def test_lines_of_jobs_that_run_at_once_are_plain_and_say_whose_they_are() -> None:
    stream = ATerminal()
    terminal = Terminal(10, stream, job="job 3 of 9")
    terminal.log(RECORD)
    terminal.finish({})
    assert stream.getvalue().startswith("job 3 of 9  step 3  epoch 0.50  loss 1.2500")
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("weights", ["", "average/", "workers_mean/"])
def test_an_evaluation_of_any_weights_has_the_axis_epoch(weights: str) -> None:
    assert axis_of(f"{weights}test/accuracy") == axis_of(f"{weights}validation/loss") == "epoch"
    assert axis_of("local/drift") == axis_of("train/loss") == "step"


def test_wandb_starts_offline_with_the_first_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    tracker = open_one(tmp_path, project="p", config={"a": {"b": 1}, "threads": 1})
    assert not list(tmp_path.iterdir())
    tracker.log(RECORD)
    assert tracker.run.config["a"] == {"b": 1}
    assert tracker.run.config["method"] == FACTS["method"]
    assert tracker.run.group == FACTS["group"]
    tracker.finish({"test/accuracy": 0.5})


def test_typed_settings_precede_wandbs_variables_and_these_precede_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    wandb.teardown()  # it reads its variables once
    variables = {
        "PROJECT": "theirs",
        "ENTITY": "they",
        "TAGS": "a,b",
        "NOTES": "two words",
        "MODE": "offline",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    tracker = open_one(tmp_path, project="me/mine", notes="typed")
    tracker.log(RECORD)
    run = tracker.run
    assert (run.entity, run.project, run.notes) == ("me", "mine", "typed")
    assert (run.tags, run.settings.mode) == (("a", "b"), "offline")
    assert (run.job_type, run.group) == ("train", FACTS["group"])
    tracker.finish({})
    wandb.teardown()


@pytest.mark.parametrize("mode", ["online", None])
def test_wandb_that_cannot_go_online_is_refused_before_training(
    mode: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Online mode by the setting or the environment; ``refuse`` acts as W&B without an API key."""
    if mode is None:
        monkeypatch.setenv("WANDB_MODE", "online")
    else:
        monkeypatch.delenv("WANDB_MODE", raising=False)

    def refuse(self: WeightsAndBiases) -> None:
        raise RuntimeError("api_key not configured")

    monkeypatch.setattr(WeightsAndBiases, "start", refuse)
    with pytest.raises(ValueError, match="cannot start: api_key not configured"):
        open_one(tmp_path, mode=mode)


def test_the_objective_in_wandb_counts_the_bytes_of_autolrs_trials(tmp_path: Path) -> None:
    tracker = open_one(tmp_path, mode="offline", objective="test/accuracy", byte_budget=1e6)
    tracker.log({"step": 0, "autolrs/search_link_bytes_sent_total": 9e6})
    tracker.log({"step": 50, "comm/link_bytes_sent_total": 1e6})
    tracker.log({"step": 50, "test/accuracy": 0.9})
    tracker.log({"step": 60, "train/loss": 1.0})  # W&B now has all of step 50
    assert tracker.run.summary["sweep/objective"] == pytest.approx(0.9 - 1)
    tracker.finish({})


def open_offline(folder: Path, *, continues: bool) -> WeightsAndBiases:
    return open_one(folder, mode="offline", continues=continues)


def test_a_run_that_goes_on_keeps_its_wandb_run(tmp_path: Path) -> None:
    """Two parts with one id, both in the upload command; a new start gets another id."""
    ids = []
    for continues in (False, True, False):
        tracker = open_offline(tmp_path, continues=continues)
        tracker.log(RECORD)
        tracker.finish({})
        ids.append(tracker.run.id)
        parts = sorted((tmp_path / "wandb").glob(f"offline-run-*-{ids[-1]}"))
        assert tracker.sync_command == " ".join(["wandb sync", *map(str, parts)])
        assert len(parts) == 1 + continues
        if len(ids) == 1:
            time.sleep(1.1)  # W&B names a part by the second of its start
    assert ids[0] == ids[1] != ids[2]


def test_the_first_part_of_a_run_that_goes_on_has_all_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the checkpoint of another run, or if the run had another tracker before; the next part has its
    own."""
    found: list[int] = []
    monkeypatch.setattr(WeightsAndBiases, "_send", lambda self, run, record: found.append(record["step"]))
    earlier = b"".join(json.dumps(RECORD | {"step": step}).encode() + b"\n" for step in (1, 2))
    for step in (3, 4):
        tracker = open_one(tmp_path, mode="offline", continues=True, earlier=earlier)
        tracker.log(RECORD | {"step": step})
        tracker.finish(None)
        assert tracker.earlier == b""
    assert found == [1, 2, 3, 4]


@pytest.mark.parametrize("fault", ["start", "log", "finish"])
def test_wandb_that_fails_is_said_once(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The training continues with one message for all errors, and later runs use W&B again."""
    tracker = open_offline(tmp_path, continues=False)

    def fail(*_: object, **more: object) -> None:
        raise ConnectionResetError("Connection lost")

    if fault == "start":
        monkeypatch.setattr(tracker, "start", fail)
    tracker.log(RECORD)
    if fault != "start":
        monkeypatch.setattr(tracker.run, fault, fail)
    tracker.log(RECORD | {"step": 4})
    tracker.log(RECORD | {"step": 5})
    tracker.finish({})
    tracker.finish(None)
    said = capsys.readouterr().err.splitlines()
    assert said == ["Weights & Biases failed, the training continues without it: Connection lost"]
    (tmp_path / "next").mkdir()
    after = open_offline(tmp_path / "next", continues=False)
    after.log(RECORD)
    after.finish({})
    assert not after.attempt.failed
