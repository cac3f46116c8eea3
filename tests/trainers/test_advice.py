"""Measured costs of methods and advice for a script: bytes are exact, times are positive."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from compressors.build import build_reducer
from compressors.top_k import TopK
from trainers.comm.communicator import Communicator
from trainers.config.errors import ConfigError
from trainers.hooks.advice import __main__ as program
from trainers.hooks.advice import advise as advising
from trainers.hooks.advice.advise import advise
from trainers.hooks.advice.costs import Settings, measure_costs
from trainers.hooks.advice.gloo import Speed
from trainers.hooks.ddp import CompressionState
from trainers.local import LocalSteps
from trainers.network_model.step_times import Cost, Network
from trainers.step.layout import Layout

ROOT = Path(__file__).parents[2]
SIZE = 64 * 100 + 100  # parameters


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout(dict(torch.nn.Linear(64, 100).named_parameters()), "layer")


@pytest.fixture(scope="module")
def costs(layout: Layout) -> dict[str, Cost]:
    return {cost.name: cost for cost in measure_costs(layout, Settings(density=0.01, rank=2, steps=3))}


def test_bytes_and_rounds_are_those_of_the_methods(costs: dict[str, Cost]) -> None:
    assert list(costs) == ["dense", "fp16", "top_k", "hard_threshold", "powersgd"]
    handed = {name: (cost.all_reduced_bytes, cost.gathered_bytes) for name, cost in costs.items()}
    assert handed["dense"] == (4 * SIZE, 0) and handed["fp16"] == (2 * SIZE, 0)
    assert handed["top_k"] == (0, 8 * (64 + 1))  # a value and a position for each of k
    assert handed["powersgd"] == (4 * (2 * (64 + 100) + 100), 0)
    sent = handed["hard_threshold"][1] / 8
    assert 0.7 * 0.01 * SIZE < sent < 1.4 * 0.01 * SIZE + 2  # varies at random; + 2 for the counts of entries
    assert costs["top_k"].rounds == costs["hard_threshold"].rounds == (2.0, 0.0)  # of a worker, of each other
    assert costs["powersgd"].rounds.per_other == 4
    assert all(cost.seconds.of_one > 0 and cost.seconds.per_other >= 0 for cost in costs.values())


def test_a_script_is_advised(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advising, "gloo_speed", lambda: Speed(1e10, 0.002))
    state = SimpleNamespace(layout=layout, communicator=SimpleNamespace(size=8))
    advice = advise(state, compute_seconds=0.0, bandwidth="1kbit", density=0.01, steps=1)
    assert advice.verdict.best.name != "dense" and advice.verdict.over_dense > 2
    assert len(advice.predictions) == 5
    assumed, _, head, _, *rows, _, verdict = str(advice).splitlines()
    assert assumed == (
        "8 workers, link 1 kbit/s, collectives at most 10 Gbit/s, at least 2000 µs for each, "
        "50 µs per message; Top-k and a threshold that send 0.01 of the entries, PowerSGD of rank 2, "
        "compression measured with 1 and 3 workers"
    )
    assert head.startswith("| method | step, ms |") and len(rows) == 5
    assert verdict == str(advice.verdict)
    assert "at least 6000 µs for each (the machine is busy: measure again)," in str(
        Network(1e9, 0.0, 1e10, 6e-3)
    )


def test_density_and_computation_are_those_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 0.5 s, of which the hook adds 0.2 s, with half of the entries."""
    monkeypatch.setattr(advising, "gloo_speed", lambda: Speed(1e10, 0.002))
    model = torch.nn.Linear(64, 100, bias=False)
    state = CompressionState(build_reducer(TopK(density=0.5), 6400), model, communicator=Communicator(1))
    with pytest.raises(ValueError, match=r"^compute_seconds must be given before the state's third step$"):
        advise(state, bandwidth="1kbit")
    with pytest.raises(ValueError, match=r"^density must be given for a state that has sent 0% of the entr"):
        advise(state, bandwidth="1kbit", compute_seconds=0.1)
    state.reduce({"weight": torch.ones(6400)}, last=True)
    state.times.step_seconds.extend([0.5] * 3)
    state.times._exposed.extend([0.2] * 3)
    advice = advise(state, bandwidth="1kbit", steps=1)
    assert [found.compute for found in advice.predictions] == pytest.approx([0.3] * 5)
    assert "a threshold that send 0.5 of the entries" in str(advice)


