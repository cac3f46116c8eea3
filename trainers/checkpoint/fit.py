"""Checks that a checkpoint fits this training: facts, records and tensors."""

import copy
import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import Tensor

from data.protocols import Batch, Carry, task_of
from trainers.checkpoint.facts import SEARCH_COSTS, Facts, SearchFacts
from trainers.checkpoint.state import (
    CheckpointMismatch,
    Snapshot,
    Tensors,
    TrainingState,
    require_same_tensors,
)
from trainers.checkpoint.tree import Skeleton, Tree, put_together, take_apart, tensors_of
from trainers.forward import cut, in_precision
from trainers.reading import read_together
from trainers.records.goals import LINK_BYTES
from trainers.records.plain import Record
from trainers.schedules.autolrs import AutoLRS

if TYPE_CHECKING:
    from trainers.loop import Trainer

Rows = Sequence[Record]


class Require(Protocol):
    """Raises ``CheckpointMismatch`` with the fault unless a condition holds."""

    def __call__(self, condition: bool, fault: str) -> None: ...


def require_records(facts: Facts, rows: Rows, place: str) -> None:
    """Raise ``CheckpointMismatch`` unless last and best values agree with metrics.jsonl."""
    newest: dict[str, float] = {}
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["step"] == 0 or _is_of_search(row):
            continue  # records from before the first step, and of a search
        newest.update(row)
        for name in row.keys() & facts["best"].keys():
            values[name].append(row[name])
    last = facts["last"]
    for name in newest.keys() | last.keys():
        if last.get(name) != newest.get(name) and math.isfinite(last.get(name, 0.0)):
            raise CheckpointMismatch(
                f"{place}: its last {name} is {last.get(name)!r}, metrics.jsonl has {newest.get(name)!r}"
            )
    for name, best in facts["best"].items():
        if math.isfinite(best) and best not in (
            min(values[name], default=None),
            max(values[name], default=None),
        ):
            raise CheckpointMismatch(f"{place}: its best {name} is {best!r}, which is not in metrics.jsonl")
    if newest.get("step", 0) > facts["step"] - min(0, facts["moved"]):
        raise CheckpointMismatch(f"{place}: its records end at step {newest['step']}, after its own")
    if facts["skipped"] != newest.get("train/steps_skipped", 0):
        raise CheckpointMismatch(
            f"{place}: it skipped {facts['skipped']} steps, metrics.jsonl has another number"
        )


