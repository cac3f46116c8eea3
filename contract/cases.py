"""Test cases of methods with settings, and helpers for one reduction of one segment."""

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import pytest
import torch
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf
from torch import Tensor

from compressors.api import Codec, Plan, Reduced, Reducer, Segment, State, Step, inputs_of
from compressors.build import build_reducer
from compressors.core.compress import Compress
from compressors.core.transports import AllGather
from compressors.feedback import ErrorFeedback, no_feedback
from trainers.comm.communicator import Communicator
from trainers.config.instantiation import with_full_names
from trainers.names import full_name

Feedback = Callable[[Reducer], Reducer]
FEEDBACKS: dict[str, Feedback] = {
    "none": no_feedback,
    "gradient": partial(ErrorFeedback, scale="gradient"),
    "step": partial(ErrorFeedback, scale="step"),
}


class Case(NamedTuple):
    """A method with some of its settings; the others are from its yaml or the class's defaults."""

    source: Path | type[Codec] | type[Reducer]  # its yaml, or its class
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.source.stem if isinstance(self.source, Path) else self.source.__name__

    def method(self, **changes: Any) -> Any:
        """The codec or reducer; ``changes`` of settings that it does not have are omitted."""
        wanted = {**self.settings, **changes}
        if isinstance(self.source, type):
            known = inspect.signature(self.source).parameters
            return self.source(**{key: value for key, value in wanted.items() if key in known})
        return configured(self.source, wanted)

    def lossless(self) -> Any:
        """The method with lossless settings. Skips the test if there are none."""
        settings = self.method().traits.lossless_at
        if settings is None:
            pytest.skip(f"{self.name} has no lossless settings")
        return self.method(**settings)

    def __str__(self) -> str:
        named = []
        for key, value in self.settings.items():
            if value is True or isinstance(value, Mapping):
                named.append(key)
            elif isinstance(value, (int, str)) and value is not False:
                named.append(f"{key}={value}")
            elif not isinstance(value, (bool, float)):
                named.append(f"{key}={type(value).__name__}")
        return "-".join([self.name, *named])


def configured(path: Path, settings: Mapping[str, Any], density: float = 0.1) -> Any:
    """The codec or reducer that a yaml names, with those of ``settings`` that it has."""
    config = _config(path)
    known = {key: value for key, value in settings.items() if key in config}
    chosen = (path, repr(known), density)
    if chosen not in _resolved:  # it takes longer than all else here
        budget = {"budget": {"density": density, "threshold": None, "schedule": "constant"}}
        merged = OmegaConf.merge(budget, {"it": config}, {"it": known}).it
        _resolved[chosen] = with_full_names(OmegaConf.to_container(merged, resolve=True))
    return instantiate(_resolved[chosen], _convert_="all")


def cases_of(*methods: type[Codec] | type[Reducer]) -> list[Case]:
    """Cases of classes of methods, one per declared example. Raises ``ValueError`` for an unknown setting."""
    return [
        _known(Case(method, settings), inspect.signature(method).parameters)
        for method in methods
        for settings in method.examples
    ]


def cases_in(conf: Path) -> list[Case]:
    """Cases of all methods in ``conf``/compressor/*.yaml, one per declared example.

    Raises ``ValueError`` for a setting that the yaml does not have.
    """
    found = []
    for path in sorted((conf / "compressor").glob("*.yaml")):
        method: Any = get_class(full_name(_config(path)._target_))
        found += [_known(Case(path, settings), _config(path)) for settings in method.examples]
    return found


def _known(case: Case, settings: Container[str]) -> Case:
    for key in case.settings:
        if key not in settings:
            raise ValueError(f"examples: {case.name} has no setting {key}")
    return case


_resolved: dict[tuple[Path, str, float], Any] = {}  # settings, by yaml, changes and density


@lru_cache(maxsize=256)
def _config(path: Path) -> Any:
    """A yaml's config of a method, with the methods that its defaults list inserts.

    Hydra would need a complete config, which a package of compressors does not have.
    """
    config: Any = OmegaConf.load(path)
    parts = {}
    for entry in config.pop("defaults", []):
        if isinstance(entry, Mapping):
            ((group, name),) = entry.items()
            if str(group).startswith("override "):  # of another group of a complete config
                continue
            where, _, key = str(group).lstrip("/").partition("@")
            parts[key] = _config(path.parents[1] / where / f"{name}.yaml")
    return OmegaConf.merge(parts, config)


def is_codec(method: object) -> TypeGuard[Codec]:
    return isinstance(method, Codec)


def is_exact(method: object) -> bool:
    """Whether kernels may run the method: a codec of exact values."""
    return is_codec(method) and method.traits.exact


def reducer_of(method: Codec | Reducer, size: int, feedback: Feedback = no_feedback) -> Reducer:
    """The reducer of ``method`` for a model of ``size`` parameters."""
    return build_reducer(method, size, feedback)


def segment(rows: Tensor, name: str = "a") -> Segment:
    """A segment of one layer."""
    shape = layer_shape(rows.shape[1])
    return Segment(name, rows, (shape,), weights_of((shape,)))


def weights_of(shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Weights of layers, of which a normal gradient changes about half after a cast to bfloat16."""
    drawn = torch.Generator().manual_seed(1)
    return [200 * torch.randn(shape, generator=drawn) for shape in shapes]


def layer_shape(size: int) -> tuple[int, ...]:
    """The shape of a layer of ``size`` elements: a matrix with 20 columns if possible, else a vector."""
    return (size // 20, 20) if size >= 40 and size % 20 == 0 else (size,)


def plan(rates: Sequence[float] = (1.0,), **changes: Any) -> Plan:
    """The plan of a training with these factors on the learning rate, plain SGD and error feedback."""
    plain = Plan("layer", "ErrorFeedback", "SGD", 0.0, rates, min(rates), needs_contraction=True)
    return plain._replace(**changes)


def gathered(codec: Codec) -> Compress:
    """The reducer that gathers the payloads of ``codec``."""
    return Compress(codec, AllGather())


def communicator_for(reducer: Reducer, workers: int) -> Communicator:
    """A communicator of one process with all workers, with the kinds of ``reducer``."""
    communicator = Communicator(workers)
    communicator.declare_kinds(reducer.kinds)
    return communicator


def reduce_once(
    reducer: Reducer,
    rows: Tensor,
    state: State = None,
    step: int = 0,
    learning_rate: float = 1.0,
    communicator: Communicator | None = None,
) -> tuple[Reduced, State, Communicator]:
    """One reduction of one segment in one process. ``rows`` [W, d] is copied first."""
    communicator = communicator or communicator_for(reducer, len(rows))
    segments = [segment(rows.clone())]
    if state is None:
        state = reducer.init(segments)
    reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step, learning_rate), communicator)
    return reduced, state, communicator
