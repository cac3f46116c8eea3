"""Runs, reports and trials with a W&B server.

If the server fails or W&B's own process crashes, the training continues, and its records arrive later or can
be uploaded.
"""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import ROOT, command
from interrupting import Running, last_step, num_records
from run_folders import write_run
from wandb_server import Answer, WandbServer, wandb

from results.read.folders import read_runs
from results.report.charts import sections
from results.report.dashboard import specification

pytestmark = pytest.mark.slow

STEPS = 400
WORDS = ["experiment=quick", f"trainer.steps={STEPS}", "trainer.batch_size=16", "tracker=wandb"]
WORDS += ["tracker.mode=online"]


@pytest.fixture
def server() -> Iterator[WandbServer]:
    made = WandbServer()
    yield made
    made.close()


def environment(server: WandbServer, home: Path) -> dict[str, str]:
    return server.environment | {"HOME": str(home), "WANDB_INIT_TIMEOUT": "300"}


def steps(server: WandbServer) -> list[int]:
    return sorted({row["step"] for row in server.run().rows() if "step" in row})


class Broken:
    """A fault that replaces the first ``times`` answers, or all answers."""

    def __init__(self, answer: Answer, times: int | None = None) -> None:
        self.answer, self.left = answer, times
        self.seen = 0

    def __call__(self, method: str, path: str) -> Answer | None:
        if self.left == 0:
            return None
        self.left = None if self.left is None else self.left - 1
        self.seen += 1
        return self.answer


@contextmanager
def paused_in_the_middle(run: Running, server: WandbServer, output: Path) -> Iterator[None]:
    """Pause the training during the block, which starts when some records have arrived.

    W&B's own process continues, and sends records every 15 s.
    """
    run.until(lambda: num_records(output) > 30)
    os.kill(run.process.pid, signal.SIGSTOP)
    try:
        run.until(lambda: server.runs and steps(server))
        assert len(steps(server)) < STEPS and num_records(output) < STEPS
        yield
    finally:
        os.kill(run.process.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500),
        Answer(429, headers={"Retry-After": "1"}),
        Answer(closes=True),
        Answer(500, hang_seconds=3),
    ],
    ids=["500", "429", "closed connection", "hang"],
)
def test_a_server_that_fails_for_a_while_gets_all_records(
    answer: Answer, server: WandbServer, tmp_path: Path
) -> None:
    fault = Broken(answer, times=3)
    output = tmp_path / "o"
    with Running(*WORDS, f"output={output}", log=tmp_path / "log", **environment(server, tmp_path)) as run:
        with paused_in_the_middle(run, server, output):
            server.fault = fault
        assert run.wait() == 0 and "failed" not in run.said(), run.said()
    assert fault.seen == 3
    assert steps(server) == list(range(1, STEPS + 1))
    assert server.run().exit_code == 0
    assert last_step(output) == STEPS


@pytest.mark.parametrize(
    "answer",
    [Answer(closes=True), Answer(hang_seconds=600), Answer(500), Answer(429)],
    ids=["gone", "hanging", "500", "429"],
)
def test_a_server_that_does_not_come_back_leaves_records_to_upload(
    answer: Answer, server: WandbServer, tmp_path: Path
) -> None:
    output = tmp_path / "o"
    with Running(*WORDS, f"output={output}", log=tmp_path / "log", **environment(server, tmp_path)) as run:
        with paused_in_the_middle(run, server, output):
            server.fault = Broken(answer)
        assert run.wait() == 0, run.said()
        (line,) = [one for one in run.errors() if "Weights & Biases failed" in one]
    assert last_step(output) == STEPS
    words = line.partition("upload them by: ")[2].split()
    assert words[:2] == ["wandb", "sync"]
    assert 0 < len(steps(server)) < STEPS
    server.fault = None
    status, said = wandb(server, *words[1:], home=tmp_path)
    assert status == 0, said
    assert steps(server) == list(range(1, STEPS + 1))


@pytest.mark.parametrize(
    "answer",
    [None, Answer(500), Answer(429), Answer(hang_seconds=600)],
    ids=["out of reach", "500", "429", "hang"],
)
def test_a_server_that_fails_at_the_start_means_offline(
    answer: Answer | None, server: WandbServer, tmp_path: Path
) -> None:
    variables = environment(server, tmp_path) | {"WANDB_INIT_TIMEOUT": "4"}
    if answer is None:
        variables["WANDB_BASE_URL"] = "http://127.0.0.1:9"
    else:
        server.fault = Broken(answer)
    result = command(*WORDS, "trainer.steps=10", f"output={tmp_path / 'o'}", **variables)
    assert result.returncode == 0, result.stderr
    assert "cannot be reached" in result.stderr and "recording offline" in result.stderr
    (folder,) = (tmp_path / "o").glob("*/*/wandb/offline-run-*")
    assert f"wandb sync {folder}" in result.stdout