def require_own(trainer: "Trainer", facts: Facts, rows: Rows, place: str) -> None:
    """Raise ``CheckpointMismatch`` for facts that are impossible for a run with these settings."""
    step, epochs_per_step, settings = facts["step"], trainer.epochs_per_step, trainer.settings

    def require(condition: bool, fault: str) -> None:
        if not condition:
            raise CheckpointMismatch(f"{place} does not belong to this run: {fault}")

    require(facts["epoch"] == step * epochs_per_step, f"its epoch at step {step} is {facts['epoch']!r}")
    require(facts["moved"] == 0, "its steps are those of another run")
    require(settings.nonfinite == "skip" or facts["skipped"] == 0, "it skipped steps")
    require(bool(facts["search"]) == isinstance(trainer.schedule, AutoLRS), "it has another schedule")
    for row in rows:
        require(row["epoch"] == row["step"] * epochs_per_step, f"the recorded epoch of step {row['step']}")
    steps = [row["step"] for row in rows]
    require(steps == sorted(steps), "its records are not in the order of steps")
    trained = [row["step"] for row in rows if "train/learning_rate" in row]
    logged = range(settings.log_every, step + 1, settings.log_every)
    require(
        len(set(trained)) == len(trained) and set(logged) <= set(trained),
        "a logged step is missing or recorded twice",
    )
    evaluations = [row for row in rows if row["step"] > 0 and not _is_of_training_or_search(row)]
    measured = [row["step"] for row in evaluations]
    is_end = step + facts["search"].get("steps", 0) == trainer.num_steps
    due = _evaluations(trainer, step, is_end=is_end)
    require(measured == due, f"its evaluations are those of steps {measured}")
    names = {name for row in evaluations for name in row} - {"step", "epoch", LINK_BYTES}
    require(facts["best"].keys() == names, f"its best values are of {sorted(facts['best'])}")
    for name, best in facts["best"].items():
        values = [row[name] for row in rows if name in row]
        better = max if name.split("/")[-1] in task_of(trainer.dataset).higher_is_better else min
        require(
            not values or not math.isfinite(best) or best == better(values), f"its best {name} is {best!r}"
        )
    if settings.average_reset_epochs is not None:
        updated = step - 1 - facts["skipped_in_a_row"]  # the last step that was not skipped
        period = int((max(0, updated) * epochs_per_step + 1e-9) // settings.average_reset_epochs)
        require(facts["average_period"] == period, f"its average_period is {facts['average_period']}")
    if isinstance(trainer.schedule, AutoLRS):  # then the facts have a search, as checked above
        _require_search(trainer, trainer.schedule, facts, rows, require)


def _is_of_training_or_search(row: Record) -> bool:
    return "train/learning_rate" in row or _is_of_search(row)


def _is_of_search(row: Record) -> bool:
    return all(name in ("step", "epoch") or name.startswith("autolrs/") for name in row)


def _evaluations(trainer: "Trainer", step: int, *, is_end: bool) -> list[int]:
    """The steps up to ``step`` after which an evaluation is due; the end of a run has one too."""
    if not trainer.dataset.held_out:
        return []
    every, epochs_per_step = trainer.settings.evaluate_every, trainer.epochs_per_step
    periods = [(done * epochs_per_step + 1e-9) // every for done in range(step + 1)]
    due = [done for done in range(1, step + 1) if periods[done] > periods[done - 1]]
    return [*due, step] if is_end and step not in due else due


def _require_search(
    trainer: "Trainer", schedule: AutoLRS, facts: Facts, rows: Rows, require: Require
) -> None:
    """Check the facts of a search for learning rates against its records."""
    search = facts["search"]
    rates = [*search["rates"], *([] if search["rate"] is None else [search["rate"]])]
    is_inside = all(schedule.low * (1 - 1e-9) <= rate <= schedule.high * (1 + 1e-9) for rate in rates)
    require(is_inside, "a rate is outside the schedule's interval")
    same = len(search["rates"]) == len(search["forecasts"]) < schedule.trials + 1
    require(same, "its numbers of forecasts and rates differ")
    require(search["costs"].keys() == set(SEARCH_COSTS.values()), "its search has other costs")
    last: Record = {}
    before: float = 0
    stages, trials, ends = 0, 0, 0
    for row in rows:
        trials += any(name.startswith("autolrs/trial_") for name in row)
        ends += "autolrs/loss_at_end" in row
        if "autolrs/stage" in row:
            is_whole = trials == schedule.trials or (trials == 0 and stages == search["stage"])
            is_whole &= ends == min(1, stages) or trainer.settings.nonfinite == "skip"
            require(row["autolrs/stage"] == stages and is_whole, f"its records of stage {stages}")
            before = last.get("autolrs/search_steps", 0)
            last, stages, trials, ends = row, stages + 1, 0, 0
    require(search["stage"] == stages - 1, f"its stage is {search['stage']}")
    require(trials == len(search["rates"]), f"{trials} trials are recorded")
    if last:
        until = last["step"] + last["autolrs/stage_steps"]
        require(search["until"] == until, f"its stage ends at step {until}")
        require(search["rate"] == last["autolrs/rate"], f"its rate is {search['rate']!r}")
        if not search["rates"]:  # trials of the next stage would have changed these
            for name, value in {"autolrs/search_steps": search["steps"], **search["costs"]}.items():
                require(value == last.get(name), f"its {name} is {value!r}")
        found = search["forecast"]
        require(found == last.get("autolrs/forecast"), f"its forecast is {found!r}")
    tried = {name: row[name] for row in rows[rows.index(last) if last else 0 :] for name in row}
    for number, (rate, found) in enumerate(zip(search["rates"], search["forecasts"], strict=True)):
        name = f"autolrs/trial_{number}"
        require(tried.get(f"{name}/rate") == rate, f"its rate of trial {number} is {rate!r}")
        require(tried.get(f"{name}/forecast") == found, f"its forecast of trial {number} is {found!r}")
    require(facts["step"] <= search["until"], "its stage is over")
    if trainer.settings.nonfinite == "stop":  # a skipped step has no loss
        _require_losses(facts, rows, int(last.get("step", 0)), require)
    if search["rates"]:
        left = trainer.num_steps - facts["step"] - last.get("autolrs/search_steps", 0)
        _require_plan(schedule, search, stages, left, require)
    elif search["losses"]:  # without losses the plan is no longer used
        left = trainer.num_steps - last.get("step", 0) - before
        _require_plan(schedule, search, stages - 1, left, require)


def _require_losses(facts: Facts, rows: Rows, begin: int, require: Require) -> None:
    """Check the losses of the stage that began after step ``begin`` against the recorded ones."""
    losses = facts["search"]["losses"]
    require(len(losses) in (0, facts["step"] - begin), f"it has {len(losses)} losses")
    recorded = {row["step"]: row["train/loss"] for row in rows if "train/loss" in row}
    for step, loss in enumerate(losses, begin + 1):
        require(recorded.get(step, loss) == loss, f"its loss of step {step} is {loss!r}")
    is_closed = bool(rows) and "autolrs/loss_at_end" in rows[-1]
    begins = facts["step"] == begin or bool(facts["search"]["rates"])
    require(bool(losses) or begins or is_closed, "no losses")


def _require_plan(
    schedule: AutoLRS, search: SearchFacts, stage: int, steps_left: float, require: Require
) -> None:
    """Check the lengths of a stage and of its trials, which follow from the remaining steps."""
    plan = schedule.plan(stage, cast(int, steps_left))  # a forged record may have a fraction
    require((search["stage_steps"], search["trial_steps"]) == plan, f"stage {stage} has other lengths")
    by_validation = plan[1] >= schedule.validation_from
    require(search["by_validation"] == by_validation, f"stage {stage} uses the other loss")


def require_fit(trainer: "Trainer", state: TrainingState, snapshot: Snapshot) -> None:
    """Raise ``CheckpointMismatch``, in all processes, unless ``snapshot`` fits ``state``."""
    read = partial(trainer.loader.batches, snapshot.facts["step"])
    batches = read_together(trainer.communicator, trainer.loader, read)
    problem = ""
    try:
        state.require_fit(snapshot)
        _require_moments(state, snapshot)
        _require_carries(trainer, snapshot, batches[0] if batches else None)
    except CheckpointMismatch as error:
        problem = str(error)
    problem = trainer.communicator.first_text(problem)
    if problem:
        raise CheckpointMismatch(problem)


def _require_moments(state: TrainingState, snapshot: Snapshot) -> None:
    """Check the saved optimizer's state against the names and shapes of this optimizer's state."""
    facts, here = snapshot.facts, type(state.optimizer).__name__.lstrip("_")
    there = facts["optimizer_name"]
    if there not in (None, here):
        raise CheckpointMismatch(
            f"{snapshot.place} has another optimizer: {there} in the checkpoint and {here} in this run"
        )
    expected = _moments_like(state.optimizer) if facts["steps_in_ledger"] > 0 else {}
    saved = {name: t for name, t in snapshot.shared.items() if name.startswith("optimizer/")}
    _require_tree(expected, facts["optimizer"], "optimizer", saved, snapshot.place)


def _require_carries(trainer: "Trainer", snapshot: Snapshot, batch: Batch) -> None:
    """Check the saved state of the loss between batches against this loss's state."""
    expected = _carries_like(trainer, batch)
    for worker in trainer.communicator.local_workers:
        tensors, carries = snapshot.workers[worker]
        may_be_fresh = snapshot.redistributed or snapshot.facts["steps_in_ledger"] == 0
        if carries == {"list": []} and may_be_fresh:
            continue
        saved = {name: tensor for name, tensor in tensors.items() if name.startswith("memory")}
        _require_tree(expected, carries, "memory", saved, f"{snapshot.place}, worker {worker}:")


def _require_tree(expected: Tree, skeleton: Skeleton, prefix: str, saved: Tensors, place: str) -> None:
    """Raise ``CheckpointMismatch`` unless ``skeleton`` and its tensors match ``expected``."""
    live: Tensors = {}
    wanted = take_apart(expected, prefix, live)
    named = {name: saved[name] for name in tensors_of(skeleton)}
    require_same_tensors(live, named, place)
    if _names(skeleton) != _names(wanted):
        raise CheckpointMismatch(f"{place} does not fit this run: its {prefix} has another structure")


def _names(skeleton: Skeleton) -> Tree:
    """A skeleton as a tree of names, independent of the order of an object's fields."""
    return put_together(skeleton, {name: name for name in tensors_of(skeleton)})


def _moments_like(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, object]]:
    """The state of ``optimizer`` for each parameter after a step, as meta tensors.

    It is found by a step of a copy with one parameter in each group.
    """
    found: dict[int, dict[str, object]] = {}
    number = 0
    for group in optimizer.param_groups:
        sample = torch.zeros(2, 3, dtype=group["params"][0].dtype, requires_grad=True)
        sample.grad = torch.zeros_like(sample)
        twin = copy.copy(optimizer)
        twin.state, twin.param_groups = defaultdict(dict), [{**group, "params": [sample]}]
        twin.step()
        for parameter in group["params"]:
            kept = {name: _like(value, sample, parameter) for name, value in twin.state[sample].items()}
            if kept:
                found[number] = kept
            number += 1
    return found


def _like(value: object, sample: Tensor, parameter: Tensor) -> object:
    if not isinstance(value, Tensor):
        return value
    shape = parameter.shape if value.shape == sample.shape else value.shape
    return torch.empty(shape, dtype=value.dtype, device="meta")


def _carries_like(trainer: "Trainer", batch: Batch) -> list[Carry]:
    """The state of a loss between batches; empty for an analytic model."""
    if trainer.is_analytic:
        return []
    settings, device, model = trainer.settings, trainer.layout.device, trainer.model
    loss = in_precision(task_of(trainer.dataset).loss, device, settings.precision)
    pieces = cut(batch, settings.micro_batch_size)
    model.eval()  # BatchNorm's statistics must not change
    own = [device] if device.type == "cuda" else []  # else this process would allocate memory on another GPU
    with torch.inference_mode(), torch.random.fork_rng(own):
        _, carry = loss(model, pieces[0], None)
    model.train()
    return [carry] * len(pieces)
