"""run.py in the process of the test, without training."""

import sys

import pytest

import run


def say(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, *words: str) -> tuple[int, str]:
    """Exit status and stderr of run.py in this process, without training and summary."""
    monkeypatch.setattr("trainers.run.training.run", lambda *_: {"compression/total_error": 0.0})
    monkeypatch.setattr("trainers.run.report.print_summary", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    capfd.readouterr()
    return run.command_line(), capfd.readouterr().err
