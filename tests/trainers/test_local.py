"""Local steps: against plain loops, and equal for all layouts and after a crash."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import command
from resuming import assert_same, config_of, crash_after, timeless, train

from compressors.core.fields import INDICES, KINDS
from trainers.comm.communicator import Communicator
from trainers.config.errors import ConfigError
from trainers.local import fragments_of
from trainers.run.build import build_training
from trainers.schedules.schedules import factor_at
from trainers.step.gradients import seed_worker
from trainers.training import Training

PLAIN = ("model=mlp", "data=digits", "workers=2", "trainer.batch_size=8", "trainer.evaluate_every=100")
QUICK = (*PLAIN, "local=steps", "local.steps=3", "trainer.steps=4")
ADAMW = ("optimizer=adamw", "optimizer.lr=0.003", "schedule=cosine")
AVERAGE = ("local.outer.lr=1", "local.outer.momentum=0", "local.outer.nesterov=false")
SGD = ("optimizer=plain_sgd", "optimizer.lr=0.125", "optimizer.weight_decay=0", "schedule=constant")


def built(tmp_path: Path, *overrides: str) -> Training:
    config = config_of(tmp_path, *QUICK, *overrides)
    return build_training(config, Communicator(config["workers"]), torch.device("cpu"))


def weights_after(tmp_path: Path, *overrides: str) -> list[torch.Tensor]:
    """The model's weights at the end of a run, by name."""
    tensors = train(config_of(tmp_path, *overrides))["tensors"]
    return [tensors[name] for name in sorted(tensors) if name.startswith("shared/model/")]


def by_a_plain_loop(training: Training, num_steps: int, num_rounds: int) -> list[torch.Tensor]:
    """DiLoCo with torch's optimizers and a copy of the model for each worker."""
    model, loader = training.model, training.loader.loader  # the loader of single local steps
    outer = training.local.outer.make(model.parameters())
    shared = [p.detach().clone() for p in model.parameters()]
    states: list[Any] = [None, None]
    for number in range(num_rounds):
        moved = []
        for worker in range(2):
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), shared, strict=True):
                    parameter.copy_(value)
            own = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.01)
            if states[worker] is not None:
                own.load_state_dict(states[worker])
            for step in range(number * num_steps, (number + 1) * num_steps):
                factor = factor_at(training.schedule, step, num_rounds * num_steps, loader.epochs_per_step)
                own.param_groups[0]["lr"] = 0.003 * factor
                seed_worker(training.seed, step, worker)
                own.zero_grad()
                loss, _ = training.dataset.task.loss(model, loader.batches(step)[worker], None)
                loss.backward()
                own.step()
            states[worker] = own.state_dict()
            moved.append([s - p.detach() for s, p in zip(shared, model.parameters(), strict=True)])
        with torch.no_grad():
            for parameter, value, one, other in zip(model.parameters(), shared, *moved, strict=True):
                parameter.copy_(value)
                parameter.grad = (one + other) / 2
        outer.step()
        shared = [p.detach().clone() for p in model.parameters()]
    return [value for _, value in sorted(zip(dict(model.named_parameters()), shared, strict=True))]


def test_without_compression_it_is_diloco(tmp_path: Path) -> None:
    settings = (*ADAMW, "compressor=none", "optimizer.no_decay=[]")
    found = weights_after(tmp_path, *QUICK, *settings)
    expected = by_a_plain_loop(built(tmp_path, *settings), 3, 4)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_an_outer_rate_of_one_gives_the_mean_of_the_workers_weights(tmp_path: Path) -> None:
    """One synchronisation of federated averaging."""
    training = built(tmp_path, *SGD, *AVERAGE, "compressor=none")
    state = training.new_state()
    state.gradient_step.run(training.loader.batches(0), 0, 1.0)
    own = [torch.cat([view.flatten() for view in views]) for views in state.gradient_step.workers.weights]
    state.optimizer.step()
    shared = torch.cat([p.detach().flatten() for p in training.model.parameters()])
    assert not torch.equal(own[0], own[1])
    torch.testing.assert_close(shared, (own[0] + own[1]) / 2, rtol=0, atol=1e-7)


@pytest.mark.parametrize("compressor", ["none", "top_k", "hard_threshold"])
def test_one_local_step_of_sgd_is_a_step_without_local_steps(tmp_path: Path, compressor: str) -> None:
    """Up to the rounding of start minus end, which has the precision of the weights."""
    settings = (*SGD, f"compressor={compressor}", "feedback.scale=step", "trainer.steps=3")
    settings = settings if compressor != "none" else tuple(s for s in settings if "scale" not in s)
    usual = weights_after(tmp_path, *PLAIN, *settings)
    found = weights_after(tmp_path, *QUICK, *AVERAGE, "local.steps=1", *settings)
    for one, other in zip(usual, found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=3e-7)


