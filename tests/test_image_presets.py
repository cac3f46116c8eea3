"""The image presets: the paper's settings at full size, small twins beside them, 97 % on MNIST."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import CONF, resolved
from full_size import stub
from torch import nn

import run
from trainers.communicator import Communicator

ROOT = Path(__file__).parents[1]
NETWORKS = ("resnet18", "googlenet", "senet18")
PAPER = {  # parameters and lambda of the paper's table; SENet-18 for CIFAR-100 with 512 channels for 516
    "resnet18_cifar10": (11_173_962, 4.730e-3),
    "resnet18_cifar100": (11_220_132, 4.720e-3),
    "googlenet_cifar10": (6_166_250, 6.367e-3),
    "googlenet_cifar100": (6_258_500, 6.320e-3),
    "senet18_cifar10": (11_260_354, 4.712e-3),
    "senet18_cifar100": (11_306_524, 4.702e-3),
}


def built(config: dict[str, Any]) -> Any:
    return run.build(config, Communicator(config["workers"]), torch.device("cpu"))


@pytest.mark.parametrize("preset", PAPER)
def test_paper_presets_are_the_papers_at_full_size(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolved(f"experiment=paper/{preset}", "compressor=hard_threshold")
    stub(config["data"], monkeypatch)
    trainer = built(config)
    parameters, threshold = PAPER[preset]
    assert trainer.layout.num_parameters == parameters
    assert trainer.reducer.inner.codec.threshold == pytest.approx(threshold, rel=2e-4)
    assert trainer.reducer.scale == "gradient"
    assert (trainer.communicator.size, trainer.settings.batch_size) == (8, 256)
    assert trainer.epochs_per_step == 2048 / 50_000
    assert trainer.num_steps == 7325  # 300 epochs, rounded up to a whole step
    assert trainer.settings.clip_norm is None
    assert trainer.settings.average_reset_epochs == 30
    last = [m.bn2.weight for m in trainer.model.modules() if type(m).__name__ == "BasicBlock"]
    assert all((weight == 1).all() for weight in last)


def test_paper_optimizer_and_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolved("experiment=paper/resnet18_cifar10")
    stub(config["data"], monkeypatch)
    trainer = built(config)
    by_decay: dict[float, set[int]] = {}
    for group in trainer.optimizer.param_groups:
        assert (group["lr"], group["momentum"], group["nesterov"]) == (0.1, 0.9, True)
        by_decay.setdefault(group["weight_decay"], set()).update(map(id, group["params"]))
    assert by_decay.keys() == {1e-4, 0.0}
    norms = [m for m in trainer.model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert by_decay[0.0] == {id(p) for m in norms for p in m.parameters()}
    rates = {epoch: 0.1 * trainer.schedule.factor(epoch, 300) for epoch in (0, 2.5, 5, 149.9, 150, 250, 299)}
    assert rates == pytest.approx({0: 0.1, 2.5: 0.85, 5: 1.6, 149.9: 1.6, 150: 0.16, 250: 0.016, 299: 0.016})


def test_every_network_and_data_set_of_the_paper_has_its_preset() -> None:
    found = {path.stem for path in (CONF / "experiment/paper").glob("*_cifar*.yaml")}
    assert (
        found == {f"{network}_cifar{classes}" for network in NETWORKS for classes in (10, 100)} == set(PAPER)
    )


@pytest.mark.parametrize("network", NETWORKS)
def test_small_twins_differ_in_numbers_only(network: str) -> None:
    """The same parts under other settings; the average restarts after the last epoch, that is, never."""
    paper, small = (
        resolved(f"experiment={e}") for e in (f"paper/{network}_cifar10", f"small/{network}_digits")
    )
    for group in ("model", "compressor", "feedback", "optimizer", "schedule", "trainer"):
        assert paper[group]["_target_"] == small[group]["_target_"]
    assert paper["model"] == small["model"]
    for setting in ("momentum", "nesterov", "weight_decay", "undecayed"):
        assert paper["optimizer"][setting] == small["optimizer"][setting]
    assert small["trainer"]["average_reset_epochs"] == small["trainer"]["epochs"]
    assert built(small).num_steps <= 100


def summary_of(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    command = [sys.executable, "run.py", f"output={tmp_path}", "tracker=none", *overrides]
    subprocess.run(command, cwd=ROOT, check=True, timeout=1200)
    (path,) = tmp_path.glob("*/*/summary.json")
    return json.loads(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("compressor", ["none", "top_k", "hard_threshold"])
def test_resnet20_beats_97_percent_on_mnist(compressor: str, tmp_path: Path) -> None:
    root = resolved("data=mnist")["data"]["root"]
    if not list(Path(root).glob("MNIST/raw/train-images-idx3-ubyte*")):
        pytest.skip("no MNIST in $DATA_DIR")
    summary = summary_of(tmp_path, "experiment=small/resnet20_mnist", f"compressor={compressor}")
    assert summary["test/accuracy"] > 0.97
    assert compressor == "none" or summary["compression/density_mean"] <= 0.03
