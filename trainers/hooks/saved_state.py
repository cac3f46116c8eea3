"""State of the hook as named tensors: to save, to load, and to load on another number of workers."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from numbers import Real
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from compressors.api import Reducer, State, Wrapper
from compressors.feedback import StoredResidual
from trainers.checkpoint.shares import merged, shares
from trainers.checkpoint.tree import described, walk
from trainers.comm.communicator import Communicator
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

Tensors = dict[str, Tensor]


class More(NamedTuple):
    """Live tensors that are saved with the state of compression, by name."""

    own: Tensors  # [1, ...], of this worker
    shared: Tensors  # equal on all workers


NOTHING = More({}, {})


class HookState(Protocol):
    """The parts of ``CompressionState`` that are saved, or that a saved state must fit."""

    step: int
    skipped: int
    learning_rate: float
    epoch: float
    seed: int
    reducer: Reducer
    state: State

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def communicator(self) -> Communicator: ...


@torch.no_grad()
def save(state: HookState, more: More = NOTHING) -> Tensors:
    """``CompressionState.state_dict``."""
    own = state.communicator.rank
    copied = partial(torch.clone, memory_format=torch.contiguous_format)  # safetensors takes no other
    return {
        **_facts(state),
        **{name: copied(tensor) for name, tensor in _shared(state, more)},
        **{f"worker/{own}/{name}": copied(rows[0]) for name, rows in _per_worker(state, more)},
    }


@torch.no_grad()
def empty(state: HookState, num_workers: int, more: More = NOTHING) -> Tensors:
    """``CompressionState.empty_state_dict``."""
    rank, size = state.communicator.rank, state.communicator.size
    needed = [worker for worker, _ in shares(rank, size, num_workers)]
    return {
        **_facts(state),
        **{name: torch.zeros_like(tensor) for name, tensor in _shared(state, more)},
        **{
            f"worker/{worker}/{name}": torch.zeros_like(rows[0])
            for worker in needed
            for name, rows in _per_worker(state, more)
        },
    }


@torch.no_grad()
def load(state: HookState, saved: Mapping[str, Tensor], more: More = NOTHING) -> None:
    """``CompressionState.load_state_dict``; the ``ValueError`` comes before any change.

    Parameters that were frozen when it was saved keep the state that they have here. If parameters were
    frozen or thawed since, the ledger's sums begin anew, because densities refer to another D.
    """
    facts = _facts(state)
    missing = sorted(facts.keys() - saved.keys())
    if missing:
        raise ValueError(f"the state of compression must have {missing[0]}")
    seed, num_workers = int(saved["seed"]), int(saved["num_workers"])
    if seed != state.seed:
        raise ValueError(f"CompressionState.seed must be {seed}, as in the saved state, got {state.seed}")
    if not torch.equal(facts["feedback"], saved["feedback"].to(facts["feedback"].device)):
        raise ValueError(
            f"the state of compression was saved with another feedback than {_feedback(state.reducer)}"
        )
    layers, here = (set(each["layers"].tolist()) for each in (saved, facts))
    if not layers <= set(map(number_of, state.parameters)):
        raise ValueError("the state of compression must have parameters of this model alone, got others")
    thawed = [f"/{name}/" for name in state.layout.names if number_of(name) not in layers]
    rank, size = state.communicator.rank, state.communicator.size
    parts = list(shares(rank, size, num_workers))
    found = {}
    for name, rows in _per_worker(state, more):
        if _is_of(name, thawed):
            continue
        if name.startswith("ledger/") and layers != here:
            found[name] = torch.zeros_like(rows[0])
            continue
        names = {worker: f"worker/{worker}/{name}" for worker, _ in parts}
        old = {worker: _like(rows[0], saved, names[worker]) for worker, _ in parts}
        found[name] = merged(name, parts, old) if num_workers != size else old[rank]
    for name, tensor in found.items():
        if name.startswith("state/") and not tensor.isfinite().all():  # counts may be infinite: undefined
            raise ValueError(f"the state of compression must be finite, got nan or inf in {name}")
    shared = [(n, t) for n, t in _shared(state, more) if not _is_of(n, thawed)]
    alike = {name: _like(tensor, saved, name) for name, tensor in shared}
    for name, rows in _per_worker(state, more):
        if name in found:
            rows[0] = found[name].to(rows.device)
    for name, tensor in shared:
        tensor.copy_(alike[name])
    state.step, state.ledger.steps = int(saved["step"]), int(saved["ledger_steps"]) * (layers == here)
    state.skipped = int(saved["skipped"])
    state.learning_rate, state.epoch = float(saved["learning_rate"]), float(saved["epoch"])


def _facts(state: HookState) -> Tensors:
    return {
        "step": torch.tensor(state.step),
        "skipped": torch.tensor(state.skipped),
        "ledger_steps": torch.tensor(state.ledger.steps),
        "seed": torch.tensor(state.seed),
        "num_workers": torch.tensor(state.communicator.size),
        "learning_rate": torch.tensor(state.learning_rate, dtype=torch.float64),
        "epoch": torch.tensor(state.epoch, dtype=torch.float64),
        "feedback": torch.tensor(number_of(_feedback(state.reducer))),
        "layers": torch.tensor(list(map(number_of, state.layout.names))),
    }


def _feedback(reducer: Reducer) -> str:
    """The wrappers with their settings, on which the unit and the meaning of a residual depend."""
    wrappers = [layer for layer in reducer.layers() if isinstance(layer, Wrapper) and not _is_on_cpu(layer)]
    return " around ".join(map(_without_inner, wrappers)) or "none"


def _is_on_cpu(wrapper: Wrapper) -> bool:
    """Whether it only moves residuals, whose meaning it does not change."""
    return isinstance(wrapper, StoredResidual) and wrapper.memory == "cpu"


def _without_inner(wrapper: Wrapper) -> str:
    names: list[str] = [field.name for field in fields(wrapper)] if is_dataclass(wrapper) else []
    settings = ", ".join(f"{name}={_plain(getattr(wrapper, name))}" for name in names if name != "inner")
    return f"{type(wrapper).__name__}({settings})"


def _plain(value: object) -> str:
    """A setting as text that is the same in every process and for equal numbers."""
    if isinstance(value, (bool, str, type(None))):
        return repr(value)
    if isinstance(value, Real):
        return repr(float(value))
    return getattr(value, "__qualname__", type(value).__qualname__)


def number_of(text: str) -> int:
    """A number in place of a text, because a saved state has tensors of fixed sizes alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _is_of(name: str, parts: list[str]) -> bool:
    """Whether a tensor's name has one of these parts, each between two slashes."""
    return any(part in f"{name}/" for part in parts)


def _shared(state: HookState, more: More) -> Iterator[tuple[str, Tensor]]:
    """The live tensors that are equal on all workers."""
    yield from walk(state.state, "shared", shared=True)
    yield from more.shared.items()


def _per_worker(state: HookState, more: More) -> Iterator[tuple[str, Tensor]]:
    """The live tensors [1, ...] of this worker."""
    yield from walk(state.state, "state")
    for name, rows in state.ledger.totals().items():
        yield f"ledger/{name}", rows
    yield from more.own.items()


def _like(live: Tensor, saved: Mapping[str, Tensor], name: str) -> Tensor:
    found = saved.get(name)
    here = described(live)
    if found is None or described(found) != here:
        got = "none" if found is None else described(found)
        raise ValueError(f"the state of compression must have {name} of {here}, got {got}")
    return found