@pytest.mark.parametrize(("schedule", "factors"), [("constant", (1, 1, 1)), ("cosine", (1, 0.75, 0.25))])
def test_a_threshold_follows_the_mean_rate_of_the_local_steps(
    tmp_path: Path, schedule: str, factors: tuple[float, ...]
) -> None:
    """``factors`` are those of a whole training of three local steps."""
    settings = (*QUICK, *ADAMW, f"schedule={schedule}", "compressor=hard_threshold", "trainer.steps=1")
    threshold = 2.5 * (0.003 * statistics.fmean(factors))
    following = train(config_of(tmp_path, *settings, "budget.threshold=2.5", "compressor.follows=rate"))
    constant = train(config_of(tmp_path, *settings, f"budget.threshold={threshold}"))
    assert 0 < following["summary"]["compression/density"] < 1
    assert following["tensors"].keys() == constant["tensors"].keys()
    for name, value in following["tensors"].items():
        assert torch.equal(value, constant["tensors"][name]), name


STREAMING = ("local.steps=6", "local.fragments=2", "local.delay=1", "local.blend=0.5")


@pytest.mark.parametrize("streaming", [(), STREAMING], ids=["diloco", "streaming"])
def test_layouts_and_crashes_change_nothing(tmp_path: Path, streaming: tuple[str, ...]) -> None:
    settings = (
        *(*ADAMW, *streaming, "compressor=top_k", "budget.density=0.05", "checkpoint.every_steps=1"),
        *("trainer.steps=5", "trainer.log_every=2"),
    )
    whole = train(config_of(tmp_path / "whole", *QUICK, *settings))
    crashed = config_of(tmp_path / "crashed", *QUICK, *settings)
    with crash_after(3):
        train(crashed)
    assert_same(whole, train(crashed))
    words = (*QUICK, *settings, "checkpoint.at_end=true", "tracker=none", f"output={tmp_path / 'two'}")
    done = command(*words, "processes=2")
    assert done.returncode == 0, done.stderr
    (metrics,) = tmp_path.glob("two/*/*/metrics.jsonl")
    assert [timeless(json.loads(line)) for line in metrics.read_text().splitlines()] == whole["records"]


def test_a_crash_before_each_fragment_was_exchanged_changes_nothing(tmp_path: Path) -> None:
    """The outer optimizer then has moments for a part of the layers."""
    settings = (*QUICK, *ADAMW, *STREAMING, "compressor=top_k", "checkpoint.every_steps=1")
    whole = train(config_of(tmp_path / "whole", *settings))
    crashed = config_of(tmp_path / "crashed", *settings)
    with crash_after(1):
        train(crashed)
    assert_same(whole, train(crashed))


def test_bytes_are_those_of_one_exchange_per_round(tmp_path: Path) -> None:
    """DiLoCo sends the gradient's bytes once in H steps."""
    config = config_of(tmp_path, *QUICK, *ADAMW, "compressor=none")
    found = train(config)["summary"]
    plain = train(config_of(tmp_path, *PLAIN, *ADAMW, "compressor=none", "trainer.steps=4"))["summary"]
    assert found["comm/link_bytes_sent_total"] == plain["comm/link_bytes_sent_total"]  # 4 steps each
    assert found["epoch"] == pytest.approx(3 * plain["epoch"])
    samples = 4 * 3 * 8  # of a worker
    assert found["comm/link_bytes_per_sample"] == found["comm/link_bytes_sent_total"] / samples
    assert plain["comm/link_bytes_per_sample"] == 3 * found["comm/link_bytes_per_sample"]


def test_rates_are_those_of_the_local_steps(tmp_path: Path) -> None:
    """Recorded, and read by a method: here they fall within the epoch, and the outer rate is constant."""
    falling = ("schedule=inverse", "schedule.decay=1")
    config = config_of(tmp_path, *QUICK, *ADAMW[:2], *falling, "compressor=none", "trainer.log_every=1")
    rates = [r["train/learning_rate"] for r in train(config)["records"] if "train/learning_rate" in r]
    assert rates == pytest.approx([0.003 / (1 + 3 * step) for step in range(4)])
    cosine = ("compressor=accordion", "compressor.period=1", "trainer.steps=100")
    with pytest.raises(ValueError, match="the learning rate is falling at every choice"):
        built(tmp_path, *ADAMW, *cosine)


def test_epochs_that_are_rounded_up_are_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """1,438 samples of 2 workers with 8 a local step: 30 local steps are a third of an epoch."""
    plain = [word for word in QUICK if not word.startswith("trainer.steps")]
    train(config_of(tmp_path, *plain, *ADAMW, "compressor=none", "local.steps=30", "trainer.epochs=0.4"))
    assert "; trainer.epochs=0.4 is rounded up to 0.668 epochs, 2 steps" in capsys.readouterr().out


