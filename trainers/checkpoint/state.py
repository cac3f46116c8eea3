"""The complete state of a training between steps, to save and restore."""

import copy
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainers.average import RunningAverage
from trainers.checkpoint.facts import Facts, SearchFacts
from trainers.checkpoint.form import first_form, require_form
from trainers.checkpoint.tree import Skeleton, described, put_together, take_apart, walk
from trainers.comm.communicator import Communicator
from trainers.diagnostics.probe import Probe
from trainers.files.files import printable
from trainers.files.plain import Record
from trainers.step.explicit import ExplicitStep
from trainers.step.ledger import Ledger
from trainers.step.local import PseudoGradients
from trainers.step.overlapped import OverlappedStep

Tensors = dict[str, Tensor]
FRESH: Skeleton = {"list": []}  # the state of a loss before its first batch
_MEASURED = "diagnostics"


class CheckpointMismatch(ValueError):
    """A checkpoint that does not fit this run, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class WorkerState(NamedTuple):
    """State of one worker: residuals, state of its loss between batches, row of the ledger."""

    tensors: Tensors
    carries: Skeleton  # the state of its loss between batches


class Snapshot(NamedTuple):
    """A copy of a training's state between two steps."""

    shared: Tensors  # equal for all processes: weights, buffers, optimizer, average, shared reducer state
    workers: dict[int, WorkerState]  # those of this process
    facts: Facts
    place: str = "the state"  # the path from which it was read
    redistributed: bool = False  # the number of workers has just changed

    def at_step(self, step: int) -> "Snapshot":
        """The same state, to continue at another ``step``: that of its epoch in a run with other steps."""
        moved = self.facts["moved"] + step - self.facts["step"]
        facts: Facts = self.facts | {"step": step, "moved": moved}
        if moved != self.facts["moved"] and facts["search"]:
            # The length of its stage was in the other steps: a new stage begins
            facts["search"] = facts["search"] | {"until": step, "rates": [], "forecasts": [], "losses": []}
        return self._replace(facts=facts)