def test_parameters_of_several_dtypes_have_their_own_bytes() -> None:
    """As the first dtype says nothing of the others, the order of the parameters must not matter."""
    norm, linear = torch.nn.LayerNorm(64), torch.nn.Linear(64, 100, bias=False, dtype=torch.bfloat16)
    for model in (torch.nn.Sequential(norm, linear), torch.nn.Sequential(linear, norm)):
        layout = Layout(dict(model.named_parameters()), "layer", several_dtypes=True)
        found = {cost.name: cost for cost in measure_costs(layout, Settings(density=0.01, steps=1))}
        assert found["dense"].all_reduced_bytes == 4 * 128 + 2 * 6400
        assert found["dense"].rounds.per_other == found["fp16"].rounds.per_other == 2 * 2  # two buckets
        assert found["fp16"].all_reduced_bytes == 2 * (128 + 6400)
        assert found["top_k"].rounds == (2 * 2, 0)  # values and positions of each
        assert found["top_k"].gathered_bytes == 8 + 8 + 64 * (2 + 4)  # one entry of each vector


@pytest.mark.slow
def test_gloo_is_measured_without_running_the_script_again(tmp_path: Path) -> None:
    """The script has no guard of its main module, and its environment is that of a process of torchrun."""
    script = tmp_path / "script.py"
    script.write_text("from trainers.hooks.advice.gloo import gloo_speed\nprint('once', *gloo_speed())\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    once, rate, seconds = line.split()
    assert once == "once" and 1e7 < float(rate) < 1e12 and 1e-5 < float(seconds) < 1


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("compute_seconds", -0.1, "a finite number >= 0"),
        ("latency_seconds", math.nan, "a finite number >= 0"),
        ("overlap", 1.5, "in [0, 1]"),
        ("workers", 0, "an integer >= 1, or None"),
    ],
)
def test_advice_for_numbers_out_of_range_is_refused(
    name: str, value: float | str, rule: str, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advising, "measure_costs", None)  # refused before any measurement
    state = SimpleNamespace(layout=layout, communicator=SimpleNamespace(size=8))
    with pytest.raises(ValueError, match=f"^{re.escape(f'{name} must be {rule}, got {value!r}')}$"):
        advise(state, **{"compute_seconds": 0.1, "bandwidth": "1gbit", "density": 0.01, name: value})


def asked(*overrides: str) -> str:
    chosen = [*overrides, "workers=1", "compressor=none", "tracker=none", "trainer.batch_size=8"]
    return json.dumps(
        {
            "overrides": chosen,
            "settings": {"steps": 1},
            "compute_seconds": None,
            "backend": None,
        }
    )


def test_a_config_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(program, "gloo_speed", lambda: Speed(1e10, 0.002))
    program.main(asked("model=mlp"))
    answer = json.loads(capsys.readouterr().out)
    assert answer["compute_seconds"] > 0 and answer["parameters"] > 0 and answer["batch_size"] == 8
    assert answer["backend"] == [1e10, 0.002] and len(answer["costs"]) == 5


def test_the_computation_of_local_steps_is_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with H = 8 in 2 fragments, which an experiment may set: a step of the training has 4 local steps."""
    times = {"time/gradient_seconds": 0.75, "time/update_seconds": 0.25}
    step = SimpleNamespace(times=lambda: times)
    monkeypatch.setattr(program, "Advance", lambda *_: lambda factor, measure: step)
    parts = {"new_state": lambda: None, "loader": None, "communicator": None, "model": torch.nn.Identity()}
    for count, expected in ((1, 1.0), (LocalSteps(steps=8, fragments=2).steps_at_once, 0.25)):
        assert program.compute_seconds(SimpleNamespace(**parts, steps_at_once=count), 1) == expected


def test_a_config_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="mpl"):
        program.main(asked("model=mpl"))
