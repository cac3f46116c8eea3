"""Checks that a checkpoint's tensors fit this training."""

from collections.abc import Callable, Iterable

from data.protocols import Batch, Carry, Loader
from trainers.checkpoint.state import (
    FRESH,
    CheckpointMismatch,
    Snapshot,
    Tensors,
    TrainingState,
    require_same_tensors,
)
from trainers.checkpoint.tree import Skeleton, Tree, put_together, take_apart, tensors_of
from trainers.comm.agreement import run_together
from trainers.optimizer import moments_like
from trainers.step.local import Rounds
from trainers.step.reading import read_together


def require_fit(
    state: TrainingState, snapshot: Snapshot, loader: Loader, carries_after: Callable[[Batch], list[Carry]]
) -> None:
    """Raise ``CheckpointMismatch``, in all processes, unless ``snapshot`` fits ``state``.

    ``carries_after`` returns the state of the loss after a batch, as it is expected in ``snapshot``.
    """
    communicator = state.communicator
    step = snapshot.facts["step"]
    if isinstance(loader, Rounds):
        batches = next(loader.batches(step))
    else:
        batches = read_together(communicator, loader, lambda: loader.batches(step))

    def check() -> None:
        state.require_fit(snapshot)
        _require_moments(state, snapshot)
        carries: Tree = carries_after(batches[0]) if batches else []
        if state.local is not None:
            keeps_weights = state.local.settings.keeps_weights
            kept = [p for p in state.model.parameters() if p.requires_grad and keeps_weights]
            carries = [carries, moments_like(state.local.optimizer), kept]
        _require_carries(communicator.local_workers, snapshot, carries)

    run_together(communicator, check, CheckpointMismatch, CheckpointMismatch)


def _require_moments(state: TrainingState, snapshot: Snapshot) -> None:
    """Check the saved optimizer's state against the names and shapes of this optimizer's state."""
    facts, here = snapshot.facts, type(state.optimizer).__name__.lstrip("_")
    there = facts["optimizer_name"]
    if there != here:
        raise CheckpointMismatch(
            f"{snapshot.place} has another optimizer: {there} in the checkpoint and {here} in this run"
        )
    expected = moments_like(state.optimizer) if facts["steps_in_ledger"] > 0 else {}
    if state.local is not None:  # the outer optimizer, with parameters in the order of the layers
        exchanges = next(iter(snapshot.workers.values())).tensors["ledger/total_exchanges"].tolist()
        expected = {layer: own for layer, own in expected.items() if exchanges[layer] > 0}
    saved = {name: t for name, t in snapshot.shared.items() if name.startswith("optimizer/")}
    _require_tree(expected, facts["optimizer"], "optimizer", saved, snapshot.place)


def _require_carries(workers: Iterable[int], snapshot: Snapshot, expected: Tree) -> None:
    """Check the saved state of the loss between batches, and the moments of local steps."""
    for worker in workers:
        tensors, carries = snapshot.workers[worker]
        may_be_fresh = snapshot.redistributed or snapshot.facts["steps_in_ledger"] == 0
        if carries == FRESH and may_be_fresh:
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
