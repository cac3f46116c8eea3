"""Search for the setting at which one method sends as many bytes as another."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import command
from knobs_here import answer_here, entry_of
from results_commands import command_of_results

from results.compare import budget, knobs
from results.compare.budget import Method
from results.compare.knobs import Knob, Pilot

main = command_of_results("budget")


def knob(slope: float) -> Knob:
    return Knob(factors={"budget.threshold": 1.0}, slope=slope)


def method(name: str) -> Method:
    return Method(name, entry_of(name).knob)


def power_law(exponent: float, wobble: float = 0.0):
    """A pilot that sends 1e6 * value**exponent bytes, by turns ``wobble`` more and less; and its calls."""
    calls: list[float] = []

    def pilot(value: float) -> Pilot:
        calls.append(value)
        sign = 1 if len(calls) % 2 else -1
        return Pilot(value, 1e6 * value**exponent * (1 + sign * wobble), 0.01, "")

    return pilot, calls


@pytest.mark.parametrize("exponent", [-0.5, -1.0, -2.0, -3.5, 1.0])
@pytest.mark.parametrize("start", [0.01, 1.0, 30.0])
def test_a_power_law_is_met(exponent: float, start: float) -> None:
    pilot, calls = power_law(exponent)
    slope = -2.0 if exponent < 0 else 1.0
    best, trials = knob(slope).search(pilot, 2e6, start, tolerance=0.01, runs=12)
    assert best.sent == pytest.approx(2e6, rel=0.01)
    assert trials == len(calls) <= 6


def test_a_wobbling_training_is_met_within_its_wobble() -> None:
    pilot, _ = power_law(-2.0, wobble=0.05)
    best, trials = knob(-2.0).search(pilot, 5e5, 0.1, tolerance=0.001, runs=10)
    assert best.sent == pytest.approx(5e5, rel=0.06)
    assert trials <= 10


def test_a_step_is_closed_in_on() -> None:
    """No value sends the wanted bytes: they jump past that number at 0.5, to which the trials converge."""
    values: list[float] = []

    def pilot(value: float) -> Pilot:
        values.append(value)
        return Pilot(value, 1e6 if value < 0.5 else 1e3, 0.01, "")

    knob(-2.0).search(pilot, 1e5, 2.0, tolerance=0.01, runs=8)
    assert len(values) == 8
    assert abs(values[-1] - 0.5) < 0.1


@pytest.fixture
def warm_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork pilots from a process that has imported torch, because imports take seconds."""

    def run(self: budget.Commands, words: list[str], *_: Any, **__: Any) -> subprocess.CompletedProcess:
        assert words[:2] == [sys.executable, "run.py"]
        return command(*words[2:])

    monkeypatch.setattr(budget.Commands, "run", run)
    monkeypatch.setattr(knobs, "answer_of", answer_here)


@pytest.mark.usefixtures("warm_pilots")
def test_a_real_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["model=mlp", "model.hidden=[8]", "workers=2", "trainer.steps=4", "trainer.batch_size=8"]
    target = tmp_path / "matched.yaml"
    words = [*small, f"output={tmp_path}", "--threshold", "0.02", "--tolerance", "0.2", "--to", str(target)]
    assert main(words) == 0
    budget = yaml.safe_load(target.read_text())
    assert budget["threshold"] == 0.02
    assert 0 < budget["density"] < 1
    assert "compressor=hard_threshold budget.threshold=0.02: " in capsys.readouterr().out
    assert main([*words[:-1], "/proc/matched.yaml"]) == 1
    assert capsys.readouterr().err.startswith("error: [Errno 2]")
    target.unlink()
    assert main([*words, "--tolerance", "1e-9", "--runs", "1"]) == 1
    assert "no setting came within" in capsys.readouterr().err and not target.exists()


@pytest.mark.usefixtures("warm_pilots")
def test_a_written_budget_has_the_schedule_of_the_pilots(tmp_path: Path) -> None:
    """Without it, Top-k would send a tenth of the bytes to which the threshold was matched."""
    small = ["model=mlp", "model.hidden=[8]", "workers=2", "trainer.epochs=5", "trainer.batch_size=256"]
    target = tmp_path / "matched.yaml"
    words = [*small, "budget=warm_up", f"output={tmp_path}", "--density", "0.01", "--tolerance", "0.5"]
    assert main([*words, "--to", str(target)]) == 0
    assert yaml.safe_load(target.read_text())["schedule"] == "exponential"


