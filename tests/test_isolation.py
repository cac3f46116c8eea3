"""Jobs of a sweep in separate processes: killed jobs and parents, interrupts, equal numbers."""

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import ROOT, TIMEOUT_SECONDS, Background, command, jobs_table
from interrupting import session
from resuming import assert_same, outcome_in

from trainers.launch import parallel
from trainers.launch.commands import Commands
from trainers.launch.isolation import IsolatedCall, JobError, run_isolated
from trainers.launch.parallel import ask_when_stopped, is_stopping

JOBS = ["-m", "model=mlp", "model.hidden=[16]", "workers=2", "trainer.batch_size=8", "tracker=none"]
JOBLIB = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
ENDLESS = ["trainer.steps=100000", "trainer.log_every=100"]

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="it looks for processes in /proc"
)


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Handlers of the signals that a test may replace."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "launcher", [[], pytest.param(JOBLIB, marks=pytest.mark.slow)], ids=["basic", "joblib"]
)
def test_a_killed_job_fails_alone_and_is_done_by_the_same_command(
    tmp_path: Path, launcher: list[str]
) -> None:
    sweep = [*JOBS, "trainer.steps=300", "trainer.log_every=1", "seed=0,1", f"output={tmp_path}", *launcher]
    process = Background(*sweep)
    os.kill(wait_for_job(process, tmp_path, seed=0), signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == 1
    found = jobs_table(out)
    assert [status for status, _ in found.values()] == ["failed", "finished"]
    assert found[1][1].endswith("its process was killed by SIGKILL")
    assert err == "error: its process was killed by SIGKILL\n"
    again = command(*sweep)
    assert again.returncode == 0, again.stderr
    statuses = [status for status, _ in jobs_table(again.stdout).values()]
    assert statuses == ["finished", "skipped"]


@pytest.mark.parametrize(
    ("number", "launcher", "processes"),
    [
        (signal.SIGINT, [], 1),
        pytest.param(signal.SIGTERM, JOBLIB, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, [], 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, JOBLIB, 2, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, [*JOBLIB, "isolate=false"], 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, [*JOBLIB[:1], "hydra.launcher.n_jobs=1"], 1, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_sweep_saves_and_stops_its_jobs_and_says_so(
    tmp_path: Path, number: int, launcher: list[str], processes: int
) -> None:
    process = Background(
        *JOBS, *ENDLESS, "seed=0,1,2", f"output={tmp_path}", f"processes={processes}", *launcher
    )
    running = 2 if "hydra.launcher.n_jobs=2" in launcher else 1
    for seed in range(running):
        wait_for_job(process, tmp_path, seed=seed)
    if number == signal.SIGINT:  # like a terminal
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "interrupted" and "Traceback" not in err
    jobs = jobs_table(out)
    assert [status for status, _ in jobs.values()] == ["interrupted"] * running
    assert len(jobs) == len(list(tmp_path.glob("*/*/checkpoint/step-*"))) == running
    assert_nothing_left(process.pid)


def test_signals_that_a_launcher_repeats_do_not_kill_the_jobs(
    tmp_path: Path, own_handlers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second SIGTERM at any time, and a second SIGINT at the time of the first one."""
    ask_when_stopped(tmp_path)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    monkeypatch.setattr(parallel, "SAME_SECONDS", 0.0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert is_stopping(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_sweep_that_cannot_ask_its_jobs_ends_at_once(tmp_path: Path, own_handlers: None) -> None:
    ask_when_stopped(tmp_path / "missing")
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_ignores_the_stop_of_a_sweep_that_another_process_started(tmp_path: Path) -> None:
    sweep = tmp_path / f"20260101-000000-{os.getpid()}"
    sweep.mkdir()
    (sweep / "stop").touch()
    result = command("compressor=nosuch", TOTAL_ERROR_JOBS=str(sweep))
    assert result.returncode == 1 and "nosuch" in result.stderr and "interrupted" not in result.stderr


@pytest.mark.parametrize(
    "launcher", [[], pytest.param(JOBLIB, marks=pytest.mark.slow)], ids=["one_by_one", "joblib"]
)
def test_a_job_does_not_outlive_its_sweep(tmp_path: Path, launcher: list[str]) -> None:
    process = Background(*JOBS, *ENDLESS, "seed=0,1,2", f"output={tmp_path}", *launcher)
    wait_for_job(process, tmp_path, seed=0)
    process.kill()
    process.wait()
    assert_nothing_left(process.pid)


@pytest.mark.slow
def test_the_end_of_what_starts_the_jobs_costs_one_job(tmp_path: Path) -> None:
    sweep = [*JOBS, "trainer.steps=300", "trainer.log_every=1", "seed=0,1", f"output={tmp_path}"]
    process = Background(*sweep)
    os.kill(parent_of(wait_for_job(process, tmp_path, seed=0)), signal.SIGKILL)
    out, err = process.communicate()
    assert process.returncode == 1
    assert [status for status, _ in jobs_table(out).values()] == ["failed", "finished"]
    assert "error: the process that starts this sweep's jobs has ended\n" in err and "state is saved" in err


@pytest.mark.slow
def test_submitit_runs_a_sweep_without_slurm(tmp_path: Path) -> None:
    words = [*JOBS, "trainer.steps=3", "seed=0,1", "hydra/launcher=submitit_local", f"output={tmp_path}"]
    result = command(*words)
    assert result.returncode == 0, result.stderr
    assert [status for status, _ in jobs_table(result.stdout).values()] == ["finished", "finished"]
    for path in tmp_path.glob("*/*/environment.json"):
        assert json.loads(path.read_text())["command"] == ["run.py", *words]


@pytest.mark.slow
def test_jobs_in_one_process_give_the_same_numbers(tmp_path: Path) -> None:
    sweep = [*JOBS, "trainer.steps=3", "seed=0,1"]
    for name, words in (("apart", []), ("together", ["isolate=false"])):
        result = command(*sweep, f"output={tmp_path / name}", *words)
        assert result.returncode == 0, result.stderr
    apart, together = (
        {path.parent.name: numbers(path) for path in (tmp_path / name).glob("*/*/metrics.jsonl")}
        for name in ("apart", "together")
    )
    assert len(apart) == 2 and apart == together
    for path in tmp_path.glob("*/*/*/environment.json"):
        own = json.loads(path.read_text())["overrides"]
        assert not any("," in word for word in own)
        assert command(*own).stdout.startswith(f"{path.parent} is finished already;")


def test_results_come_back_and_faults_are_told() -> None:
    named = {"model": {"_target_": "no.such.module.Model"}, "seed": 3}
    assert json.loads(run_isolated("json:dumps", named)) == named
    with pytest.raises(JobError, match="KeyError: 'threads'"):
        run_isolated("trainers.run.folder:environment", {"workers": 2})
    with pytest.raises(JobError, match="its process ended with status 1"):
        run_isolated("sys:exit", named)
    assert json.loads(run_isolated("json:dumps", {})) == {}


def test_on_macos_a_process_is_a_new_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert IsolatedCall("sys:modules.get", "torch").result() is None


def test_runs_of_forks_are_those_of_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings and variables of the first fork do not reach the second."""
    commands = Commands()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    first = ["seed=1", "threads=2", "kernels=reference"]
    for number, words in enumerate((first, ["seed=0"])):
        for way in ("forks", "alone"):
            run = [*JOBS[1:], "trainer.steps=3", *words, "checkpoint.at_end=true", f"output={tmp_path / way}"]
            done = commands.run_py(run, ROOT) if way == "forks" else command(*run)
            assert done.returncode == 0, done.stderr
            assert f"run folder: {tmp_path / way}" in done.stdout
            assert len(list(tmp_path.glob(f"{way}/*/*/summary.json"))) == number + 1
    forks, alone = (
        {path.parent.relative_to(tmp_path / way): path.parent for path in tmp_path.glob(f"{way}/*/*/*.jsonl")}
        for way in ("forks", "alone")
    )
    assert forks.keys() == alone.keys()
    for name, folder in forks.items():
        other = alone[name]
        assert_same(outcome_in(folder), outcome_in(other))
        assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in other.iterdir())
        for own in ("config.yaml", "environment.json"):
            texts = [
                re.sub(r'"started": "[^"]*"|/(forks|alone)\b', "", (each / own).read_text())
                for each in (folder, other)
            ]
            assert texts[0] == texts[1]


def test_a_fork_that_is_killed_costs_its_run_alone(tmp_path: Path) -> None:
    commands = Commands()
    words = [*JOBS[1:], *ENDLESS, "trainer.log_every=1", f"output={tmp_path}"]
    with ThreadPoolExecutor() as threads:
        runs = [threads.submit(commands.run_py, [*words, f"seed={seed}"], ROOT) for seed in (0, 1)]
        for seed, number in ((0, signal.SIGKILL), (1, signal.SIGTERM)):
            os.kill(wait_for_fork(tmp_path, seed), number)
    killed, stopped = (run.result() for run in runs)
    assert killed.returncode == 1 and killed.stderr == "error: its process was killed by SIGKILL\n"
    assert stopped.returncode == 143 and "state is saved" in stopped.stderr
    done = commands.run_py([*words, "seed=0", "trainer.steps=1", "workers=1"], ROOT)
    assert done.returncode == 0, done.stderr


def test_a_signal_to_a_command_saves_and_stops_its_forks(tmp_path: Path) -> None:
    def stop() -> None:
        wait_for_fork(tmp_path, 0)
        os.kill(os.getpid(), signal.SIGTERM)

    with Commands() as commands:
        stopping = threading.Thread(target=stop)
        stopping.start()
        with pytest.raises(KeyboardInterrupt):
            commands.run_py([*JOBS[1:], *ENDLESS, "trainer.log_every=1", f"output={tmp_path}"], ROOT)
        stopping.join()
        assert len(list(tmp_path.glob("*/*/checkpoint/step-*"))) == 1 and commands.status == 143
        with pytest.raises(KeyboardInterrupt):
            commands.run_py([], ROOT)


def wait_for_job(process: Background, output: Path, seed: int) -> int:
    """The process that holds the lock of the run with this seed, once this run has records."""
    return process.until(lambda: holder(process.pid, output, seed))


def wait_for_fork(output: Path, seed: int) -> int:
    """The same for a run that this process has forked."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (found := holder(os.getsid(0), output, seed)):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
    return found


def holder(leader: int, output: Path, seed: int) -> int | None:
    for config in output.glob("*/*/config.yaml"):
        records = config.parent / "metrics.jsonl"
        lock = config.parent.parent / f".{config.parent.name}.lock"
        if f"\nseed: {seed}\n" in "\n" + config.read_text() and records.exists() and records.stat().st_size:
            return next((pid for pid in session(leader) if lock in opened(pid)), None)
    return None


def opened(pid: int) -> list[Path]:
    try:
        return [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def assert_nothing_left(leader: int) -> None:
    deadline = time.monotonic() + 120
    while session(leader) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [Path(f"/proc/{pid}/cmdline").read_text() for pid in session(leader)] == []


def numbers(records: Path) -> list[str]:
    return [re.sub(r'"time/\w+": [\d.e-]+,? ?', "", line) for line in records.read_text().splitlines()]
