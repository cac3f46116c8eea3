"""The image presets: the paper's settings at full size and their small versions."""

from typing import Any

import pytest
from building import built
from configs import CONF, resolved
from full_size import stub
from torch import nn

NETWORKS = ("resnet18", "googlenet", "senet18")
PAPER = {  # network and parameters of the released code, lambda by the paper's rule for 0.1 %
    "resnet18_cifar10": ("resnet.resnet18", 11_173_962, 4.730e-3),
    "resnet18_cifar100": ("resnet.resnet18", 11_220_132, 4.720e-3),
    "googlenet_cifar10": ("googlenet.googlenet", 6_166_250, 6.367e-3),
    "googlenet_cifar100": ("googlenet.googlenet_cifar100", 6_402_564, 6.249e-3),
    "senet18_cifar10": ("senet.senet18", 11_389_726, 4.685e-3),
    "senet18_cifar100": ("senet.senet18", 11_436_256, 4.676e-3),
}


@pytest.mark.parametrize(
    "preset", [pytest.param(p, marks=[] if p == "resnet18_cifar10" else pytest.mark.slow) for p in PAPER]
)
def test_paper_presets_are_the_papers_at_full_size(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolved(f"experiment=paper/{preset}", "compressor=hard_threshold")
    stub(config["data"], monkeypatch)
    trainer = built(config)
    network, parameters, threshold = PAPER[preset]
    assert config["model"]["_target_"] == f"models.{network}"
    assert trainer.layout.num_parameters == parameters
    assert trainer.reducer.inner.codec.threshold == pytest.approx(threshold, rel=2e-4)
    assert trainer.reducer.scale == "gradient"
    assert (trainer.communicator.size, trainer.settings.batch_size) == (8, 256)
    assert trainer.epochs_per_step == 1 / 24  # 24 full batches of 256 in a shard of 6,250
    assert trainer.num_steps == 7200
    sharing = trainer.dataset.sharing
    assert (sharing.reshard, sharing.partition) == ("epoch", "iid")
    assert trainer.settings.clip_norm is None
    assert trainer.settings.average_reset_epochs == 30
    last = [m.bn2.weight for m in trainer.model.modules() if type(m).__name__ == "BasicBlock"]
    assert all((weight == 1).all() for weight in last)

    assert config["optimizer"]["nesterov"] == "release"
    assert_decayed_as_released(trainer, preset)


def assert_decayed_as_released(trainer: Any, preset: str) -> None:
    """Assert weight decay of all parameters; for CIFAR-10's ResNet-18 of all but BatchNorm.

    The released code also decays 8 of that network's 40 BatchNorm tensors.
    """
    by_decay: dict[float, set[int]] = {}
    for group in trainer.optimizer.param_groups:
        assert (group["lr"], group["momentum"]) == (0.1, 0.9)
        by_decay.setdefault(group["weight_decay"], set()).update(map(id, group["params"]))
    norms = [m for m in trainer.model.modules() if isinstance(m, nn.BatchNorm2d)]
    of_norms = {id(p) for m in norms for p in m.parameters()}
    everything = {id(p) for p in trainer.model.parameters()}
    if preset == "resnet18_cifar10":
        assert len(of_norms) == 40
        assert by_decay == {1e-4: everything - of_norms, 0.0: of_norms}
    else:
        assert by_decay == {1e-4: everything}


def test_paper_schedule_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate decreases at the first step of an epoch; without drop_last there are 125 more steps."""
    config = resolved("experiment=paper/resnet18_cifar10", "data.drop_last=false")
    stub(config["data"], monkeypatch)
    trainer = built(config)
    assert trainer.num_steps == 7325  # 300 epochs, rounded up to a whole step
    factor = trainer.schedule.factor
    rates = {epoch: 0.1 * factor(epoch, 300) for epoch in (0, 2.5, 5, 149.9, 150, 250, 299)}
    assert rates == pytest.approx({0: 0.1, 2.5: 0.85, 5: 1.6, 149.9: 1.6, 150: 0.16, 250: 0.016, 299: 0.016})
    rates = [factor(step * (1 / 24), 300) for step in range(7200)]
    assert [step for step in range(1, 7200) if rates[step] < rates[step - 1]] == [150 * 24, 250 * 24]


def test_every_network_and_data_set_of_the_paper_has_its_preset() -> None:
    found = {path.stem for path in (CONF / "experiment/paper").glob("*_cifar*.yaml")}
    assert (
        found == {f"{network}_cifar{classes}" for network in NETWORKS for classes in (10, 100)} == set(PAPER)
    )


@pytest.mark.parametrize(
    "network", [pytest.param(n, marks=[] if n == "resnet18" else pytest.mark.slow) for n in NETWORKS]
)
def test_small_twins_differ_in_numbers_only(network: str) -> None:
    """They have the same parts with other settings; their average is never reset before the last epoch."""
    paper, small = (
        resolved(f"experiment={e}") for e in (f"paper/{network}_cifar10", f"small/{network}_digits")
    )
    for group in ("model", "compressor", "feedback", "optimizer", "schedule", "trainer"):
        assert paper[group]["_target_"] == small[group]["_target_"]
    assert paper["model"] == small["model"]
    for setting in ("momentum", "nesterov", "weight_decay", "no_decay"):
        assert paper["optimizer"][setting] == small["optimizer"][setting]
    for setting in ("partition", "reshard", "drop_last"):
        assert paper["data"][setting] == small["data"][setting]
    assert small["trainer"]["average_reset_epochs"] == small["trainer"]["epochs"]
    assert built(small).num_steps <= 100