@pytest.mark.usefixtures("warm_pilots")
def test_what_an_experiment_sets_otherwise_is_found() -> None:
    """experiment=quick has a density of 0.01, which is merged after the choice of a budget."""
    written = ["budget.density=0.02", "budget.threshold=0.04"]
    assert budget.overridden(written, ["experiment=quick", "budget=warm_up"]) == written[:1]
    assert budget.overridden(["budget.density=0.01", written[1]], ["experiment=quick"]) == []
    assert budget.overridden(written, ["model=mlp", "budget.schedule=exponential"]) == []


@pytest.mark.usefixtures("warm_pilots")
def test_bytes_that_leave_a_worker_or_that_it_hands_over(tmp_path: Path) -> None:
    """An all-gather sends a worker's bytes to the 3 other workers."""
    small = ["model=mlp", "model.hidden=[8]", "workers=4", "trainer.steps=2", "trainer.batch_size=8"]
    words = [*small, f"output={tmp_path}", "tracker=none"]
    link, handed = (budget.run_pilot(method("top_k"), 0.1, words, by) for by in ("link", "handed"))
    assert link.folder == handed.folder
    assert link.sent == 3 * handed.sent > 0


def test_a_refused_pilot_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model=mlp", "workers=0", f"output={tmp_path}", "--density", "0.1"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "workers must be an integer >= 1, got 0" in error


@pytest.mark.usefixtures("warm_pilots")
@pytest.mark.parametrize("word", ["+compressor=top_k"])
def test_settings_that_pilots_replace_are_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--density", "0.1"]) == 1
    said = f"error: {word} has no effect: pilots train top_k and hard_threshold with their own settings\n"
    assert capsys.readouterr().err == said


@pytest.mark.usefixtures("warm_pilots")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--density", "0.1", "--method", "signsgd"],
            "signsgd has no knob, a setting that changes the bytes",
        ),
        (
            ["--given", "powersgd=2", "--to", "x.yaml"],
            "--to takes methods whose knobs are budget.density and budget.threshold, got compressor.rank and "
            "budget.density",
        ),
        (["--density", "0.1", "--method", "qsgd", "compressor.bits=3"], "compressor.bits=3 has no effect: "),
        (["--given", "top_k", "--to", "x.yaml"], "--to writes the value of top_k: give it as --given top_k="),
    ],
)
def test_what_cannot_be_matched_is_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err.startswith(f"error: {said}")


@pytest.mark.usefixtures("warm_pilots")
@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["--density", "0.05", "--method", "powersgd"], "compressor=powersgd compressor.rank="),
        (
            ["--density", "0.2", "--method", "hard_threshold", "--knob", "compressor.threshold"],
            "compressor=hard_threshold budget.threshold=",
        ),
    ],
)
def test_every_method_can_be_matched(
    words: list[str], setting: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["model=mlp", "model.hidden=[64]", "workers=2", "trainer.steps=2", "trainer.batch_size=8"]
    assert main([*small, f"output={tmp_path}", *words, "--tolerance", "0.3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith(setting)
    given, found = (float(re.search(r"([\d,]+) bytes", line)[1].replace(",", "")) for line in lines[-3:-1])
    assert abs(found / given - 1) <= 0.3


@pytest.mark.parametrize("content", ["[]", '{"status": "finished"}', ""])
def test_a_pilot_that_cannot_be_read_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(budget.PilotError, match=r"summary\.json") as caught:
        budget._summary(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("warm_pilots")
def test_a_single_worker_has_no_bytes_on_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bytes handed over can still be matched."""
    small = ["model=mlp", "model.hidden=[8]", "workers=1", "trainer.steps=2", "trainer.batch_size=8"]
    assert main([*small, f"output={tmp_path}", "--density", "0.1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    assert said.endswith("is 0.0: nothing leaves a single worker, use --match handed\n")
    assert (
        budget.run_pilot(method("top_k"), 0.1, [*small, f"output={tmp_path}", "tracker=none"], "handed").sent
        > 0
    )


def test_overrides_may_follow_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(budget, "_work", lambda options: seen.append(options.overrides))
    assert budget.main(["experiment=quick", "--density", "0.01", "trainer.steps=20"]) == 0
    assert seen == [["experiment=quick", "trainer.steps=20"]]
