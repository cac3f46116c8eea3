"""The launcher: every process ends, and one reason is reported."""

import tempfile
import time
from pathlib import Path

import pytest

from trainers.launch.isolation import JobError
from trainers.launch.processes import launch
from trainers.launch.stopping import StoppedError


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_all_is_well(temporary: Path) -> None:
    launch("launching:run", "succeed", 2)
    assert not list(temporary.glob("total-error-*"))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("die", "process 1 of 2 was killed by SIGKILL"),
        ("fail", "[Errno 28] No space left on device: 'there'"),
        ("err", "a codec's mistake"),
        ("leave", "process 1 of 2 ended with status 3"),
        ("vanish", "process 1 of 2 ended with status 0"),
        ("refuse", "all of them"),
        ("lose", "another process ended or did not answer for 3 s"),
        pytest.param("be mistaken", "process 1 of 2 failed; its traceback is above", marks=pytest.mark.slow),
    ],
)
def test_one_that_fails_ends_the_others(what: str, said: str) -> None:
    started = time.monotonic()
    with pytest.raises(JobError) as caught:
        launch("launching:run", what, 2)
    assert str(caught.value) == said
    assert time.monotonic() - started < 500


@pytest.mark.parametrize(
    ("what", "said"),
    [("stop", "stopped after step 3"), ("be asked", "stopped; the same command continues the run")],
)
def test_all_are_asked_to_stop(what: str, said: str) -> None:
    with pytest.raises(StoppedError) as caught:
        launch("launching:run", what, 2)
    assert str(caught.value) == said and caught.value.signal == 15


def test_one_that_is_interrupted_before_its_training_ends_the_others() -> None:
    started = time.monotonic()
    with pytest.raises(StoppedError, match="the same command continues the run") as caught:
        launch("launching:run", "interrupt", 2)
    assert caught.value.signal == 2 and time.monotonic() - started < 500


def test_a_second_control_c_ends_those_that_do_not_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.launch.processes.SAME_SECONDS", 0.1)
    with pytest.raises(StoppedError) as caught:
        launch("launching:run", "be asked twice", 2)
    assert caught.value.signal == 2
