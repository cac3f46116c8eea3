"""Every compressor that conf/compressor offers, with the settings that it is to be tested with."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from torch import Tensor

from compressors.api import Codec, Plan, Reduced, Reducer, Segment, Step, inputs_of
from compressors.compress import Compress
from compressors.feedback import ErrorFeedback, no_feedback
from compressors.transports import AllGather
from trainers.communicator import Communicator

CONF = Path(__file__).parents[2] / "conf"
FEEDBACKS = {
    "none": no_feedback,
    "gradient": partial(ErrorFeedback, scale="gradient"),
    "step": partial(ErrorFeedback, scale="step"),
}


class Case(NamedTuple):
    """One compressor yaml with settings that the method names as an example of itself."""

    name: str
    settings: Mapping[str, Any]

    def method(self, **changes: Any) -> Any:
        """The codec or reducer; ``changes`` that it has no setting for are left out."""
        config = OmegaConf.load(CONF / "compressor" / f"{self.name}.yaml")
        budget = {"budget": {"density": 0.1, "threshold": None, "schedule": "constant"}}
        wanted = {key: v for key, v in {**self.settings, **changes}.items() if key in config}
        merged = OmegaConf.merge(budget, {"it": config}, {"it": wanted})
        return instantiate(merged.it, _convert_="all")

    def lossless(self) -> Any:
        """The method at the settings that keep everything. Skips the test where there are none."""
        settings = self.method().traits.lossless_at
        if settings is None:
            pytest.skip(f"{self.name} has no settings that keep everything")
        return self.method(**settings)

    def __str__(self) -> str:
        named = [key for key, value in self.settings.items() if value is True or isinstance(value, Mapping)]
        return "-".join([self.name, *named])


def cases() -> list[Case]:
    """All yamls, with each of the examples that the method named there gives of itself."""
    found = []
    for path in sorted((CONF / "compressor").glob("*.yaml")):
        found += [Case(path.stem, settings) for settings in get_class(OmegaConf.load(path)._target_).examples]
    return found


def is_codec(method: Any) -> bool:
    return isinstance(method, Codec)


def segment(rows: Tensor, name: str = "a") -> Segment:
    """A segment of one layer."""
    return Segment(name, rows, ((rows.shape[1],),))


def plan(rates: Sequence[float] = (1.0,), **changes: Any) -> Plan:
    """A training with such factors on the learning rate, by plain SGD under error feedback."""
    plain = Plan("layer", "ErrorFeedback", "SGD", 0.0, rates, min(rates))
    return plain._replace(**changes)


def gathered(codec: Codec) -> Compress:
    """The reducer that gathers what ``codec`` sends."""
    return Compress(codec, AllGather())


def reduce_once(
    reducer: Reducer, rows: Tensor, state: Any = None, step: int = 0, learning_rate: float = 1.0
) -> tuple[Reduced, Any, Communicator]:
    """One reduction of one segment in one process. ``rows`` [W, d] is copied before."""
    communicator = Communicator(len(rows))
    segments = [segment(rows.clone())]
    if state is None:
        state = reducer.init(segments)
    reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step, learning_rate), communicator)
    return reduced, state, communicator
