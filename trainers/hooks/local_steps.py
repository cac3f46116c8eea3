"""Local steps in your own script: every process trains by itself between two synchronisations.

    local = total_error.local(model, optimizer, steps=50, compressor="top_k", density=0.01)
    loss.backward()
    local.step()  # in the place of optimizer.step()

Pseudo-gradients take the place of gradients in ``CompressionState``; see ``trainers/local.py``.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from compressors.api import Codec, Reduced, Reducer
from compressors.feedback import EF21SGDM, MomentumCorrection
from trainers.comm.communicator import Communicator
from trainers.hooks import saved_state
from trainers.hooks.compress import Feedback, begin_together, chosen_reducer
from trainers.hooks.group import together
from trainers.hooks.script_log import Target, require_target, write
from trainers.hooks.state import CompressionState
from trainers.local import LocalSteps, Outer, fragments_of
from trainers.step.gradients import first_bad, raise_together

_WRAPPERS = (DistributedDataParallel, FullyShardedDataParallel, FSDPModule)
_WITH_MOMENTUM = {MomentumCorrection: "momentum_correction", EF21SGDM: "ef21_sgdm"}
_taken: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # modules with parameters that have local steps


def local(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int = 50,
    fragments: int = 1,
    delay: int = 0,
    blend: float = 0.0,
    compressor: str | Codec | Reducer = "none",
    outer: Outer | Mapping[str, Any] | None = None,
    feedback: Feedback = None,
    seed: int = 0,
    process_group: dist.ProcessGroup | None = None,
    inspect: Callable[[Reduced], None] | None = None,
    memory: str = "device",
    **settings: Any,
) -> "LocalState":
    """Local steps of ``model``, a plain module in each process, by ``optimizer``; returns their state.

    All processes of ``process_group``, by default all, call it together, and start from the weights and
    buffers of the first one. They synchronise after every ``steps`` = H steps; ``fragments``, ``delay`` and
    ``blend`` are those of ``LocalSteps``. ``outer`` is the outer optimizer, or its settings; by default that
    of DiLoCo. The other arguments are those of ``compress``. Feedback in units of the step uses the outer
    rate. Raises ``ValueError``, one line, for unsuitable arguments, a model that is wrapped or has local
    steps already, an optimizer of parameters that are not the model's, and other models or settings in other
    processes.
    """
    for module in model.modules():
        if isinstance(module, _WRAPPERS):
            kind = "fully_shard" if isinstance(module, FSDPModule) else type(module).__name__
            raise ValueError(f"local needs a plain module in each process, got one with {kind}")
        if module in _taken:
            raise ValueError("local needs a model that it was not called for before")
    if not isinstance(outer, Outer):
        try:
            outer = Outer(**(outer or {}))
        except TypeError:
            rule = f"an Outer or its settings {', '.join(Outer.__dataclass_fields__)}"
            raise ValueError(f"local.outer must be {rule}, got {outer!r}") from None
    known = set(map(id, model.parameters()))
    if not all(id(p) in known for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("local needs an optimizer of the model's parameters alone")
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    reducer, density = chosen_reducer(compressor, settings, feedback, size, memory)
    own = [
        name for kind, name in _WITH_MOMENTUM.items() if any(isinstance(it, kind) for it in reducer.layers())
    ]
    if outer.momentum and own:
        rule = f"local.outer.momentum must be 0 under feedback={own[0]}, which has its own"
        raise ValueError(f"{rule}, got {outer.momentum}")
    device = next(model.parameters()).device
    rank, n = dist.get_rank(process_group), dist.get_world_size(process_group)
    communicator = Communicator(n, rank=rank, world_size=n, device=device, group=process_group)
    compression = CompressionState(
        reducer, model, seed=seed, learning_rate=outer.lr, communicator=communicator, inspect=inspect
    )
    compression.density = density
    chosen = LocalSteps(steps=steps, fragments=fragments, delay=delay, blend=blend, outer=outer)
    state = LocalState(model, optimizer, chosen, compression)
    begin_together(compression, reducer)
    _taken.update(each for each in model.modules() if list(each.parameters(recurse=False)))
    return state


class LocalState:
    """Shared weights, outer optimizer and ``compression`` of a script's local steps; ``local`` makes it."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: LocalSteps,
        compression: CompressionState,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.settings = settings
        self.compression = compression
        self.parameters = compression.layout.parameters  # that are trained
        names = compression.layout.names
        fragments = fragments_of(compression.layout.sizes, settings.fragments)
        self.fragments = [[names[layer] for layer in fragment] for fragment in fragments]
        compression.fragments = settings.fragments
        self._pace = torch.tensor([settings.steps, settings.fragments, settings.delay])
        self._steps = torch.tensor(0)
        # Sum of the rates of the local steps since the last exchange
        self._rates = torch.tensor(0.0, dtype=torch.float64)
        with together("total_error.local"):
            self._start_alike()
        self.shared = {name: nn.Parameter(p.detach().clone()) for name, p in self.parameters.items()}
        self.outer = settings.outer.make(self.shared.values())
        if settings.outer.momentum:  # zeros, as before a first step; a saved state always has them
            for value in self.shared.values():
                self.outer.state[value]["momentum_buffer"] = torch.zeros_like(value.data)

    def _start_alike(self) -> None:
        """Take over weights and buffers of the first process."""
        tensors = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        described = [(name, str(t.dtype), list(t.shape), t.requires_grad) for name, t in tensors.items()]
        own = saved_state.number_of(repr((described, self.settings)))
        everyones = self.compression.communicator.collect(torch.tensor([own]))
        if len(everyones.unique()) > 1:
            raise ValueError("local needs the same model, steps and outer optimizer in all processes")
        self.compression.communicator.broadcast([t.detach() for t in tensors.values()])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.compression!r}, {self.local_step} local steps)"

    @property
    def local_step(self) -> int:
        """Local steps so far."""
        return int(self._steps)

    @property
    def epoch(self) -> float:
        """The epoch of the training, a fraction, for a method that follows epochs; the script sets it."""
        return self.compression.epoch

    @epoch.setter
    def epoch(self, epoch: float) -> None:
        self.compression.epoch = epoch

    def step(self, scaler: torch.amp.GradScaler | None = None) -> bool:
        """Call ``optimizer.step()``, or ``scaler.step(optimizer)``; returns whether processes synchronised.

        Raises ``NonFiniteGradientError``, in all processes, for weights that are not finite then, and
        ``ValueError`` for a parameter that was frozen or thawed since this state was made, and in the first
        local step for weights that were changed since.
        """
        if self.local_step == 0:
            with together("the first local step"):
                self._require_own_start()
        self._rates += float(self.optimizer.param_groups[0]["lr"])  # a rate may be a tensor on a GPU
        self.optimizer.step() if scaler is None else scaler.step(self.optimizer)
        self._steps += 1
        rounds, since = divmod(self.local_step, self.settings.steps_at_once)
        fragment = self.fragments[(rounds - 1) % len(self.fragments)]
        if since == 0:
            with together(f"the synchronisation after local step {self.local_step}"):
                self._synchronise(fragment)
        if rounds > 0 and since == self.settings.delay:
            self._take_over(fragment, self.settings.blend)
        return since == 0

    def _require_own_start(self) -> None:
        """Raise ``ValueError`` for other weights than the shared ones, which would replace them."""
        for name, parameter in self.parameters.items():
            if not torch.equal(parameter, self.shared[name]):
                raise ValueError(f"{name} was changed after local was called: load weights before it")

    @torch.no_grad()
    def _synchronise(self, fragment: Sequence[str]) -> None:
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad != (name in self.parameters):
                was, now = ("frozen", "trained") if parameter.requires_grad else ("trained", "frozen")
                raise ValueError(f"{name} was {was} when local was called, so it cannot be {now}")
        communicator, layout = self.compression.communicator, self.compression.layout
        fault = first_bad(list(self.parameters.values()), communicator.rank, layout)
        raise_together(communicator, layout, self.local_step - 1, fault, "a weight")
        moved = {name: self.shared[name] - self.parameters[name] for name in fragment}
        stays = self.settings.delay > 0 or self.settings.blend > 0
        own = {name: self.parameters[name].clone() for name in fragment if stays}
        self._take_over(fragment)  # a method may read the weights, which are equal on all workers
        self.compression.local_rate = float(self._rates) / self.settings.steps_at_once
        self._rates.zero_()
        if len(self.fragments) > 1:
            self.compression.ledger.begin_part(fragment)
        self._reduce(moved)
        for name, mean in moved.items():
            self.shared[name].grad = mean
        self.outer.step()
        self.outer.zero_grad()
        for name, value in own.items():
            self.parameters[name].copy_(value)
        communicator.broadcast(list(self.model.buffers()))

    def _reduce(self, moved: dict[str, Tensor]) -> None:
        """Replace pseudo-gradients by their means: those of each dtype together, as in buckets of DDP."""
        by_dtype: dict[torch.dtype, dict[str, Tensor]] = {}
        for name, own in moved.items():
            by_dtype.setdefault(own.dtype, {})[name] = own
        *others, last = by_dtype.values()
        for one in others:
            self.compression.reduce(one, last=False)
        self.compression.reduce(last, last=True)

    @torch.no_grad()
    def _take_over(self, fragment: Sequence[str], blend: float = 0.0) -> None:
        """Replace this worker's weights in the layers of ``fragment``, but for the share ``blend``."""
        for name in fragment:
            parameter, value = self.parameters[name], self.shared[name]
            parameter.mul_(blend).add_(value, alpha=1 - blend) if blend else parameter.copy_(value)

    def _more(self) -> saved_state.More:
        """Live tensors to save, beside those of the compression."""
        own = {f"weights/{name}": p.detach().unsqueeze(0) for name, p in self.parameters.items()}
        own |= {f"buffers/{name}": b.unsqueeze(0) for name, b in self.model.named_buffers()}
        shared = {f"weights/{name}": value.detach() for name, value in self.shared.items()}
        for name, value in self.shared.items():
            shared |= {f"outer/{name}": moment for moment in self.outer.state[value].values()}
        shared |= {"local_step": self._steps, "local_rates": self._rates, "local_pace": self._pace}
        return saved_state.More(own, shared)

    def state_dict(self) -> saved_state.Tensors:
        """A copy of everything that a training needs to go on, but for the moments of ``optimizer``.

        It has the shared weights, and the weights and buffers of this process, but no frozen parameters. The
        names of this worker's tensors begin with worker/RANK; all others are equal on all workers. Each
        process saves its own ``optimizer.state_dict()``.
        """
        return self.compression.state_dict(self._more())

    def empty_state_dict(self, num_workers: int) -> saved_state.Tensors:
        """Tensors to fill with the saved state of ``num_workers`` workers, as far as this worker needs it."""
        return self.compression.empty_state_dict(num_workers, self._more())

    def load_state_dict(self, saved: Mapping[str, Tensor]) -> None:
        """As ``CompressionState.load_state_dict``; weights of other workers become means as residuals do.

        Raises ``ValueError`` also for a state of other steps, fragments or another delay.
        """
        pace = saved.get("local_pace", self._pace).tolist()
        names = ("steps", "fragments", "delay")
        for name, was, now in zip(names, pace, self._pace.tolist(), strict=False):
            if was != now:
                raise ValueError(f"local.{name} must be {was}, as in the saved state, got {now}")
        self.compression.load_state_dict(saved, self._more())
        self.compression.learning_rate = self.settings.outer.lr  # that of the outer optimizer here

    def metrics(self) -> dict[str, float]:
        """Those of ``compression``, whose steps are synchronisations, and local steps."""
        return self.compression.metrics() | {"local/steps": self.local_step}

    def summary(self) -> dict[str, float]:
        """Those of ``compression``, and local steps; all processes call it together."""
        return self.compression.summary() | {"local/steps": self.local_step}

    def log(self, target: Target, **more: float) -> dict[str, float]:
        """Write ``metrics()`` and ``more`` of this local step, as ``CompressionState.log``; returns them."""
        require_target(target)
        found = self.metrics() | more
        write(target, found, self.local_step)
        return found
