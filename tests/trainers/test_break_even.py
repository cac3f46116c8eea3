"""Break-even bandwidth, compared with hand-computed numbers."""

import json
import re
import shlex
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from command_line import command
from results_commands import main

from compressors.build import build_reducer
from compressors.none import NoCompression
from compressors.random_block import RandomBlock
from compressors.top_k import TopK
from trainers.comm.clock import Clock
from trainers.comm.communicator import Communicator
from trainers.comm.links import all_reduce_bytes, gather_bytes
from trainers.hooks.script_times import ScriptTimes
from trainers.network_model.break_even import (
    ANY_BANDWIDTH,
    COMPRESSION,
    NAME,
    ROUNDS,
    StepCost,
    break_even,
    in_words,
)
from trainers.network_model.step_costs import StepCosts
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

DENSE = StepCost(seconds=0.02, rounds=2, traffic_bytes=1e6)


@pytest.mark.parametrize(
    ("cost", "latency", "expected"),
    [
        (StepCost(0.05, 2, 1e5), 0.0, 240e6),  # 900 kB fewer and 30 ms more: 7.2 Mbit / 0.03 s
        (StepCost(0.05, 4, 1e5), 0.003, 200e6),  # and two more rounds of 3 ms each
        (StepCost(0.02, 2, 1e5), 0.0, ANY_BANDWIDTH),  # not slower than the dense step without communication
        (StepCost(0.05, 2, 1e6), 0.0, 0.0),  # slower, with as many bytes
        (StepCost(0.001, 2, 2e6), 0.0, 0.0),  # pays only above a bandwidth
        (StepCost(0.02, 2, 1e6), 0.0, 0.0),  # the same
    ],
)
def test_it_pays_below_a_bandwidth(cost: StepCost, latency: float, expected: float) -> None:
    found = break_even(cost, DENSE, latency_seconds=latency)
    assert found == pytest.approx(expected)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0], "never"),
        ([ANY_BANDWIDTH], "on any network"),
        ([1.2345e9], "below 1.23 Gbit/s"),
        ([0.0, 3e9], "below 0 to 3 Gbit/s"),
        ([3e9, ANY_BANDWIDTH], "below 3 Gbit/s to any speed"),
    ],
)
def test_words(values: list[float], words: str) -> None:
    assert in_words(values) == words


def test_traffic_of_collectives() -> None:
    """100 bytes of each of 4 workers: a gather sends them to 3 others, an all-reduce sends 2 x 3 quarters."""
    assert gather_bytes(100, 4) == 300
    assert all_reduce_bytes(100, 4) == 150
    assert gather_bytes(100, 2) == all_reduce_bytes(100, 2) == 100


def test_the_compression_of_simulated_workers_is_divided() -> None:
    """8 workers: 0.8 s until the last collective ends, 0.3 s of it in collectives; then 0.2 s of sums."""
    clock = Clock()
    clock.seconds, clock.ended = 0.3, 10.8
    assert clock.compression_seconds(1.0, 11.0, 8) == pytest.approx((0.8 - 0.3) / 8 + 0.2)
    assert clock.compression_seconds(1.0, 11.0, 1) == pytest.approx(0.7)
    clock.leading_seconds = 0.1  # excluded, because only one process has them in a step
    assert clock.compression_seconds(1.0, 11.0, 8) == pytest.approx((0.8 - 0.3 - 0.1) / 8 + 0.2)
    clock.leading_seconds = 0.0
    clock.ended = None  # a method without communication
    clock.seconds = 0.0
    assert clock.compression_seconds(1.0, 11.0, 8) == pytest.approx(1 / 8)


