"""Deep gradient compression: selection, warm-up, and the settings of its config."""

import math

import numpy as np
import pytest
import torch
from configs import resolved

from compressors.api import Step
from compressors.dgc import DGC, EXPECTED

W, D = 3, 60


def gradients(step: int, size: int = D) -> torch.Tensor:
    return torch.randn(W, size, generator=torch.Generator().manual_seed(step))


def step_of(number: int) -> Step:
    return Step(3, number, segment="a", worker=1)


@pytest.mark.parametrize(("size", "density"), [(20_000, 0.01), (5000, 0.1), (30, 0.01)])
def test_the_selection_is_its_definition(size: int, density: float) -> None:
    """The threshold is the r-th largest of s sampled magnitudes, r = s k / d; above 1.3 k the k largest."""
    x = gradients(0, size)[0]
    k, passed = max(1, int(density * size)), []
    for number in range(20):
        count = min(size, math.ceil(max(0.01 * size, EXPECTED * size / k)))
        stream = torch.Generator().manual_seed(step_of(number).derive_seed(shared=False))
        places = torch.randint(size, (count,), generator=stream).numpy() if count < size else np.arange(size)
        magnitudes = np.abs(x.numpy())
        threshold = np.sort(magnitudes[places])[-max(1, round(count * k / size))]
        kept = np.flatnonzero(magnitudes >= threshold)
        passed.append(len(kept))
        if len(kept) > 1.3 * k:
            kept = np.sort(np.argsort(magnitudes)[-k:])
        left = x.clone()
        payload = DGC(density=density).encode(left, step_of(number))
        assert payload.indices.tolist() == kept.tolist()
        assert torch.equal(payload.values, x[kept])
        assert not left[kept].any()
    if size > 30:  # both branches were taken
        assert min(passed) <= 1.3 * k < max(passed)


def test_the_config_chooses_feedback_warm_up_and_optimizer() -> None:
    config = resolved("compressor=dgc")
    assert config["feedback"] == {
        "_target_": "compressors.feedback.MomentumCorrection",
        "_partial_": True,
        "momentum": 0.9,
        "masking": True,
        "scale": "gradient",
    }
    assert (config["optimizer"]["momentum"], config["optimizer"]["nesterov"]) == (0.0, False)
    assert config["optimizer"]["decay_momentum"] == 0.9
    assert resolved("compressor=dgc", "feedback.momentum=0.5")["optimizer"]["decay_momentum"] == 0.5
    schedule = DGC(**{k: v for k, v in config["compressor"].items() if k != "_target_"}).schedule
    printed = [0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001]  # by the paper, with 0.4 % rounded
    assert [schedule.at(epoch, 0.001) for epoch in range(6)] == pytest.approx(printed, rel=0.03)