def test_a_number_of_steps_is_not_said_to_be_rounded_up(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """400 local steps are 4.5 epochs, above the default of trainer.epochs, which is not used."""
    train(config_of(tmp_path, *QUICK, *ADAMW, "compressor=none", "local.steps=100"))
    out = capsys.readouterr().out
    assert "a step is 100 local steps" in out and "rounded up" not in out


def test_tokens_are_those_of_all_local_steps(tmp_path: Path) -> None:
    training = built(tmp_path, "data=python_docs", "data.objective=windows", "model=gpt")
    (batch, _) = next(training.loader.batches(0))
    assert training.read_per_step == ("token", 3 * batch.inputs.numel())


def test_fragments_send_the_same_bytes_in_smaller_bursts(tmp_path: Path) -> None:
    own = ("compressor=none", "trainer.log_every=1", "local.steps=4")
    whole = train(config_of(tmp_path, *QUICK, *ADAMW, *own, "trainer.steps=2"))
    parts = train(config_of(tmp_path, *QUICK, *ADAMW, *own, "trainer.steps=4", "local.fragments=2"))
    equal = ("link_bytes_sent_total", "compression_ratio", "bits_per_parameter", "link_bytes_per_sample")
    for name in ("epoch", "local/steps", *(f"comm/{name}" for name in equal)):
        assert parts["summary"][name] == whole["summary"][name], name
    largest = [each["summary"]["comm/link_bytes_sent_largest"] for each in (whole, parts)]
    assert largest == [max(r.get("comm/link_bytes_sent", 0) for r in e["records"]) for e in (whole, parts)]
    assert largest[1] < 0.7 * largest[0]


@pytest.mark.parametrize("fragments", [1, 3])
def test_a_density_is_that_of_what_is_exchanged(tmp_path: Path, fragments: int) -> None:
    """Top-k keeps the largest tenth of each layer; after 4 steps, one of 3 fragments was exchanged twice."""
    own = ("compressor=top_k", "budget.density=0.1", "trainer.log_every=1", f"local.fragments={fragments}")
    found = train(config_of(tmp_path, *QUICK, *ADAMW, *own))
    for record in found["records"]:
        if "compression/density" in record:
            assert record["compression/density"] == pytest.approx(0.1, rel=0.02)
            assert record["compression/density_mean"] == pytest.approx(0.1, rel=0.02)
    for layer in found["summary"]["layers"].values():
        assert layer["density_mean"] == max(1, int(0.1 * layer["elements"])) / layer["elements"]


def test_leaders_change_with_the_exchanges_of_a_fragment(tmp_path: Path) -> None:
    """Each of 2 workers leads each of 2 fragments once in 4 steps, and sends as many indices."""
    own = ("compressor=clt_k", "budget.density=0.1", "local.steps=2", "local.fragments=2")
    tensors = train(config_of(tmp_path, *QUICK, *ADAMW, *own))["tensors"]
    first, second = (tensors[f"worker/{worker}/ledger/total_bytes"].tolist() for worker in range(2))
    assert first == second and first[KINDS.index(INDICES)] > 0


def test_thresholds_are_searched_in_every_period_of_a_fragment(tmp_path: Path) -> None:
    """With a period of 2, in the first and third exchange of both fragments, and not in the second."""
    own = ("compressor=reused_threshold", "compressor.period=2", "budget.density=0.1", "trainer.log_every=1")
    fragments = ("local.steps=2", "local.fragments=2", "trainer.steps=6")
    records = train(config_of(tmp_path, *QUICK, *ADAMW, *own, *fragments))["records"]
    found = [record["compression/density"] for record in records if "compression/density" in record]
    searched = [abs(density - 0.1) < 0.001 for density in found]
    assert searched == [True, True, False, False, True, True], found


def test_fragments_are_of_equal_size_if_possible() -> None:
    assert fragments_of([4, 1, 2, 5, 2], 3) == [[3], [0, 1], [2, 4]]
    assert fragments_of([3, 2, 1], 1) == [[0, 1, 2]]
    with pytest.raises(ValueError, match="at most the number of layers, 2"):
        fragments_of([1, 1], 3)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("trainer.nonfinite=skip",), "trainer.nonfinite=skip"),
        (("schedule=autolrs",), "schedule=autolrs"),
        (("local.steps=0",), "local.steps must be an integer"),
        (("local.outer.momentum=0",), "local.outer.nesterov needs"),
        (("local.fragments=2",), r"local.fragments must be a divisor of local.steps \(3\)"),
        (("local.delay=3",), "local.delay must be an integer from 0 to 2"),
        (("local.fragments=3", "scope=global"), "scope=global"),
        (("local.fragments=3", "trainer.steps=2"), "at most the number of steps, 2, got 3: some layers"),
    ],
)
def test_what_local_steps_refuse(tmp_path: Path, overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=words):
        built(tmp_path, *(word for word in overrides if not word.startswith("processes")))
