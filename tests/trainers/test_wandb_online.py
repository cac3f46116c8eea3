"""The real client of Weights & Biases, with a local server that stores the requests."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import command
from wandb_server import WandbServer, wandb

QUICK = ("experiment=quick", "trainer.steps=24", "trainer.batch_size=16", "tracker=wandb")
FILES = ("config.yaml", "environment.json", "metrics.jsonl", "summary.json")


@pytest.fixture
def server() -> Iterator[WandbServer]:
    made = WandbServer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run in online mode: its folder, and the server that has stored it."""
    server, output = WandbServer(), tmp_path_factory.mktemp("online")
    words = (*QUICK, "tracker.mode=online", "checkpoint.at_end=true", "tracker.checkpoints=true")
    result = command(*words, f"output={output}", HOME=str(output), **server.environment)
    assert result.returncode == 0, result.stderr
    server.close()
    assert server.unknown == []
    return SimpleNamespace(server=server, run=server.run(), folder=folder_in(output), output=output)


def folder_in(output: Path) -> Path:
    (summary,) = output.glob("mlp-*/*/summary.json")
    return summary.parent


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def by_step(rows: list[dict]) -> dict[int, dict]:
    """Rows merged by step, as W&B stores them."""
    found: dict[int, dict] = {}
    for row in rows:
        found.setdefault(int(row["step"]), {}).update(row)
    return found


def logged(run: object) -> dict[int, dict]:
    """The rows of a stored run without W&B's own keys and the tables of layers."""
    rows = [{k: v for k, v in row.items() if not k.startswith(("_", "layers"))} for row in run.rows()]
    return by_step(rows)


def test_every_record_arrives(finished: SimpleNamespace) -> None:
    expected = by_step(records(finished.folder))
    found = logged(finished.run)
    assert found.keys() == expected.keys()
    for step, record in expected.items():
        assert found[step] == pytest.approx(record)
    assert finished.run.exit_code == 0


def test_a_run_says_what_it_is(finished: SimpleNamespace) -> None:
    fields, settings = finished.run.fields, finished.run.settings
    assert fields["tags"] == ["top_k", "mlp", "digits", "quick"]
    assert fields["jobType"] == "train"
    assert fields["notes"].startswith("python run.py experiment=quick trainer.steps=24 ")
    assert fields["groupName"] == settings["group"].strip()
    assert fields["displayName"] == f"mlp-digits-top_k-{finished.folder.name}"
    assert (settings["model_name"], settings["data_name"], settings["preset"]) == ("mlp", "digits", "quick")
    assert settings["compressor"]["density"] == 0.01
    assert (finished.folder / "wandb/run-id.txt").read_text().strip() == finished.run.name


def test_metrics_have_axes_and_goals(finished: SimpleNamespace) -> None:
    """The keys "1" and "5" are field numbers of W&B's MetricRecord: name and axis."""
    metrics = {metric["1"]: metric for metric in finished.run.metrics}
    names = [metric["1"] for metric in finished.run.metrics]
    axis = {name: names[metric["5"] - 1] for name, metric in metrics.items() if "5" in metric}
    assert {"step", "epoch", "comm/link_bytes_sent_total"} <= metrics.keys() - axis.keys()
    assert axis["test/accuracy"] == "epoch" and axis["compression/total_error"] == "step"
    summary, last = finished.run.summary, records(finished.folder)
    accuracies = [row["test/accuracy"] for row in last if "test/accuracy" in row]
    losses = [row["train/loss"] for row in last if "train/loss" in row]
    assert summary["test/accuracy"] == pytest.approx({"last": accuracies[-1], "max": max(accuracies)})
    assert summary["train/loss"] == pytest.approx({"last": losses[-1], "min": min(losses)})
    totals = json.loads((finished.folder / "summary.json").read_text())
    plain = [name for name in totals if isinstance(totals[name], (int, float)) and name not in axis]
    assert "wall_seconds" in plain
    assert {name: summary[name] for name in plain} == pytest.approx({name: totals[name] for name in plain})


