"""State of gradient compression in a script: residuals, the step number, the ledger."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from compressors.api import Codec, Reduced, Reducer, Segment, State, Step, inputs_of
from compressors.build import plan_of
from compressors.core.checks import require
from trainers.checkpoint.form import first_form
from trainers.checkpoint.tree import described
from trainers.comm.communicator import Communicator
from trainers.comm.nodes import Nodes, nodes_of
from trainers.hooks import saved_state
from trainers.hooks.buckets import BucketQueue, reduced_parameters
from trainers.hooks.group import Lane, lane_beside, together
from trainers.hooks.preparation import Preparation, Scaler
from trainers.hooks.script_log import Target, Updates, look, require_target, write
from trainers.hooks.script_times import ScriptTimes
from trainers.hooks.within import Within, require_within, teams_of
from trainers.network_model.step_costs import StepCosts
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

_OF_DEVICE = (
    *("layout", "names", "lane", "workers", "nodes", "communicator"),
    *("ledger", "times", "costs", "queue"),
)
_LIVE = (*_OF_DEVICE, "parameters", "preparation", "process_group", "within")


class CompressionState:
    """State between buckets and steps, for one worker per process and one segment per parameter.

    A reducer in units of the step (``scale="step"``), ACCORDION and a threshold with ``follows="rate"`` need
    ``learning_rate``: set the attribute again before each backward pass in which the rate has changed. Set
    ``epoch``, fractional, if the reducer depends on epochs (density schedules, ACCORDION). ``inspect`` is
    called with every bucket's result, before the mean replaces the gradient.

    With ``scaler``, the script's ``torch.amp.GradScaler``, gradients are divided by its scale before they are
    compressed, and means multiplied by it. If a gradient of any worker is not finite, the step is not
    compressed, and the scalers of all workers skip it. ``clip_norm`` is the largest L2 norm of a worker's
    gradient, which is clipped before compression. With either of them compression begins when the backward
    pass has ended.

    With ``find_unused_parameters`` or ``static_graph``, DDP does not set the gradient of a parameter that no
    worker used in a step; the hook then sets it. ``finds_unused=False`` omits this, for a model whose
    parameters are all used in every step. ``knows_weights=False`` gives methods no weights, for a ``module``
    whose parameters have the names and shapes of the weights alone.

    The workers are the processes of ``process_group``, by default all; it must be that of the DDP model. It
    may be started later than the state is made, but before the first backward pass. With ``within``, the
    group of the processes of this process's node, or "node" for those that torchrun started on this machine,
    gradients are averaged inside a node, and a node takes the place of a worker: it has one residual, and one
    of its processes sends. Raises ``ValueError`` for a codec, a method that does not suit its feedback, a
    missing rate, an object that is not a scaler, a norm that is not > 0, and for ``within`` that is neither.
    """

    def __init__(
        self,
        reducer: Reducer | Codec,
        module: nn.Module,
        *,
        seed: int = 0,
        learning_rate: float | None = None,
        communicator: Communicator | None = None,
        process_group: dist.ProcessGroup | None = None,
        within: Within = None,
        inspect: Callable[[Reduced], None] | None = None,
        scaler: Scaler | None = None,
        clip_norm: float | None = None,
        finds_unused: bool = True,
        knows_weights: bool = True,
    ) -> None:
        if isinstance(reducer, Codec):
            name = type(reducer).__name__
            raise ValueError(
                f"CompressionState.reducer must be a reducer, got the method {name}: "
                f"wrap it by compressors.build.build_reducer({name}(...), D), D being the model's parameters"
            )
        if not isinstance(reducer, Reducer):
            raise ValueError(f"CompressionState.reducer must be a reducer, got {reducer!r}")
        if reducer.uses_learning_rate and learning_rate is None:
            raise ValueError(
                "CompressionState.learning_rate must be given with ACCORDION, a threshold that follows it, "
                "or feedback in units of the step (scale='step'), and set before each backward pass in which "
                "it has changed"
            )
        rates = (1.0,) * 10_000  # of so many epochs: the script alone knows its rates and its length
        reducer.check(
            plan_of(reducer, scope="layer", optimizer="SGD", momentum=0.0, rates=rates, lowest_rate=1.0)
        )
        require_within(within)
        given: Any = seed  # a saved state has it as int64
        fits = isinstance(given, Integral) and -(2**63) <= int(given) < 2**63
        require(fits, "CompressionState.seed", "an integer of 64 bits", seed)
        self.reducer = reducer
        self.seed = int(seed)
        self.step = 0
        self.skipped = 0  # steps skipped because a gradient was not finite
        self.learning_rate = 1.0 if learning_rate is None else learning_rate
        self.local_rate: float | None = None  # mean rate of the local steps before a synchronisation
        self.fragments = 1  # sets of layers that are synchronised in turn
        self.epoch = 0.0
        self.inspect = inspect
        self.clip_norm = clip_norm
        self.finds_unused = finds_unused
        self.knows_weights = knows_weights
        self.has_scaler, self.has_nodes = scaler is not None, within is not None
        self.preparation = Preparation(scaler, clip_norm)
        self.parameters = reduced_parameters(module)
        self.density: float | None = None  # that was asked for; if far more is sent, a line says so
        self.state: State = self._initial()
        self.process_group, self.within = process_group, within
        if communicator is not None:
            self.workers, self.lane = communicator, None
        self.updates = Updates()
        self._kept: saved_state.Tensors = {}  # the ledger's sums that were pickled
        self._everyones: Callable[[], Tensor] | None = None  # the ledger's columns after the last step

    def attach(
        self,
        module: nn.Module,
        *,
        scaler: Scaler | None = None,
        process_group: dist.ProcessGroup | None = None,
        within: Within = None,
    ) -> None:
        """Use ``module`` after unpickling: a pickle has neither the model, the scaler nor process groups.

        Raises ``ValueError`` for a module with other parameters, for a missing scaler or ``within``, and for
        one that the original state did not have.
        """
        found = reduced_parameters(module)
        known = {name: described(p) for name, p in found.items() if p.requires_grad}
        for name in self._described | known:
            was, now = (each.get(name, "none") for each in (self._described, known))
            if was != now:
                raise ValueError(f"attach(module): {name} must be {was}, as in the state, got {now}")
        given = {"scaler": (scaler, self.has_scaler), "within": (within, self.has_nodes)}
        for name, (value, was_given) in given.items():
            if (value is not None) != was_given:
                rule = "be given" if was_given else "not be given"
                raise ValueError(f"attach({name}) must {rule}, as to the state when it was made")
        require_within(within)
        self.preparation = Preparation(scaler, self.clip_norm)
        self.process_group, self.within = process_group, within
        self.parameters = found

    # Objects of this process are created when they are first needed, and are not pickled.

    queue: BucketQueue | None = None  # made by ``ddp.compression_hook``

    @cached_property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        raise RuntimeError("this CompressionState was unpickled: call attach(module) first")

    @cached_property
    def preparation(self) -> Preparation:
        raise RuntimeError("this CompressionState was unpickled: call attach(module) first")

    @cached_property
    def within(self) -> Within:
        raise RuntimeError("this CompressionState was unpickled: call attach(module) first")

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.parameters, "layer", several_dtypes=True)

    @cached_property
    def names(self) -> dict[Tensor, str]:
        return {parameter: name for name, parameter in self.layout.parameters.items()}

    @cached_property
    def lane(self) -> Lane | None:
        return lane_beside(self.process_group) if self.layout.device.type == "cpu" else None

    @cached_property
    def workers(self) -> Communicator:
        group = self.process_group if self.lane is None else self.lane.group
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        return Communicator(size, rank=rank, world_size=size, device=self.layout.device, group=group)

    @cached_property
    def nodes(self) -> Nodes | None:
        if self.within is None:
            return None
        teams = teams_of(self.within, self.workers)
        return nodes_of(self.workers, len(teams), teams)

    @cached_property
    def communicator(self) -> Communicator:
        """That of the workers, or of the nodes if there are any."""
        return self.workers if self.nodes is None else self.nodes.across

    @cached_property
    def ledger(self) -> Ledger:
        self.communicator.declare_kinds(self.reducer.kinds)
        ledger = Ledger(self.layout, self.communicator, self.reducer, self.nodes)
        for name, total in ledger.totals().items() if self._kept else ():
            total.copy_(self._kept[name])
        ledger.steps = int(self._kept.get("steps", 0))
        return ledger

    @cached_property
    def times(self) -> ScriptTimes:
        return ScriptTimes(self.communicator.clock, self.layout.device)

    @cached_property
    def costs(self) -> StepCosts:
        # DDP copies gradients into its buckets with and without a hook; without, it divides in the same pass.
        return StepCosts(self.reducer, self.layout, self.communicator, lambda layout: 0.0)

    def _initial(self) -> State:
        self._described = {name: described(p) for name, p in self.layout.parameters.items()}
        rows = [p.detach().reshape(1, -1) for p in self.layout.parameters.values()]
        state = self.reducer.init(list(map(self._segment_of, self.layout.names, rows)))
        first_form(self.reducer, state, 1)  # refuses what state_dict could not contain
        return state

    def __getstate__(self) -> dict[str, Any]:
        """The state without the model, the scaler and the objects of this process."""
        kept = {name: value for name, value in vars(self).items() if name not in _LIVE}
        if "ledger" in vars(self):
            kept["_kept"] = {**self.ledger.totals(), "steps": torch.tensor(self.ledger.steps)}
        return kept | {"_everyones": None, "updates": Updates()}

    def __repr__(self) -> str:
        so_far = f"step {self.step}" + (f", {self.skipped} skipped" if self.skipped else "")
        return f"{type(self).__name__}({self.reducer!r}, {len(self._described)} parameters, {so_far})"

    def state_dict(self, more: saved_state.More = saved_state.NOTHING) -> saved_state.Tensors:
        """A copy of everything that a training needs to go on, tensors by name.

        The names of this worker's tensors begin with worker/RANK; all others are equal on all workers. The
        files of all workers together, or a distributed checkpoint, hold the whole state. ``more`` is saved,
        and loaded, with it.
        """
        return saved_state.save(self, more)

    def empty_state_dict(
        self, num_workers: int, more: saved_state.More = saved_state.NOTHING
    ) -> saved_state.Tensors:
        """Tensors to fill with the saved state of ``num_workers`` workers, as far as this worker needs it."""
        return saved_state.empty(self, num_workers, more)

    def load_state_dict(
        self, saved: Mapping[str, Tensor], more: saved_state.More = saved_state.NOTHING
    ) -> None:
        """Continue from ``saved``, bit-identical with the same number of workers.

        With another number, a new worker gets the mean of the residuals of the old workers that overlap its
        part (``checkpoint/shares.py``), whose tensors ``saved`` must have: the mean of all is unchanged.
        Parameters that were frozen when it was saved begin without a residual; then, and if parameters were
        frozen since, the sums of ``metrics`` begin anew. Raises ``ValueError`` for a state that does not fit.
        """
        saved_state.load(self, saved, more)
        self._everyones = None

    def metrics(self) -> dict[str, float]:
        """Metrics of the last step and of all steps, means over workers, with their names in run folders.

        A process may call it alone: the workers exchange these numbers in every step. Before the first step,
        and between ``load_state_dict`` and the next one, only the numbers of steps are known.
        """
        found = {} if self._everyones is None else self.ledger.metrics_of(self._everyones())
        counts = {"step": self.step, "train/steps_skipped": self.skipped}
        return counts | found | self.times.metrics()

    def summary(self) -> dict[str, float]:
        """The sums so far, rounds and compression of a step, and the bandwidth below which it saves time.

        The bandwidth follows from the times of this script, on a GPU by CUDA events. The costs are absent for
        a single worker and for a lossless method, and on a GPU in the first steps. All processes call it
        together, between steps. After a backward pass that failed it has the sums of the last step, without
        costs, and does not communicate.
        """
        failed = self.queue is not None and self.queue.is_open
        with together("state.summary()"):
            found = self.metrics() | ({} if failed else self.ledger.metrics())
            costs = {} if failed else self.costs.summary()
        kept = ("_total", "_largest", "total_error", "density_mean", "_ratio", "per_parameter")
        sums = {name: value for name, value in found.items() if name.endswith((*kept, "step", "skipped"))}
        return sums | costs

    def log(self, target: Target, **more: float) -> dict[str, float]:
        """Write ``metrics()`` and ``more`` to a W&B run or a TensorBoard writer, if given; returns them."""
        require_target(target)
        found = self.metrics() | more
        write(target, found, self.step)
        return found

    def connect(self) -> Communicator:
        """The communicator of the workers; all processes make process groups together, else ``RuntimeError``.

        Raises ``ValueError`` for ``within`` that does not divide the processes into nodes of equal size.
        """
        _ = self.communicator
        return self.workers

    def reduce(self, gradients: dict[str, Tensor], *, last: bool) -> None:
        """Replace gradients, views of one bucket by parameter name, by their reduced means."""
        # In the order of indices, whatever that of the memory: residuals and matrices have the same meaning.
        segments = [self._segment_of(name, g.reshape(1, -1)) for name, g in gradients.items()]
        if segments and self.nodes is not None:
            segments = self.nodes.means(segments)
        self.times.begin()
        if self.times.num_buckets == 1:
            self.ledger.clear_step()  # this step may lack segments; created now, it declares kinds of bytes
        if gradients:
            self._reduce(gradients, segments)
        self.times.end()
        if last:
            self.close_step()

    def _reduce(self, gradients: dict[str, Tensor], segments: list[Segment]) -> None:
        for name in ("learning_rate", "epoch"):
            value = getattr(self, name)
            require(isinstance(value, (Real, Tensor)), f"CompressionState.{name}", "a number", value)
        step = Step(
            *(self.seed, self.step, self.learning_rate, self.epoch),
            local_rate=self.local_rate,
            fragments=self.fragments,
        )
        inputs, kind = inputs_of(segments), self.layout.device.type
        autocast = torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
        with autocast:  # matrix products of a method have the dtype of its gradients
            reduced, self.state = self.reducer.reduce(inputs, self.state, step, self.communicator)
        self.ledger.record(reduced)
        if self.inspect is not None:
            self.inspect(reduced)
        for name, gradient in gradients.items():
            mean = reduced.mean[name]
            if mean.data_ptr() != gradient.data_ptr():  # otherwise it is already there
                gradient.copy_(mean.view_as(gradient))

    def _segment_of(self, name: str, rows: Tensor) -> Segment:
        own = self.layout.segment_of(name, rows)
        return own if self.knows_weights else own._replace(weights=())

    def skip_step(self) -> None:
        """Count a step that is not compressed, because a gradient is not finite."""
        self.skipped += 1
        self.ledger.clear_step()
        self._everyones = self._collect_later()

    def undo_step(self, before: saved_state.Tensors) -> None:
        """Return to the state ``before`` a step that was reduced in part, and skip the step."""
        self.times.close_step()
        for take in (self.communicator.take_charges, self.communicator.take_link_bytes):
            take()
        self.communicator.take_largest_sent()
        self.load_state_dict(before)
        self.skip_step()

    def close_step(self) -> None:
        """Count a step after its gradients were reduced."""
        self.times.close_step()
        self.ledger.close_step()
        if self.nodes is None or self.workers.rank in self.nodes.firsts:
            look(self.ledger, self.density, checks_finite=not self.preparation.needs_whole_gradient)
        self._everyones = self._collect_later()
        self.costs.add(self.times, self.ledger)
        self.step += 1

    def _collect_later(self) -> Callable[[], Tensor]:
        """Begin to collect the ledger's columns of all workers, or of all nodes."""
        everyones = self.workers.collect_later(self.ledger.columns())
        firsts = None if self.nodes is None else list(self.nodes.firsts)
        return everyones if firsts is None else lambda: everyones()[firsts]

    def move_to(self, device: torch.device) -> None:
        """Move the state to the ``device`` to which the model was moved, if it is another one."""
        if device == self.layout.device:
            return
        has_begun = self.step > 0 or self.skipped > 0
        saved = self.state_dict() if has_begun else {}
        for name in _OF_DEVICE:
            vars(self).pop(name, None)
        self.state = self._initial()
        if has_begun:
            self.load_state_dict(saved)
