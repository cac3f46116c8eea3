"""The DDP hook in a script, compared with a run: state, GradScaler, dtypes, clipping, metrics."""

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from own_script import network
from processes import run_in_processes
from script_cases import HALF, TOP_K, WIDTH, all_cases, by_hand, example
from torch import nn

import total_error
from trainers.comm.communicator import Communicator
from trainers.hooks.ddp import CompressionState

Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    return run_in_processes(all_cases, 2, str(folder))


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def state_of(
    model: nn.Module, workers: int = 1, rank: int = 0, feedback: Any = None, **more: Any
) -> CompressionState:
    """The state of process ``rank`` of ``workers``; it does not communicate with the others."""
    size = sum(p.numel() for p in model.parameters())
    method = total_error.method("top_k", **TOP_K)
    reducer = total_error.build_reducer(method, size, feedback or total_error.feedback("ef"))
    communicator = Communicator(workers, rank=rank, world_size=workers)
    return CompressionState(reducer, model, communicator=communicator, **more)


def reduce_ones(state: CompressionState) -> None:
    state.reduce({name: torch.ones(p.numel()) for name, p in state.parameters.items()}, last=True)


@pytest.mark.parametrize("method", ["top_k", "random_k", "powersgd"])
def test_a_script_resumes_bit_for_bit(method: str, found: Found) -> None:
    for result in found:
        own = result["resumed"][method]
        assert own["same"] and own["known"] == [True, True, True]


def test_one_worker_continues_what_two_have_saved(found: Found, folder: Path) -> None:
    state = state_of(network())
    saved = state.empty_state_dict(2)
    dcp.load({"compression": saved}, checkpoint_id=folder, no_dist=True)
    saved["worker/1/ledger/largest_link_bytes"] += 100
    state.load_state_dict(saved)
    assert state.ledger.largest_link_bytes[0] == saved["worker/1/ledger/largest_link_bytes"]
    residuals = [result["resumed"]["top_k"]["residual"] for result in found]
    expected = ((residuals[0].double() + residuals[1].double()) / 2).float()
    assert torch.equal(state.state.residual["0.weight"][0], expected)
    assert state.step == state.ledger.steps == HALF


def test_a_state_that_does_not_fit_is_refused_before_anything_changes() -> None:
    state = state_of(network())
    reduce_ones(state)
    saved, before = state.state_dict(), state.state_dict()
    name = "worker/0/state/residual/0.weight"
    for wrong, said in (
        ({"seed": torch.tensor(3)}, r"^CompressionState\.seed must be 3, as in the saved state, got 0$"),
        ({name: torch.zeros(5)}, rf"must have {name} of float32 \[1024\], got float32 \[5\]$"),
        (
            {name: torch.full((1024,), math.nan)},
            r"must be finite, got nan or inf in state/residual/0\.weight$",
        ),
        ({"num_workers": torch.tensor(2)}, r"must have worker/1/state/residual/0\.weight of .*, got none$"),
    ):
        with pytest.raises(ValueError, match=said):
            state.load_state_dict(saved | wrong)
    same = total_error.feedback("ef", beta=1)  # the number as an integer
    state_of(network(), feedback=same).load_state_dict(saved)
    for other, said in (
        (total_error.feedback("ef", scale="step"), r"ErrorFeedback\(scale='step', beta=1\.0\)"),
        (total_error.feedback("low_pass"), r"ErrorFeedback\(scale='gradient', beta=0\.1\)"),
        (total_error.feedback("none"), "none"),
    ):
        with pytest.raises(ValueError, match=f"was saved with another feedback than {said}$"):
            state_of(network(), feedback=other, learning_rate=0.1).load_state_dict(saved)
    with pytest.raises(ValueError, match="must have ledger_steps"):
        state.load_state_dict({key: t for key, t in saved.items() if key != "ledger_steps"})
    assert all(torch.equal(tensor, before[key]) for key, tensor in state.state_dict().items())


def test_a_pickled_state_goes_on_after_attach() -> None:
    scaler = torch.amp.GradScaler("cpu")
    model = network()
    state = state_of(model, scaler=scaler)
    reduce_ones(state)
    copy = pickle.loads(pickle.dumps(state))  # noqa: S301  # written by this test
    with pytest.raises(RuntimeError, match=r"call attach\(module\) first"):
        copy.reduce({}, last=True)
    with pytest.raises(ValueError, match=r"^attach\(scaler\) must be given"):
        copy.attach(model)
    with pytest.raises(
        ValueError, match=r"^attach\(module\): 0\.weight must be .* \[32, 32\], as in .*, got .* \[2, 2\]$"
    ):
        copy.attach(nn.Sequential(nn.Linear(2, 2)), scaler=scaler)
    copy.attach(model, scaler=scaler)
    copy.workers = Communicator(1)
    for each in (state, copy):
        reduce_ones(each)
    pairs = zip(state.state_dict().items(), copy.state_dict().items(), strict=True)
    assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in pairs)


def test_a_scaler_changes_neither_bytes_nor_weights(found: Found) -> None:
    for result in found:
        plain, scaled = result["scaled"]["bytes"]
        assert result["scaled"]["same"] and plain == scaled > 0


