"""ACCORDION on synthetic gradients, whose layers change at different times."""

from typing import Any

import torch
from methods import FEEDBACKS, segment

from compressors.accordion import Accordion
from compressors.api import Step, inputs_of
from compressors.build import build_reducer
from trainers.comm.communicator import Communicator

SIZES = {"a": 400, "b": 90, "c": 1}
WORKERS, STEPS_PER_EPOCH, EPOCHS, PERIOD = 2, 3, 12, 3
LOW, HIGH = 0.05, 0.3
GROWTH = {
    "a": [1.0] * EPOCHS,
    "b": [1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4],
    "c": [2.0**e for e in range(EPOCHS)],
}
RATES = [0.1] * 10 + [0.01] * 2  # in the middle of a period


def settings(**changes: Any) -> Accordion:
    return Accordion(**{"k_low": LOW, "k_high": HIGH, "period": PERIOD} | changes)


def gradients(step: int) -> torch.Tensor:
    """[n, D]: a constant part plus noise; each layer is scaled depending on the epoch."""
    epoch, size = step // STEPS_PER_EPOCH, sum(SIZES.values())
    steady = torch.randn(size, generator=torch.Generator().manual_seed(1000))
    noise = torch.randn(WORKERS, size, generator=torch.Generator().manual_seed(step))
    scale = torch.cat([torch.full((d,), GROWTH[name][epoch]) for name, d in SIZES.items()])
    return (steady + 0.1 * noise) * scale


def choose(
    process: int = 0,
    processes: int = 1,
    feedback: str = "gradient",
    whole: bool = False,
) -> dict[str, Any]:
    """Means, elements sent and bytes of every step of a reducer, without a model."""
    communicator = Communicator(WORKERS, rank=process, world_size=processes)
    reducer = build_reducer(settings(), sum(SIZES.values()), FEEDBACKS[feedback])
    flat = torch.zeros(len(communicator.local_workers), sum(SIZES.values()))
    parts = [flat] if whole else flat.split(list(SIZES.values()), 1)
    segments = [segment(rows, name) for name, rows in zip(SIZES, parts, strict=False)]
    state, found = reducer.init(segments), {"means": [], "sent": [], "bytes": []}
    for step in range(EPOCHS * STEPS_PER_EPOCH):
        flat.copy_(gradients(step)[communicator.local_workers.start : communicator.local_workers.stop])
        epoch = step / STEPS_PER_EPOCH
        context = Step(0, step, RATES[int(epoch + 1e-9)], epoch)
        reduced, state = reducer.reduce(inputs_of(segments), state, context, communicator)
        found["means"].append({name: mean.clone() for name, mean in reduced.mean.items()})
        found["sent"].append({name: int(own.sent[0].sum()) for name, own in reduced.compressed.items()})
        charged = torch.from_numpy(communicator.take_charges())
        found["bytes"].append(communicator.collect(charged).sum(1).tolist())
    return found
