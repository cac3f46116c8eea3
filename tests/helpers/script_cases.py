"""Training scripts with ``total_error.compress``: resumed, with a GradScaler, several dtypes or clipping."""

import io
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from command_line import ROOT, command
from own_script import BUCKET_MEGABYTES, WIDTH, batch, loss_of, network, weights
from own_script import by_hand as explicit
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import total_error

TOP_K: dict[str, Any] = {"density": 0.02}
STEPS, HALF = 6, 3
EXAMPLES = ROOT / "examples/scripts"


class Script:
    """A user's script: model, optimizer and compression state."""

    def __init__(self, model: nn.Module | None = None, method: str = "top_k", **more: Any) -> None:
        self.model = model or network()
        self.ddp_model = DistributedDataParallel(self.model, bucket_cap_mb=BUCKET_MEGABYTES)
        settings = {} if method in ("random_k", "powersgd") else TOP_K
        if method == "random_k":
            settings = {**TOP_K, "shared_coordinates": False}
        self.state = total_error.compress(self.ddp_model, method, **settings, **more)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.scaler = more.get("scaler")

    def step(self, number: int, factor: float = 1.0) -> None:
        self.optimizer.zero_grad()
        loss = factor * loss_of(self.ddp_model, batch(number, dist.get_rank()))
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
            return
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def run(self, first: int, last: int) -> Tensor:
        for number in range(first, last):
            self.step(number)
        return weights(self.model)


def all_cases(process: int, processes: int, folder: str) -> dict[str, Any]:
    """The results of all cases below in this process. ``folder`` keeps the checkpoint of the first case."""
    found = {"resumed": {m: resumed(m, Path(folder)) for m in ("top_k", "random_k", "powersgd")}}
    found |= {"scaled": scaled(), "overflow": overflowed(process), "dtypes": several_dtypes()}
    return found | {"clipped": clipped(), "accumulated": accumulated(), "metrics": measured()}


def resumed(method: str, folder: Path) -> dict[str, Any]:
    """Comparison of a script that was saved and loaded in the middle with an uninterrupted script."""
    whole = Script(method=method)
    expected = whole.run(0, STEPS)
    first = Script(method=method)
    first.run(0, HALF)
    saved = first.state.state_dict()
    if method == "top_k":
        dcp.save({"compression": saved}, checkpoint_id=folder)
        saved = first.state.empty_state_dict(dist.get_world_size())
        dcp.load({"compression": saved}, checkpoint_id=folder)
    second = Script(network(), method=method)
    second.model.load_state_dict(first.model.state_dict())
    second.state.load_state_dict(saved)
    same = torch.equal(second.run(HALF, STEPS), expected)
    known = [
        second.state.ledger.metrics() == whole.state.ledger.metrics(),
        second.state.step == whole.state.step,
        all(isinstance(tensor, Tensor) for tensor in saved.values()),
    ]
    residual = first.state.state.residual["0.weight"][0].clone() if method == "top_k" else torch.zeros(1)
    return {"same": same, "known": known, "names": sorted(saved), "residual": residual}


def scaled() -> dict[str, Any]:
    """The hard threshold with a GradScaler, compared with a training without one."""
    plain = Script(method="hard_threshold")
    expected = plain.run(0, HALF)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    script = Script(method="hard_threshold", scaler=scaler)
    same = torch.equal(script.run(0, HALF), expected)
    name = "comm/values_bytes_total"
    return {"same": same, "bytes": [s.state.metrics()[name] for s in (plain, script)]}


def overflowed(process: int) -> dict[str, Any]:
    """A step with an infinite loss on the last worker; then the same step with a finite loss."""
    script = Script(scaler=torch.amp.GradScaler("cpu", init_scale=1024.0))
    expected = Script(scaler=torch.amp.GradScaler("cpu", init_scale=1024.0)).run(0, 2)
    script.step(0)
    before, state = weights(script.model).clone(), script.state.state_dict()
    script.step(1, factor=float("inf") if process == 1 else 1.0)
    kept = torch.equal(weights(script.model), before)
    after = script.state.state_dict()
    changed = sorted(name for name, tensor in state.items() if not torch.equal(tensor, after[name]))
    scale = script.scaler.get_scale()
    script.step(1)
    return {
        "kept": kept,
        "changed": changed,
        "scale": scale,
        "goes_on": torch.equal(weights(script.model), expected),
        "skipped": script.state.metrics()["train/steps_skipped"],
    }


class TwoTypes(nn.Module):
    """Layers in bfloat16 and in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Linear(WIDTH, WIDTH, bias=False).to(torch.bfloat16)
        self.high = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.high(self.low(inputs.bfloat16()).float())


def several_dtypes() -> dict[str, Any]:
    torch.manual_seed(0)
    script = Script(TwoTypes())
    script.run(0, HALF)
    found = script.state.metrics()
    residuals = {name: str(rows.dtype) for name, rows in script.state.state.residual.items()}
    mine = weights(script.model).float()
    everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, mine)
    return {
        "residuals": residuals,
        "bytes": found["comm/values_bytes_total"],
        "error": found["compression/total_error"],
        "equal": all(torch.equal(own, mine) for own in everyones),
    }


def clipped() -> Tensor:
    return Script(clip_norm=0.5).run(0, HALF)


def accumulated() -> Tensor:
    """Weights after steps of two batches each, the first batch under ``no_sync``."""
    script = Script(clip_norm=0.5)
    for number in range(HALF):
        script.optimizer.zero_grad()
        with script.ddp_model.no_sync():
            loss_of(script.ddp_model, batch(2 * number, dist.get_rank())).backward()
        loss_of(script.ddp_model, batch(2 * number + 1, dist.get_rank())).backward()
        script.optimizer.step()
    return weights(script.model)


def measured() -> dict[str, float]:
    script = Script()
    script.run(0, HALF)
    return script.state.metrics() | script.state.summary()


def by_hand(workers: int, **settings: Any) -> tuple[Tensor, dict[str, float]]:
    """Weights and metrics of the same training in one process."""
    size = sum(p.numel() for p in network().parameters())
    method = total_error.method("top_k", **TOP_K)
    reducer = total_error.build_reducer(method, size, total_error.feedback("ef"))
    return explicit(workers, HALF, reducer, **settings)


def example(process: int, processes: int, script: str, *calls: list[str]) -> list[str]:
    """The output of ``script`` in examples/scripts for each of these argument lists, in order."""
    said = []
    for words in calls:
        with (
            patch.object(dist, "init_process_group"),
            patch.object(dist, "destroy_process_group"),
            patch.object(sys, "argv", [script, *words]),
            redirect_stdout(io.StringIO()) as printed,
        ):
            runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        said.append(printed.getvalue())
    return said


def restarted_once(script: Path, options: list[str], *, dies_in: int, expected: str) -> None:
    """Assert that torchrun's second start of ``script`` prints ``expected``, after ``dying_example.py``."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    runner = str(ROOT / "tests/helpers/dying_example.py")
    launcher = [*torchrun, "--max-restarts=1", runner, str(dies_in), str(script)]
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = command(*options, launcher=launcher, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT), **own_store)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected and "exitcode: -9" in done.stderr
