"""Settings that methods and feedbacks refuse when they are made, in one line; make test-slow draws more."""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from methods import cases

from compressors.accordion import Accordion
from compressors.build import build_reducer
from compressors.dgc import DGC
from compressors.feedback import DIANA, EF21SGDM, ErrorFeedback, MomentumCorrection
from compressors.one_bit import OneBit
from compressors.powersgd import PowerSGD
from compressors.qsgd import QSGD
from compressors.signsgd import SignSGD
from compressors.strom import Strom
from compressors.terngrad import TernGrad
from compressors.top_k import TopK
from compressors.two_way import TwoWay

ACCORDION = partial(Accordion, k_high=0.3)


def feedback_of(kind: Any, method: object = QSGD()) -> Callable[..., object]:
    return lambda **settings: build_reducer(method, 60, partial(kind, **settings))


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (ACCORDION, {"k_low": 0.4}, "Accordion.k_low must be at most k_high (0.3), got 0.4"),
        (ACCORDION, {"k_low": 0}, "Accordion.k_low must be a density in (0, 1], got 0"),
        (ACCORDION, {"k_low": 0.1, "detection_threshold": 0}, "Accordion.detection_threshold must be > 0"),
        (ACCORDION, {"k_low": 0.1, "period": 1.5}, "Accordion.period must be an integer >= 1, got 1.5"),
        (DGC, {"density": 0.1, "sample": math.nan}, "DGC.sample must be in (0, 1], got nan"),
        (OneBit, {"per": "row"}, "OneBit.per must be one of column, layer, got 'row'"),
        (PowerSGD, {"rank": 1.5}, "PowerSGD.rank must be an integer >= 1, got 1.5"),
        (PowerSGD, {"warm_start": 1}, "PowerSGD.warm_start must be true or false, got 1"),
        (PowerSGD, {"residual": "own"}, "PowerSGD.residual must be 'local' or 'mean', got 'own'"),
        (QSGD, {"bits": 16}, "QSGD.bits must be from 2 to 15, or null for the fewest, got 16"),
        (QSGD, {"bits": None}, "QSGD.levels must be an integer >= 1 if QSGD.bits is null, got None"),
        (QSGD, {"bits": 4, "levels": 8}, "QSGD.levels must be at most 7, which 4 bits hold with a sign"),
        (QSGD, {"levels": 0}, "QSGD.levels must be an integer >= 1, or null for as many as bits hold, got 0"),
        (SignSGD, {"ties": "even"}, "SignSGD.ties must be one of random, positive, got 'even'"),
        (Strom, {"threshold": math.inf}, "Strom.threshold must be a finite number > 0, got inf"),
        (Strom, {}, "Strom.density must be in (0, 1], got None"),
        (TernGrad, {"clip": 0}, "TernGrad.clip must be > 0, or null for no clipping, got 0"),
        (TernGrad, {"values_per_byte": 3}, "TernGrad.values_per_byte must be 4 or 5, got 3"),
        (TwoWay, {"up": TopK(density=0.1), "down": QSGD()}, "TwoWay.up must be a codec that sends every"),
        (feedback_of(DIANA), {"alpha": 1.5}, "DIANA.alpha must be in (0, 1]"),
        (feedback_of(DIANA, TopK(density=0.1)), {}, "compressor must be unbiased under feedback=diana"),
        (feedback_of(DIANA, TernGrad()), {}, "compressor must be unbiased under feedback=diana"),
        (feedback_of(EF21SGDM), {"momentum": 1}, "EF21SGDM.momentum must be in [0, 1), got 1"),
        (feedback_of(ErrorFeedback), {"scale": "lr"}, "ErrorFeedback.scale must be 'gradient' or 'step'"),
        (
            feedback_of(MomentumCorrection),
            {"momentum": True},
            "MomentumCorrection.momentum must be in [0,",
        ),
        (feedback_of(MomentumCorrection), {}, "MomentumCorrection.masking must be false with a method"),
        (feedback_of(MomentumCorrection), {"scale": "x"}, "MomentumCorrection.scale must be 'gradient' or"),
    ],
)
def test_refused(make: Callable[..., object], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        make(**settings)


@pytest.mark.parametrize("density", [0, 1.5, math.nan, None])
def test_density_outside_its_range(density: object) -> None:
    for case in cases():
        if hasattr(case.method(), "density") and case.settings.get("threshold") is None:
            with pytest.raises(Exception, match=r"density must be in \(0, 1\], got") as caught:
                case.method(density=density, threshold=None)
            assert isinstance(caught.value.__cause__ or caught.value, ValueError), case