def test_a_step_that_overflows_changes_nothing_on_any_worker(found: Found) -> None:
    for result in found:
        own = result["overflow"]
        assert own["kept"] and own["goes_on"]
        assert own["changed"] == ["skipped"]
        assert (own["scale"], own["skipped"]) == (512.0, 1)


def test_parameters_of_two_dtypes(found: Found) -> None:
    sent = int(TOP_K["density"] * WIDTH * WIDTH)
    for result in found:
        own = result["dtypes"]
        assert own["residuals"] == {"low.weight": "torch.bfloat16", "high.weight": "torch.float32"}
        assert own["bytes"] == HALF * sent * (2 + 4)
        assert own["equal"] and own["error"] > 0


def test_clipping_is_the_laboratorys(found: Found) -> None:
    expected, _ = by_hand(2, clip_norm=0.5)
    assert all(torch.equal(result["clipped"], expected) for result in found)


def test_clipping_after_accumulation_is_the_laboratorys(found: Found) -> None:
    expected, _ = by_hand(2, clip_norm=0.5, batches=2)
    for result in found:
        torch.testing.assert_close(result["accumulated"], expected)


def test_metrics_are_those_of_a_run(found: Found) -> None:
    _, expected = by_hand(2)
    for result in found:
        assert {name: result["metrics"][name] for name in expected} == expected
        own = result["metrics"].keys() - expected.keys()
        times = {"time/reduce_seconds", "time/step_seconds", "time/compression_seconds"}
        costs = {"comm/break_even_bits_per_second", "comm/rounds"}
        assert own == {"step", "train/steps_skipped", *costs, *times}


def test_a_log_in_one_line() -> None:
    class Run:
        step = 0  # as that of W&B, it grows with logs of the script's own

        def log(self, data: dict[str, float], step: int | None = None) -> None:
            written.append((step, data))

    class Writer:
        def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
            written.append((global_step, {tag: scalar_value}))

    written: list[tuple[int | None, dict[str, float]]] = []
    state = state_of(network())
    reduce_ones(state)
    said = state.log(Run(), loss=2.0)
    assert written == [(1, said)] and said["loss"] == 2.0 and said["compression/total_error"] > 0
    assert state.log(None) == {name: value for name, value in said.items() if name != "loss"}
    written[:] = written[:1]
    ahead = Run()
    ahead.step = 3
    state.log(ahead)
    assert written.pop()[0] == 3
    state.log(Writer())
    assert {name: value for _, own in written[1:] for name, value in own.items()} == state.metrics()
    with pytest.raises(ValueError, match=r"^log\(target\) must be a run of Weights & Biases, .*, got list$"):
        state.log([])


def warnings_after(state: CompressionState, value: float, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is said in 100 steps with gradients whose last entry is ``value`` and whose others are 1."""
    for _ in range(100):
        gradients = {name: torch.ones(p.numel()) for name, p in state.parameters.items()}
        gradients["bias"][-1] = value
        state.reduce(gradients, last=True)
    return caplog.messages


def threshold(value: float, feedback: str = "ef", **more: Any) -> CompressionState:
    model = nn.Linear(40, 40)
    method = total_error.method("hard_threshold", threshold=value)
    reducer = total_error.build_reducer(method, 1640, total_error.feedback(feedback))
    return CompressionState(reducer, model, communicator=Communicator(1), **more)


def test_far_more_than_the_density_that_was_asked_for_is_said(caplog: pytest.LogCaptureFixture) -> None:
    state = threshold(0.5)
    state.density = 0.4
    assert warnings_after(state, 1.0, caplog) == []  # 2.5 times as much
    state = threshold(0.5)
    state.density = 0.25
    assert warnings_after(state, 1.0, caplog) == [
        "total_error: 100.00% of the entries were sent in 100 steps, 4.0 times the density 0.25 that was "
        "asked for"
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_said_unless_the_gradient_is_checked(
    value: float, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_after(threshold(0.5, "none"), value, caplog) == [
        "total_error: step 100: what worker 0 sends of bias is not finite; scaler= or clip_norm= keep such a "
        "gradient out of the residual"
    ]
    caplog.clear()
    assert warnings_after(threshold(0.5, "none", clip_norm=1.0), value, caplog) == []


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^CompressionState\.clip_norm must be above 0, got -1\.0$"):
        state_of(network(), clip_norm=-1.0)
    with pytest.raises(ValueError, match=r"^CompressionState\.scaler must be a torch\.amp\.GradScaler, got"):
        state_of(network(), scaler=3.0)


def test_the_example_continues_where_it_was(tmp_path: Path) -> None:
    saving = ["--save-every", "4", "--checkpoint", str(tmp_path)]
    calls = ["--steps", "8"], ["--steps", "6", *saving], ["--steps", "8", *saving]
    first, second = run_in_processes(example, 2, "checkpointed.py", *calls)
    assert second == ["", "", ""] and first[0] == first[2] != first[1]
    assert {path.name for path in tmp_path.iterdir()} == {"step_4", "step_8"}
    ((alone,),) = run_in_processes(example, 1, "checkpointed.py", ["--steps", "10", *saving])
    assert alone.startswith("step 10  loss 0.") and "compression/total_error" in alone