def test_the_clock_runs_inside_collectives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, moments = Clock(), iter([10.0, 12.0, 20.0, 21.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(moments))
    with clock.collective(3):
        pass
    with clock.collective(1):
        pass
    assert (clock.seconds, clock.rounds, clock.ended) == (3.0, 4, 21.0)
    clock.restart()
    assert clock.seconds == clock.rounds == 0 and clock.ended is None


class Event:
    """An event at the time that is set; a GPU has reached it if it is before ``reached``."""

    now, reached = 0.0, 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.milliseconds = Event.now

    def query(self) -> bool:
        return self.milliseconds <= Event.reached

    def elapsed_time(self, other: "Event") -> float:
        return other.milliseconds - self.milliseconds


def test_the_time_of_a_gpu_is_read_when_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two buckets of 6 ms of compression and 10 ms of collectives, with 50 ms of the backward pass after."""
    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = Clock()
    times = ScriptTimes(clock, torch.device("cuda"))
    found = []
    for reached in (0.0, 90.0, 246.0):
        for _ in range(2):
            times.begin()
            for compression, collective in ((1.0, 4.0), (2.0, 6.0)):
                Event.now += compression
                with clock.collective(1):
                    Event.now += collective
            Event.now += 3.0
            times.end()
            Event.now += 50.0
        Event.reached = reached
        times.close_step()
        found.append(times.compression_seconds)
    assert found == [None, pytest.approx(0.012), pytest.approx(0.012)]  # of no step, the first, the second
    times.step_seconds.extend([0.132] * 5)
    assert times.compute_seconds() == pytest.approx(0.1)


def layout_of(size: int) -> Layout:
    return Layout({"weight": torch.nn.Parameter(torch.zeros(size))}, "layer")


def costs_after_steps(
    reducer: object, workers: int, seconds: list[float], num_bytes: list[int], buckets: int = 1
) -> StepCosts:
    """The costs after steps with these seconds, and these bytes of values in each bucket."""
    layout, communicator = layout_of(1000), Communicator(workers)
    costs, ledger = StepCosts(reducer, layout, communicator), Ledger(layout, communicator, reducer)
    for taken, sent in zip(seconds, num_bytes, strict=True):
        communicator.clock.restart()
        values = torch.zeros(workers, sent // 4)
        for _ in range(buckets):
            if reducer.traits.linear:
                communicator.all_reduce_mean([values], lambda rows: rows.sum(0))
            else:
                communicator.all_gather(values, "values")
        ledger.close_step()
        costs.add(SimpleNamespace(compression_seconds=taken, num_buckets=buckets), ledger)
    return costs


@pytest.mark.parametrize(("method", "traffic_bytes"), [("top_k", 3 * 60), ("random_block", 1.5 * 60)])
def test_steps_are_summed_up(monkeypatch: pytest.MonkeyPatch, method: str, traffic_bytes: float) -> None:
    """The seconds exclude the first step; bytes are the mean of 40, 60 and 80."""
    made = TopK(density=0.1) if method == "top_k" else RandomBlock(density=0.1)
    costs = costs_after_steps(build_reducer(made, 1000), 4, [9.0, 0.3, 0.5], [40, 60, 80])
    monkeypatch.setattr("trainers.network_model.step_costs.seconds_of_none", lambda layout: 0.1)
    expected = 8 * (1.5 * 4000 - traffic_bytes) / (0.4 - 0.1)
    rounds = 1 if method == "top_k" else 2 * 3  # a gather; a ring all-reduce of 4 workers
    found = costs.summary()
    assert found == {NAME: pytest.approx(expected), ROUNDS: rounds, COMPRESSION: pytest.approx(0.4)}


def test_dense_training_waits_for_as_many_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three buckets of 4 workers: 3 gathers, beside 3 all-reduces of 6 rounds each; a round takes 0.01 s."""
    costs = costs_after_steps(build_reducer(TopK(density=0.1), 1000), 4, [0.4, 0.4], [20, 20], buckets=3)
    monkeypatch.setattr("trainers.network_model.step_costs.seconds_of_none", lambda layout: 0.1)
    monkeypatch.setattr("trainers.network_model.step_costs.round_seconds", lambda communicator: 0.01)
    expected = 8 * (1.5 * 4000 - 3 * 60) / (0.4 - 0.1 + 0.01 * (3 - 18))
    assert costs.summary() == {NAME: pytest.approx(expected), ROUNDS: 3, COMPRESSION: 0.4}


def test_dense_training_and_a_single_worker_have_none() -> None:
    dense = costs_after_steps(NoCompression(), 4, [0.1, 0.1], [4000, 4000])
    assert dense.summary() == {}
    alone = costs_after_steps(build_reducer(TopK(density=0.1), 1000), 1, [0.1, 0.1], [40, 40])
    assert alone.summary() == {}


@pytest.mark.parametrize("own", [[], [0.3, 0.5]])
def test_processes_agree_on_whether_there_are_times(
    monkeypatch: pytest.MonkeyPatch, own: list[float]
) -> None:
    """A GPU may have finished a step in one process alone: none of them begins the collectives."""
    costs = costs_after_steps(build_reducer(TopK(density=0.1), 1000), 4, own, [40] * len(own))
    asked: list[int] = []
    monkeypatch.setattr(costs.communicator, "all_reduce_max", lambda number: asked.append(number) or 1)
    monkeypatch.setattr(costs.communicator, "collect", lambda row: pytest.fail("the others do not collect"))
    assert costs.summary() == {}
    assert asked == [not own]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_summary_has_it(tmp_path: Path, processes: int) -> None:
    small = ["model=mlp", "model.hidden=[16]", "workers=2", "trainer.steps=3", "trainer.batch_size=8"]
    for method in ("none", "top_k") if processes == 1 else ("top_k",):
        done = command(
            *small, f"compressor={method}", "tracker=none", f"output={tmp_path}", f"processes={processes}"
        )
        assert done.returncode == 0, done.stderr
        assert ("faster than dense" in done.stdout) == (method != "none")
        following = re.findall(r"python -m results ([^;(]+)", done.stdout.splitlines()[-1])
        assert [line.split()[0] for line in following] == ["report", *["breakeven"] * (method != "none")]
        for line in following:
            assert main(shlex.split(line)) == 0
        (path,) = tmp_path.glob(f"mlp-digits-{method}/*/summary.json")
        summary = json.loads(path.read_text())
        assert (NAME in summary) == (method != "none")
        assert summary.get(NAME, 0.0) >= 0.0
        assert summary.get(ROUNDS) == (None if method == "none" else 2)  # gathers of values and positions
        assert 0 <= summary["time/communication_seconds"] <= summary["time/reduce_seconds"]
