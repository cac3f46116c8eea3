"""Every compressor that conf/compressor offers, for tests that hold them all to one contract."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from compressors.api import Context, Reduced, Reducer, Segment
from compressors.feedback import ErrorFeedback, no_feedback
from trainers.communicator import Communicator

CONF = Path(__file__).parents[2] / "conf"
FEEDBACKS = {
    "none": no_feedback,
    "gradient": partial(ErrorFeedback, scale="gradient"),
    "step": partial(ErrorFeedback, scale="step"),
}


class Case(NamedTuple):
    """One compressor yaml with one choice of its true-or-false settings."""

    name: str
    settings: dict[str, Any]

    def method(self, **changes: Any) -> Any:
        """The codec or reducer, at a density of 0.1 or a threshold of 1 unless changed."""
        config = OmegaConf.load(CONF / "compressor" / f"{self.name}.yaml")
        defaults = {"density": 0.1} | ({"threshold": 1.0} if "threshold" in config else {})
        defaults |= {"k_low": 0.1, "k_high": 0.2, "period": 1}  # of accordion: a choice in every epoch
        budget = {"budget": {"density": 0.1, "schedule": "constant"}}
        wanted = {key: v for key, v in (defaults | self.settings | changes).items() if key in config}
        merged = OmegaConf.merge(budget, {"it": config}, {"it": wanted})
        return instantiate(merged.it, _convert_="all")

    def lossless(self) -> Any:
        """The method at the setting that keeps everything."""
        return self.method(density=1.0, threshold=0.0, k_low=1.0, k_high=1.0, schedule="constant")

    def __str__(self) -> str:
        return "-".join([self.name, *(key for key, value in self.settings.items() if value)])


def cases() -> list[Case]:
    """All yamls; a setting that is true or false is tried both ways. Top-k with a density schedule, too."""
    found = []
    for path in sorted((CONF / "compressor").glob("*.yaml")):
        settings = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        flags = [key for key, value in settings.items() if isinstance(value, bool)]
        assert len(flags) <= 1, "more than one flag: let this function try their combinations"
        found += [Case(path.stem, {flag: value}) for flag in flags for value in (False, True)] or [
            Case(path.stem, {})
        ]
    return [*found, Case("top_k", {"schedule": {"kind": "step", "milestones": [1, 3], "factor": 0.7}})]


def is_codec(method: Any) -> bool:
    return hasattr(method, "encode")


def segment(rows: Tensor, name: str = "a") -> Segment:
    """A segment of one layer."""
    return Segment(name, rows, torch.tensor([0, rows.shape[1]]))


def reduce_once(
    reducer: Reducer, rows: Tensor, state: Any = None, step: int = 0, learning_rate: float = 1.0
) -> tuple[Reduced, Any, Communicator]:
    """One reduction of one segment in one process. ``rows`` [W, d] is copied before."""
    communicator = Communicator(len(rows))
    segments = [segment(rows.clone())]
    if state is None:
        state = reducer.init(segments)
    reduced, state = reducer.reduce(segments, state, Context(0, step, learning_rate), communicator)
    return reduced, state, communicator