def test_online_without_an_api_key_is_refused(server: WandbServer, tmp_path: Path) -> None:
    variables = environment(server, tmp_path) | {"WANDB_API_KEY": ""}
    refused = command(*WORDS, f"output={tmp_path}", **variables)
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("error: tracker.mode=online: ") and "API key" in refused.stderr


def test_a_crash_of_weights_and_biases_leaves_the_training_alone(tmp_path: Path) -> None:
    steps = 3000  # so many that the training still runs when W&B's process is found
    words = [*WORDS, "tracker.mode=offline", f"trainer.steps={steps}", f"output={tmp_path / 'o'}"]
    with Running(*words, log=tmp_path / "log") as running:
        running.until(lambda: num_records(tmp_path / "o") > 20 and running.session("wandb-core"))
        for pid in running.session("wandb-core"):
            os.kill(pid, signal.SIGKILL)
        assert running.wait() == 0
        (line,) = running.errors()
    assert line.startswith("Weights & Biases failed, the training continues without it: ")
    assert last_step(tmp_path / "o") == steps


def test_a_report_is_saved_with_its_page_and_figures(server: WandbServer, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        write_run(tmp_path / "runs", seed=seed)
    ids = [run.id for run in read_runs([tmp_path / "runs"])]
    words = ["-m", "results", "report", str(tmp_path / "runs"), "--entity", "someone", "--project", "p"]
    variables = os.environ | environment(server, tmp_path)
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    workspace, report = server.views
    expected = specification("someone", "p", ["test/accuracy"])
    assert workspace["spec"] == expected["workspace"]["spec"]
    headings = [
        block["children"][0]["text"] for block in report["spec"]["blocks"] if block["type"] == "heading"
    ]
    assert headings == list(sections(["test/accuracy"]))
    (artifact,) = server.artifacts.values()
    assert (artifact.type, artifact.is_committed) == ("report", True)
    assert sorted(artifact.metadata["runs"]) == sorted(ids) and len(ids) == 3
    assert artifact.files["report.html"].startswith(b"<!")
    figures = [name for name in artifact.files if name.startswith("figures/")]
    assert any(name.endswith(".png") for name in figures) and any(name.endswith(".pdf") for name in figures)
    assert server.run().fields["jobType"] == "report" and server.run().exit_code == 0


def test_a_resumed_run_goes_on_under_its_id(server: WandbServer, tmp_path: Path) -> None:
    output = tmp_path / "o"
    words = [*WORDS, "checkpoint.every_steps=10", f"output={output}"]
    running = Running(*words, log=tmp_path / "log", **environment(server, tmp_path))
    with running as run, paused_in_the_middle(run, server, output):
        run.process.kill()
    before = server.run()
    assert before.exit_code is None
    result = command(*words, **environment(server, tmp_path))
    assert result.returncode == 0 and "continuing after step" in result.stdout, result.stderr
    assert "RunResumeStatus" in [name for _, name in server.requests]
    after = server.run()  # the only one
    assert after is before and after.exit_code == 0
    assert steps(server) == list(range(1, STEPS + 1))


def test_the_first_of_several_processes_alone_talks(server: WandbServer, tmp_path: Path) -> None:
    """One client starts the run, and no client asks to resume it."""
    words = [*WORDS, "trainer.steps=10", "processes=2", f"output={tmp_path / 'o'}"]
    result = command(*words, **environment(server, tmp_path))
    assert result.returncode == 0, result.stderr
    run = server.run()
    assert run.starts == 1 and steps(server) == list(range(1, 11))
    assert [name for _, name in server.requests].count("RunResumeStatus") == 0


def test_a_trial_of_an_agent_has_its_id_and_records_the_objective(
    server: WandbServer, tmp_path: Path
) -> None:
    trial = {"WANDB_SWEEP_ID": "sweep", "WANDB_RUN_ID": "trial", "WANDB_PROJECT": "total-error"}
    words = [*WORDS, "trainer.steps=40", "tracker.objective=test/accuracy", "tracker.byte_budget=1e5"]
    result = command(*words, f"output={tmp_path / 'o'}", **environment(server, tmp_path), **trial)
    assert result.returncode == 0, result.stderr
    assert (server.run().name, server.run().fields["sweep"]) == ("trial", "sweep")
    summary = server.run().summary
    above = math.log10(summary["comm/link_bytes_sent_total"] / 1e5)
    assert above > 0
    assert summary["sweep/objective"] == pytest.approx(summary["test/accuracy"]["last"] - above)
