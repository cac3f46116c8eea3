"""Program that measures the costs of a config's steps; its argument and its output are JSON objects.

``python -m results breakeven`` runs it.
"""

import json
import math
import statistics
import sys

import torch

from trainers.comm.communicator import Communicator
from trainers.config.composition import compose
from trainers.config.errors import ConfigError, one_line, refusing
from trainers.hooks.advice.costs import UNCOUNTED, Settings, measure_costs
from trainers.hooks.advice.gloo import Speed, gloo_speed
from trainers.launch.device import choose_device
from trainers.launch.memory import keep_freed_memory
from trainers.run.build import build_training
from trainers.step.advance import Advance
from trainers.training import Training


def main(argument: str) -> None:
    """Print the measured costs for ``argument``, a JSON object.

    Its fields are ``overrides`` of the config, ``settings`` for ``Settings``, and ``compute_seconds`` and
    ``backend``, the fields of a ``Speed``, each measured if it is null. Raises ``ConfigError`` for settings
    that cannot be measured.
    """
    request = json.loads(argument)
    config = compose(request["overrides"])
    keep_freed_memory()
    torch.set_num_threads(config["threads"])
    with refusing():
        device = choose_device(config["device"], 1, 0)
        settings = Settings(**request["settings"])
        trainer = build_training(config, Communicator(1, device=device), device)
        given = request["compute_seconds"]
        measured = compute_seconds(trainer, settings.steps) if given is None else given
        costs = measure_costs(trainer.layout, settings)
    backend = request["backend"]
    if backend is None:
        backend = gloo_speed() if device.type == "cpu" else Speed(math.inf, 0.0)
    answer = {
        "compute_seconds": measured,
        "costs": costs,
        "parameters": trainer.layout.num_parameters,
        "backend": None if math.isinf(backend[0]) else backend,
        "device": str(device),
        "batch_size": trainer.settings.batch_size,
        "methods": str(settings),
    }
    print(json.dumps(answer))


def compute_seconds(training: Training, steps: int) -> float:
    """Median seconds of a step without its reduction, of a training with one worker; of a local step, if
    there are any.
    """
    advance = Advance(training.new_state(), training.loader, training.communicator)
    training.model.train()
    times = [advance(1.0, measure=False).times() for _ in range(UNCOUNTED + steps)]
    count = training.steps_at_once
    return statistics.median(
        (own["time/gradient_seconds"] + own["time/update_seconds"]) / count for own in times[UNCOUNTED:]
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ConfigError as error:
        sys.exit(f"error: {one_line(error)}")