@dataclass(kw_only=True)
class TrainingState:
    """The live objects of a training. Data that follow from (seed, step, worker) are not part of it.

    Batches, dropout and random coordinates follow from these, so a sampler has no position to save. Raises
    ``MethodError`` for a method whose state a checkpoint could not contain.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    gradient_step: ExplicitStep | OverlappedStep
    ledger: Ledger
    average: RunningAverage | None
    communicator: Communicator
    local: PseudoGradients | None = None  # local steps, if there are any: the source of ``gradient_step``
    probe: Probe | None = None  # the diagnostics, if any
    data: dict[str, int] = field(default_factory=dict)  # whole numbers that describe the data
    step: int = 0  # steps done
    epoch: float = 0.0  # after these steps
    moved: int = 0  # change of ``step`` by resuming with other steps per epoch; not in the ledger's steps
    skipped: int = 0  # steps without update, because a gradient was not finite
    skipped_in_a_row: int = 0  # skipped steps since the last normal step
    last: Record = field(default_factory=dict)  # the newest value of every metric
    best: Record = field(default_factory=dict)
    search: SearchFacts = field(default_factory=SearchFacts)  # set by ``AutoLRSController``

    def __post_init__(self) -> None:
        senders = self.ledger.communicator.local_workers
        self._first_form = first_form(self.gradient_step.reducer, self.gradient_step.state, len(senders))
        per_sender = self.communicator.size // self.ledger.communicator.size  # workers
        # Row of each local worker in the tensors of ``_per_worker``; the workers of a node have the same
        self._rows = [worker // per_sender - senders.start for worker in self.communicator.local_workers]

    def note(self, found: Record) -> Record:
        """Put the finite values into ``last``, return them; remove the others, as JSON has no infinity."""
        known = {name: value for name, value in found.items() if math.isfinite(value)}
        for name in found.keys() - known.keys():
            self.last.pop(name, None)
        self.last.update(known)
        return known

    @torch.no_grad()
    def capture(self, device: torch.device | str = "cpu") -> Snapshot:
        """A copy of the whole state on ``device``; all processes call it together.

        Raises ``MethodError`` if names, dtypes or shapes of the method's state have changed since the start.
        """
        require_form(self.gradient_step.reducer, self.gradient_step.state, self._first_form)
        if self.probe is not None:
            self.probe.settle(self.ledger.communicator)
        shared = dict(self._shared())
        moments = take_apart(self.optimizer.state_dict()["state"], "optimizer", shared)
        workers = {}
        for row, worker in enumerate(self.communicator.local_workers):
            tensors = {name: rows[self._rows[row]] for name, rows in self._per_worker()}
            carries = take_apart(self.gradient_step.carries[row], "memory", tensors)
            workers[worker] = WorkerState(_copies(tensors, device), carries)
        facts: Facts = {
            "step": self.step,
            "epoch": self.epoch,
            "steps_in_ledger": self.ledger.steps,
            "moved": self.moved,
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
            "last": dict(self.last),
            "best": dict(self.best),
            "search": copy.deepcopy(self.search),
            "optimizer": moments,
            "optimizer_name": type(self.optimizer).__name__.lstrip("_"),
            "average_period": self.average.period if self.average is not None else None,
            "num_nodes": self.ledger.communicator.size if self.ledger.nodes is not None else None,
            "data": dict(self.data),
        }
        return Snapshot(_copies(shared, device), workers, facts)

    def require_fit(self, snapshot: Snapshot) -> None:
        """Raise ``CheckpointMismatch`` unless tensors match; those of optimizer and loss are not compared."""
        if (self.average is None) != (snapshot.facts["average_period"] is None):
            rule = "trainer.average_reset_epochs must be null in both or in neither"
            raise CheckpointMismatch(f"{snapshot.place} does not fit this run: {rule}")
        per_worker = dict(self._per_worker())
        shared = dict(self._shared())
        kept = {name for name in snapshot.shared if not name.startswith(("optimizer/", _MEASURED))}
        saved = {name: snapshot.shared[name] for name in (kept | shared.keys()) & snapshot.shared.keys()}
        require_same_tensors(shared, saved, snapshot.place)
        for row, worker in enumerate(self.communicator.local_workers):
            tensors = snapshot.workers[worker].tensors
            # State of diagnostics that are no longer active is dropped.
            kept = {
                name for name in tensors if not name.startswith(("memory", _MEASURED))
            } | per_worker.keys()
            own = {name: tensors[name] for name in kept & tensors.keys()}
            live = {name: rows[self._rows[row]] for name, rows in per_worker.items()}
            require_same_tensors(live, own, snapshot.place)

    @torch.inference_mode()
    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot that ``require_fit`` has accepted."""
        live, per_worker = dict(self._shared()), dict(self._per_worker())
        for name, tensor in live.items():
            tensor.copy_(snapshot.shared[name])
        for row, worker in enumerate(self.communicator.local_workers):
            tensors, carries = snapshot.workers[worker]
            for name, rows in per_worker.items():
                rows[self._rows[row]] = tensors[name].to(rows.device)
        if self.probe is not None:
            self.probe.take_over(self.ledger.communicator)
        with torch.inference_mode(False):  # the next backward pass may use the tensors created here
            device = self.communicator.device
            for row, worker in enumerate(self.communicator.local_workers):
                tensors, carries = snapshot.workers[worker]
                self.gradient_step.carries[row] = put_together(carries, _copies(tensors, device))
            optimizer = {name: t for name, t in snapshot.shared.items() if name.startswith("optimizer/")}
            moments = put_together(snapshot.facts["optimizer"], _copies(optimizer, "cpu"))
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        period = snapshot.facts["average_period"]
        if self.average is not None and period is not None:
            self.average.period = period
        self.step, self.epoch = snapshot.facts["step"], snapshot.facts["epoch"]
        self.ledger.steps = snapshot.facts["steps_in_ledger"]
        self.moved = snapshot.facts["moved"]
        self.skipped = snapshot.facts["skipped"]
        self.skipped_in_a_row = snapshot.facts["skipped_in_a_row"]
        self.last, self.best = dict(snapshot.facts["last"]), dict(snapshot.facts["best"])
        self.search = copy.deepcopy(snapshot.facts["search"])

    def _shared(self) -> list[tuple[str, Tensor]]:
        """Names and live tensors of the state shared by all processes, without the optimizer's."""
        parts = [("model", self.model)]
        if self.average is not None:
            parts.append(("average", self.average.averaged))
        of_modules = [
            (f"{name}/{key}", tensor.detach())
            for name, module in parts
            for key, tensor in [*module.named_parameters(), *module.named_buffers()]
        ]
        measured = walk(self.probe.sums, _MEASURED, shared=True) if self.probe is not None else ()
        return [*of_modules, *walk(self.gradient_step.state, "reducer", shared=True), *measured]

    def _per_worker(self) -> list[tuple[str, Tensor]]:
        """Names and live tensors [W, ...] of the state of the local workers, or of their nodes."""
        totals = [(f"ledger/{name}", rows) for name, rows in self.ledger.totals().items()]
        measured = walk(self.probe.state, _MEASURED) if self.probe is not None else ()
        return [*walk(self.gradient_step.state, "reducer"), *totals, *measured]


def _copies(tensors: Tensors, device: torch.device | str) -> Tensors:
    return {
        name: tensor.detach().to(device, copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


_REMEDIES = {  # by the first part of a tensor's name
    "model": "; model must be that of the checkpoint",
    "optimizer": "; optimizer with its no_decay, and local, must be those of the checkpoint",
    "memory": "; local, or trainer.batch_size with hidden states, must be that of the checkpoint",
    "reducer": "; compressor, feedback and scope must be those of the checkpoint",
}


def require_same_tensors(live: Tensors, saved: Tensors, place: str) -> None:
    """Raise ``CheckpointMismatch`` unless names, types and shapes match; ``place`` is ``saved``'s path."""
    for name in sorted(live.keys() | saved.keys()):
        here, there = (described(t[name]) if name in t else "absent" for t in (live, saved))
        if here != there:
            raise CheckpointMismatch(
                f"{place} does not fit this run: {name} is {there} in the checkpoint and {here} in this run"
                + _REMEDIES.get(name.partition("/")[0], "")
            )
