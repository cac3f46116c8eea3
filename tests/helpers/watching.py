"""Reductions of random gradients with every diagnostic, and the tensors to compute its metrics directly."""

from typing import Any

import torch
from methods import FEEDBACKS, named
from torch import Tensor

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from trainers.comm.communicator import Communicator
from trainers.diagnostics.bound import Bound
from trainers.diagnostics.gap import Gap
from trainers.diagnostics.probe import Probe
from trainers.diagnostics.selection_error import SelectionError
from trainers.diagnostics.settings import Diagnostics
from trainers.diagnostics.staleness import Staleness
from trainers.diagnostics.xi import Xi

WORKERS, SIZES, STEPS, RATES = 4, (7, 40, 300), 12, (0.5, 0.1)
DENSITIES, AGES = (0.004, 0.1, 0.5, 1.0), (1, 2, 5)
DENSITY, THRESHOLD = 0.1, {"none": 1.5, "gradient": 2.5, "step": 0.6}
SETTINGS = [
    (method, scope, feedback)
    for method in ("top_k", "hard_threshold")
    for scope in ("layer", "global")
    for feedback in FEEDBACKS
]


def learning_rate(step: int) -> float:
    """A learning rate that drops in the middle."""
    return RATES[step >= STEPS // 2]


def gradient(step: int, worker: int) -> Tensor:
    """[D]: a common part and a worker's own part, with a scale for each layer and worker."""
    common, own = (
        torch.randn(sum(SIZES), generator=torch.Generator().manual_seed(seed))
        for seed in (step, 1000 + 100 * step + worker)
    )
    scale = torch.cat([torch.full((size,), 1.0 + layer) for layer, size in enumerate(SIZES)])
    return scale * (common + (0.5 + 0.2 * worker) * own)


def segments_of(flat: Tensor, scope: str) -> list[Segment]:
    """Segments of ``flat`` [W, D], one per layer or one for all."""
    if scope == "global":
        return [Segment("model", flat, tuple((size,) for size in SIZES))]
    rows = flat.split(SIZES, dim=1)
    return [Segment(f"layer{i}", r, ((r.shape[1],),)) for i, r in enumerate(rows)]


def diagnostics(feedback: str, every: int = 1) -> Diagnostics:
    """All diagnostics that this feedback supports."""
    return Diagnostics(
        every=every,
        xi=Xi(),
        selection_error=SelectionError(densities=DENSITIES),
        staleness=Staleness(ages=AGES) if feedback != "none" else None,
        bound=Bound(),
        gap=Gap(),
    )


def reducer_of(method: str, feedback: str) -> Any:
    codec = named(method, {}).method(density=DENSITY, threshold=THRESHOLD[feedback])
    return build_reducer(codec, sum(SIZES), FEEDBACKS[feedback])


def watched(
    method: str, scope: str, feedback: str, process: int = 0, processes: int = 1, every: int = 1
) -> list[dict[str, Any]]:
    """By step: metrics, charged bytes, and [W, D] each: old residual, gradient and p - C(p)."""
    communicator = Communicator(WORKERS, rank=process, world_size=processes)
    probe = Probe(reducer_of(method, feedback), diagnostics(feedback, every))
    flat = torch.empty(len(communicator.local_workers), sum(SIZES))
    state = probe.init(segments_of(flat, scope))
    found = []
    for step in range(STEPS):
        flat = torch.stack([gradient(step, worker) for worker in communicator.local_workers])
        segments = segments_of(flat, scope)
        names = [segment.name for segment in segments]
        before = torch.zeros_like(flat)
        if feedback != "none":
            before = torch.cat([state.residual[name] for name in names], 1)
        gradients = flat.clone()
        context = Step(0, step, learning_rate(step))
        probe.expect(step + 1, is_last=step + 1 == STEPS)
        reduced, state = probe.reduce(inputs_of(segments), state, context, communicator)
        found.append(
            {
                "metrics": dict(probe.latest),
                "charges": communicator.take_charges().tolist(),
                "residual": before,
                "gradient": gradients,
                "residual_after": torch.cat([reduced.residual[name] for name in names], 1),
            }
        )
    return found


def watched_all(process: int, processes: int) -> dict[str, list[dict[str, Any]]]:
    return {"/".join(setting): watched(*setting, process, processes) for setting in SETTINGS}
