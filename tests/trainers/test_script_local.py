"""Local steps in a script, compared with a run: weights, metrics, saved state, refusals."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from local_cases import HALF, STREAMING, H, Script, all_cases, as_in_a_run
from own_script import WIDTH, batch, loss_of, network
from processes import run_in_processes
from resuming import config_of, train
from script_cases import EXAMPLES, TwoTypes, example, restarted_once
from torch import nn

import total_error
from trainers.comm.communicator import Communicator
from trainers.run.build import build_training

Found = list[dict[str, Any]]
ROUNDS = 4
RUN = (
    *("model=mlp", "data=digits", "workers=2", "trainer.batch_size=8", "trainer.evaluate_every=100"),
    *("local=steps", f"local.steps={H}", f"trainer.steps={ROUNDS}", "trainer.log_every=1"),
    *("optimizer=adamw", "optimizer.lr=0.003", "optimizer.no_decay=[]", "schedule=constant"),
)
CASES: list[tuple[tuple[str, ...], dict[str, Any]]] = [
    (("compressor=none",), {"compressor": "none"}),
    (("compressor=top_k", "budget.density=0.05"), {"compressor": "top_k", "density": 0.05}),
    (("compressor=visible",), {"compressor": "visible"}),
    (
        ("compressor=hard_threshold", "budget.threshold=2.5", "compressor.follows=rate"),
        {"compressor": "hard_threshold", "threshold": 2.5, "follows": "rate"},
    ),
    (
        (
            *("compressor=visible", f"local.steps={2 * H}", "local.fragments=2", "local.delay=2"),
            "local.blend=0.5",
        ),
        {"compressor": "visible", **STREAMING},
    ),
    (
        ("compressor=top_k", "budget.density=0.05", f"local.steps={2 * H}", "local.fragments=2"),
        {"compressor": "top_k", "density": 0.05, "steps": 2 * H, "fragments": 2},
    ),
    (
        ("compressor=clt_k", "budget.density=0.05", f"local.steps={2 * H}", "local.fragments=2"),
        {"compressor": "clt_k", "density": 0.05, "steps": 2 * H, "fragments": 2},
    ),
    (
        ("compressor=qsgd", "local.outer.lr=1", "local.outer.momentum=0", "local.outer.nesterov=false"),
        {"compressor": "qsgd", "outer": {"lr": 1, "momentum": 0, "nesterov": False}},
    ),
]


WITH_FEEDBACK = total_error.build_reducer(
    total_error.method("top_k", density=0.5), 6, total_error.feedback("ef")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    return run_in_processes(all_cases, 2, str(folder))


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_weights_and_metrics_are_those_of_a_run(tmp_path: Path) -> None:
    training = build_training(config_of(tmp_path, *RUN), Communicator(2), torch.device("cpu"))
    batches = [
        [tuple(batch) for batch in of_workers]
        for step in range(ROUNDS)
        for of_workers in training.loader.batches(step)
    ]
    cases = [settings for _, settings in CASES]
    found = run_in_processes(as_in_a_run, 2, training.model, batches, *cases)
    for place, (overrides, _) in enumerate(CASES):
        run = train(config_of(tmp_path / str(place), *RUN, *overrides))
        for result in (own[place] for own in found):
            for name, weight in result["weights"].items():
                assert torch.equal(weight, run["tensors"][f"shared/model/{name}"]), (overrides, name)
            known = result["metrics"].keys() & run["summary"].keys()
            assert {"comm/bytes_sent_total", "compression/total_error", "local/steps"} <= known
            assert {n: result["metrics"][n] for n in known} == {n: run["summary"][n] for n in known}


def test_a_script_resumes_bit_for_bit_between_two_synchronisations(found: Found) -> None:
    for result in found:
        for own in (result["resumed"], result["streaming"], result["following"]):
            assert own["same"] and own["copied"] and own["known"]
    assert torch.equal(found[0]["resumed"]["state"], found[1]["resumed"]["state"])


def test_one_process_continues_what_two_have_saved(found: Found, folder: Path, alone: None) -> None:
    script = Script()
    with pytest.raises(ValueError, match=r"must have worker/1/state/residual/"):
        script.local.load_state_dict({**script.local.state_dict(), "num_workers": torch.tensor(2)})
    saved = script.local.empty_state_dict(2)
    dcp.load({"local": saved}, checkpoint_id=folder, no_dist=True)
    script.local.load_state_dict(saved)
    assert script.local.local_step == HALF and script.local.compression.step == HALF // H
    rows = [result["resumed"]["own"] for result in found]
    for name, tensor in script.local.state_dict().items():
        if name.startswith("worker/0/") and tensor.is_floating_point():
            both = [own[name.replace("/0/", f"/{worker}/", 1)].double() for worker, own in enumerate(rows)]
            assert torch.equal(tensor, ((both[0] + both[1]) / 2).to(tensor.dtype)), name
        if name.startswith(("weights/", "outer/")):
            assert torch.equal(tensor, rows[0][name]), name
    assert script.local.step() is True


def test_a_scaler_changes_nothing_and_skips_a_step_of_one_process(found: Found) -> None:
    for result in found:
        own = result["scaled"]
        assert own["same"] and own["finite"]
    assert [result["scaled"]["scale"] for result in found] == [1024.0, 512.0]


def test_all_processes_take_over_weights_and_buffers_in_any_memory_order(found: Found) -> None:
    first, second = (result["strided"] for result in found)
    around = [own.pop("around") for own in (first, second)]
    assert torch.equal(torch.stack(around), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_what_is_refused_in_all_processes(found: Found) -> None:
    for result in found:
        said = result["refused"]
        for name, expected in {
            "ddp": r"ValueError: local needs a plain module in each process, got one with Distributed.*",
            "twice": r"ValueError: local needs a model that it was not called for before",
            "others": r"ValueError: local needs the same model, steps and outer optimizer in all processes",
            "thawed": r"ValueError: 0\.weight was frozen when local was called, so it cannot be trained",
            "frozen": r"ValueError: 0\.0\.weight was trained when local was called, so it cannot be frozen",
            "seeds": r"ValueError: compression needs the same method, settings, seed and .*, seed [01]",
            "densities": r"ValueError: compression needs the same method, .* has .*TopK\(density=0\.[12]\).*",
            "nan": r"NonFiniteGradientError: step 3: a weight of worker 1 is not finite in layer 0\.0.*",
        }.items():
            assert re.fullmatch(expected, said[name]), (name, said[name])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 0}, r"^local\.steps must be an integer from 1 to 1000000, got 0$"),
        ({"steps": 6, "fragments": 3}, r"^local\.fragments must be at most the number of layers, 2$"),
        ({"outer": {"lr": 1, "momentum": 0}}, r"^local\.outer\.nesterov needs local\.outer\.momentum > 0"),
        ({"compressor": "dgc", "density": 0.1}, r"^local\.outer\.momentum must be 0 under feedback=momentum"),
        (
            {"feedback": "ef21_sgdm"},
            r"^local\.outer\.momentum must be 0 under feedback=ef21_sgdm, which has its",
        ),
        ({"compressor": "top_kk"}, r"^compressor must be one of "),
        ({"density": 0.1}, r"^density has no effect: "),
        ({"seed": 2**63}, r"^CompressionState\.seed must be an integer of 64 bits, got 9223372036854775808"),
        ({"seed": None}, r"^CompressionState\.seed must be an integer of 64 bits, got None$"),
        ({"compressor": nn.Linear(1, 1)}, r"^compressor must be a name, a codec or a reducer, got Linear$"),
        ({"compressor": WITH_FEEDBACK, "feedback": "ef"}, r"^feedback has no effect: ErrorFeedback is feed"),
        (
            {"feedback": WITH_FEEDBACK},
            r"^feedback must be a name or a function that wraps a reducer, got Err",
        ),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], words: str, alone: None) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=words):
        total_error.local(model, optimizer, **settings)
    total_error.local(model, optimizer)  # the refused call has left nothing behind


def test_a_reducer_with_feedback_gets_no_second_one(alone: None) -> None:
    model = nn.Linear(2, 2)
    local = total_error.local(model, torch.optim.SGD(model.parameters(), lr=0.1), compressor=WITH_FEEDBACK)
    assert local.compression.reducer is WITH_FEEDBACK


def test_weights_that_are_loaded_after_the_call_are_refused(alone: None) -> None:
    """The first synchronisation would replace them by those of the call."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    local = total_error.local(model, optimizer, steps=4)
    model.load_state_dict(nn.Linear(2, 2).state_dict())
    with pytest.raises(
        ValueError, match=r"weight was changed after local was called: load weights before it"
    ):
        local.step()


