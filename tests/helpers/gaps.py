"""Trainings of a small network that measure the gap, and the residuals for comparison."""

from dataclasses import replace
from typing import Any

import torch
from methods import FEEDBACKS, named
from skipping import Records, Snapshots, trainer
from training import WORKERS

from compressors.build import build_reducer
from trainers.checkpoint.state import Snapshot
from trainers.comm.communicator import Communicator
from trainers.diagnostics.gap import Gap
from trainers.diagnostics.settings import Diagnostics
from trainers.loop import run
from trainers.step.layout import Layout
from trainers.training import Training

# Every method with every feedback. Each method and each feedback occurs with both scopes
SETTINGS = [
    (name, ("layer", "global")[(number + place) % 2], feedback)
    for number, name in enumerate(("top_k", "hard_threshold", "random_block", "random_block-own", "none"))
    for place, feedback in enumerate(FEEDBACKS)
]
RATE = 0.1


def watched(communicator: Communicator, name: str, scope: str, feedback: str, **changes: Any) -> Training:
    """A trainer that measures in every step, and skips the steps with a NaN (``skipping.BAD_STEPS``)."""
    plain = trainer(communicator)
    method, _, own = name.partition("-")
    codec = named(method, {"shared_coordinates": not own}).method(threshold=0.02, density=0.2)
    layout = Layout(dict(plain.model.named_parameters()), scope)
    reducer = build_reducer(codec, layout.num_parameters, FEEDBACKS[feedback])
    diagnostics = Diagnostics(every=1, gap=Gap())
    return replace(plain, layout=layout, reducer=reducer, diagnostics=diagnostics, **changes)


def squared_norm_of_mean_residual(communicator: Communicator, snapshot: Snapshot) -> float:
    """Computed in float64 over all n workers; 0 without residuals."""
    rows = [
        torch.cat([t.flatten() for name, t in state.tensors.items() if name.startswith("reducer/residual")])
        for state in snapshot.workers.values()
        if any(name.startswith("reducer/residual") for name in state.tensors)
    ]
    if not rows:
        return 0.0
    total = communicator.sum(torch.stack(rows).double().sum(0))
    return (total / communicator.size).square().sum().item()


def gaps(
    process: int, processes: int, name: str, scope: str, feedback: str, start: Any = None
) -> list[dict[str, float]]:
    """The record of each step that was not skipped, with ||mean residual||^2 as ``residual``."""
    layout = {"rank": process, "world_size": processes, "reduction": "worker_order"}
    communicator = Communicator(WORKERS, **layout)
    records, snapshots = Records(), Snapshots(start)
    run(watched(communicator, name, scope, feedback), records, snapshots)
    found = []
    for record in records:
        kept = {k: v for k, v in record.items() if k == "step" or k.startswith("diagnostics/")}
        kept["residual"] = squared_norm_of_mean_residual(communicator, snapshots[record["step"]])
        found.append(kept)
    return found


def gaps_of_all(process: int, processes: int) -> dict[str, list[dict[str, float]]]:
    return {"/".join(setting): gaps(process, processes, *setting) for setting in SETTINGS}


def saved(step: int, setting: tuple[str, str, str]) -> Snapshot:
    """The state after ``step`` of a training in one process."""
    snapshots = Snapshots()
    run(watched(Communicator(WORKERS, reduction="worker_order"), *setting), Records(), snapshots)
    return snapshots[step]


def gone_on(process: int, processes: int, step: int) -> dict[str, list[dict[str, float]]]:
    """``gaps`` of all settings of ``top_k``, each resumed from ``saved(step, setting)``."""
    return {
        "/".join(setting): gaps(process, processes, *setting, start=saved(step, setting))
        for setting in SETTINGS
        if setting[0] == "top_k"
    }


def whole_and_gone_on(process: int, processes: int, step: int) -> dict[str, dict[str, Any]]:
    return {"whole": gaps_of_all(process, processes), "gone_on": gone_on(process, processes, step)}