def test_files_and_checkpoint_are_artifacts(finished: SimpleNamespace) -> None:
    artifacts = {one.type: one for one in finished.server.artifacts.values()}
    assert all(one.is_committed for one in artifacts.values())
    run, checkpoint = artifacts["run"], artifacts["checkpoint"]
    assert run.name == f"run-{finished.folder.name}"
    for name in FILES:
        assert run.files[name] == (finished.folder / name).read_bytes()
    kept = [path for path in (finished.folder / "checkpoint").rglob("*") if path.is_file()]
    assert kept and all(
        checkpoint.files[str(path.relative_to(finished.folder))] == path.read_bytes() for path in kept
    )
    copies = [
        path for path in (finished.output / ".cache").rglob("*") if "/obj/" in str(path) and path.is_file()
    ]
    assert sum(path.stat().st_size for path in copies) < 5000, "only the table of the layers is copied"


def test_identity_and_records_are_those_without_a_tracker(finished: SimpleNamespace, tmp_path: Path) -> None:
    words = [word for word in QUICK if word != "tracker=wandb"]
    result = command(*words, "tracker=none", f"output={tmp_path}")
    assert result.returncode == 0, result.stderr
    folder = folder_in(tmp_path)
    assert folder.name == finished.folder.name
    timed = ("time/", "comm/break_even")

    def untimed(folder: Path) -> list[dict]:
        return [{k: v for k, v in row.items() if not k.startswith(timed)} for row in records(folder)]

    assert untimed(folder) == untimed(finished.folder)


def test_an_offline_run_is_uploaded_by_its_command(server: WandbServer, tmp_path: Path) -> None:
    """No file or output of the run has a secret; its name is found, so the search works."""
    secrets = {
        "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
        "MY_TOKEN": "quite a secret word",
        "HF_TOKEN": "hf_abcdefghijklmnopqrstuv",
    }
    result = command(*QUICK, f"output={tmp_path}", HOME=str(tmp_path), **secrets)
    assert result.returncode == 0, result.stderr
    folder = folder_in(tmp_path)
    contents = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.suffix == ".wandb" and folder.name.encode() in own for path, own in contents.items())
    for secret in secrets.values():
        assert secret not in result.stdout + result.stderr
        assert not [path for path, own in contents.items() if secret.encode() in own]
    lines = [one for one in result.stdout.splitlines() if one.startswith("to Weights & Biases: ")]
    assert len(lines) == 1, result.stdout + result.stderr
    words = lines[0].removeprefix("to Weights & Biases: ").split()
    assert words[:2] == ["wandb", "sync"]
    status, said = wandb(server, *words[1:], home=tmp_path)
    assert status == 0, said
    assert server.unknown == []
    run = server.run()
    assert logged(run) == {step: pytest.approx(row) for step, row in by_step(records(folder)).items()}
    (artifact,) = [one for one in server.artifacts.values() if one.type == "run"]
    assert artifact.is_committed
    assert artifact.files["summary.json"] == (folder / "summary.json").read_bytes()


def test_a_training_that_fails_sends_an_alert(server: WandbServer, tmp_path: Path) -> None:
    words = (*QUICK, "tracker.mode=online", "optimizer.lr=1e30", f"output={tmp_path}", "schedule=constant")
    result = command(*words, HOME=str(tmp_path), **server.environment)
    assert result.returncode == 1
    run = server.run()
    (alert,) = server.alerts
    assert (alert["title"], alert["severity"], alert["runName"]) == ("Training failed", "ERROR", run.name)
    assert "finite" in alert["text"] and alert["text"] in result.stderr
    assert run.exit_code == 1
    (artifact,) = [one for one in server.artifacts.values() if one.type == "run"]
    assert json.loads(artifact.files["summary.json"])["status"] == "failed"