def test_a_schedule_follows_the_epoch_of_the_local_steps(alone: None) -> None:
    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = {"kind": "step", "milestones": [2], "factor": 0.5}
    local = total_error.local(
        model, optimizer, steps=1, compressor="top_k", density=0.5, schedule=schedule, outer={"lr": 0.5}
    )
    densities = []
    for epoch in range(4):
        local.epoch = epoch
        model(torch.ones(1, 64)).sum().backward()
        local.step()
        densities.append(local.metrics()["compression/density"])
    assert densities == [0.5, 0.5, 0.25, 0.25]


def test_two_models_may_share_a_module_without_parameters(alone: None) -> None:
    shared = nn.ReLU()
    for _ in range(2):
        model = nn.Sequential(nn.Linear(2, 2), shared)
        total_error.local(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match=r"^local needs a model that it was not called for before$"):
        total_error.local(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_state_of_another_delay_is_refused_and_the_outer_rate_is_that_of_the_call(alone: None) -> None:
    def made(**settings: Any) -> total_error.LocalState:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return total_error.local(model, optimizer, **{"steps": 4, **settings})

    saved = made(delay=2).state_dict()
    with pytest.raises(ValueError, match=r"^local\.delay must be 2, as in the saved state, got 1$"):
        made(delay=1).load_state_dict(saved)
    with pytest.raises(ValueError, match=r"^local\.fragments must be 1, as in the saved state, got 2$"):
        made(delay=1, fragments=2).load_state_dict(saved)
    with pytest.raises(ValueError, match=r"^local\.steps must be 4, as in the saved state, got 8$"):
        made(steps=8, delay=2).load_state_dict(saved)
    local = made(delay=2, outer={"lr": 0.3})
    local.load_state_dict(saved)
    assert local.compression.learning_rate == local.outer.param_groups[0]["lr"] == 0.3


def test_autocast_around_a_step_changes_nothing(alone: None) -> None:
    found = []
    for enabled in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        local = total_error.local(model, optimizer, steps=1, compressor="powersgd", rank=1)
        loss_of(model, batch(0, 0)).backward()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            assert local.step()
        found.append(model[0].weight.detach())
    assert torch.equal(*found)


def test_parameters_of_two_dtypes(alone: None) -> None:
    model, plain = TwoTypes(), TwoTypes()
    plain.load_state_dict(model.state_dict())
    optimizers = [torch.optim.SGD(own.parameters(), lr=0.01) for own in (model, plain)]
    outer = {"lr": 1, "momentum": 0, "nesterov": False}
    local = total_error.local(model, optimizers[0], steps=1, outer=outer)
    for own in (model, plain):
        loss_of(own, batch(0, 0)).backward()
    assert local.step() and local.compression.step == 1
    optimizers[1].step()
    for own, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own, expected, atol=1e-3, rtol=0)  # rounded in bfloat16
    assert local.metrics()["comm/bytes_sent"] == WIDTH * WIDTH * (2 + 4)


