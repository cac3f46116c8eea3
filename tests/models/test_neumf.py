"""NeuMF: size, formula, initialisation, and the paper's preset at full size."""

import math

import pytest
import torch
from configs import resolved
from hydra.utils import instantiate

from compressors.build import build_reducer
from data.ratings.movielens import EDITIONS
from models.neumf import neumf
from trainers.step.layout import Layout

ML20M = {"num_users": 138_493, "num_items": 26_744}


def test_size_at_movielens_20m() -> None:
    with torch.device("meta"):
        model = neumf(**ML20M)
        assert model(torch.empty(7, dtype=torch.int32), torch.empty(7, dtype=torch.int32)).shape == (7,)
    embeddings = (138_493 + 26_744) * (64 + 128)
    layers = 256 * 256 + 256 + 256 * 128 + 128 + 128 * 64 + 64 + (64 + 64) + 1
    assert sum(p.numel() for p in model.parameters()) == embeddings + layers == 31_832_577


def test_by_hand() -> None:
    model = neumf(num_users=2, num_items=3, factors=2, hidden=[4, 3], dropout=0.5).eval()
    users, items = torch.tensor([0, 1, 1]), torch.tensor([2, 0, 2], dtype=torch.int32)
    product = model.factor_users.weight[users] * model.factor_items.weight[items]
    joined = torch.cat([model.mlp_users.weight[users], model.mlp_items.weight[items]], 1)
    hidden = (joined @ model.mlp[0].weight.T + model.mlp[0].bias).clamp(min=0)
    expected = torch.cat([product, hidden], 1) @ model.output.weight[0] + model.output.bias
    torch.testing.assert_close(model(users, items), expected)


def test_start() -> None:
    torch.manual_seed(0)
    model = neumf(num_users=2000, num_items=1000)
    for embedding in (model.factor_users, model.factor_items, model.mlp_users, model.mlp_items):
        assert embedding.weight.std().item() == pytest.approx(0.01, rel=0.02)
        assert embedding.weight.mean().item() == pytest.approx(0, abs=1e-4)
    first = model.mlp[0].weight
    assert first.abs().max().item() == pytest.approx(math.sqrt(6 / 512), rel=0.01)
    assert model.output.weight.std().item() == pytest.approx(math.sqrt(1 / 128), rel=0.2)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factors": 0}, r"model\.factors must be an integer >= 1, got 0"),
        ({"hidden": []}, r"model\.hidden must be a list of integers >= 1, the first one even, got \[\]"),
        ({"hidden": [5, 2]}, r"the first one even, got \[5, 2\]"),
        ({"dropout": "half"}, r"model\.dropout must be in \[0, 1\), got 'half'"),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        neumf(num_users=3, num_items=4, **settings)


@pytest.mark.parametrize("compressor", ["none", "top_k", "hard_threshold"])
def test_the_papers_preset_by_shape(compressor: str) -> None:
    """The paper's settings at full size, with the model on the meta device and without the ratings."""
    config = resolved("experiment=paper/neumf_ml20m", f"compressor={compressor}")
    assert config["workers"] == 8 and config["data"]["min_ratings"] == 20 and config["data"]["negatives"] == 4
    assert EDITIONS[config["data"]["name"]].archive == "ml-20m.zip"
    with torch.device("meta"):
        model = instantiate(config["model"], _convert_="all", **ML20M)
    layout = Layout(dict(model.named_parameters()), config["scope"])
    assert layout.num_parameters == 31_832_577
    trainer = instantiate(config["trainer"], _convert_="all")
    assert (trainer.epochs, trainer.batch_size, trainer.clip_norm) == (30, 131072, None)
    assert trainer.average_reset_epochs == 30
    (group,) = instantiate(config["optimizer"], _convert_="all")(model).param_groups
    assert (group["lr"], group["betas"], group["eps"], group["weight_decay"]) == (
        0.0045,
        (0.25, 0.5),
        1e-8,
        0,
    )
    schedule = instantiate(config["schedule"], _convert_="all")
    assert {schedule.factor(epoch, 30) for epoch in (0, 7.5, 29.9)} == {1}
    method = instantiate(config["compressor"], _convert_="all")
    if compressor == "top_k":
        assert method.density == 0.095
    if compressor == "hard_threshold":
        assert method.for_model(layout.num_parameters).threshold == 1.3e-6
    feedback = instantiate(config["feedback"], _convert_="all")
    build_reducer(method, layout.num_parameters, feedback)