def test_an_optimizer_of_other_parameters_is_refused(alone: None) -> None:
    with pytest.raises(ValueError, match=r"^local needs an optimizer of the model's parameters alone$"):
        total_error.local(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1))


def test_the_example_continues_where_it_was(tmp_path: Path) -> None:
    saving = ["--save-every", "15", "--checkpoint", str(tmp_path)]
    calls = ["--steps", "30"], ["--steps", "25", *saving], ["--steps", "30", *saving]
    first, second = run_in_processes(example, 2, "local_steps.py", *calls)
    assert second == ["", "", ""] and first[0] == first[2] != first[1]
    ((alone,),) = run_in_processes(example, 1, "local_steps.py", ["--steps", "40", *saving])
    assert alone.endswith("in 4 synchronisations\n")


@pytest.mark.slow
def test_the_example_continues_when_torchrun_has_restarted_it(tmp_path: Path) -> None:
    """Process 1 is killed after local step 20; the checkpoint is of step 15, between synchronisations."""
    ((expected,), _) = run_in_processes(example, 2, "local_steps.py", ["--steps", "30"])
    options = ["--steps", "30", "--save-every", "15", "--checkpoint", str(tmp_path)]
    restarted_once(EXAMPLES / "local_steps.py", options, dies_in=1, expected=expected)
