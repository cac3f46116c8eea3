"""Hours of a run on an H100, from its multiply-adds and the memory traffic of its reduction."""

import json
from functools import cache
from typing import Any

import torch
from hydra.utils import get_method
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

OPERATIONS_PER_SECOND = (
    50e12  # measured on an H100: 0.28 hours of paper/resnet18_cifar10, with its evaluations
)
BYTES_PER_SECOND = 1e12  # 0.8 to 1.1 in the same runs
BYTES_PER_ENTRY = 40  # per entry of a worker's gradient: write, feedback, selection, measurement
PASSES = 3  # the backward pass takes twice as many multiply-adds as the forward pass
WORDS, UNITS, USERS, ITEMS = 28_912, 8_000, 138_493, 26_744
IMAGES = {"cifar10": (32, 10), "cifar100": (32, 100), "imagenet": (224, 1000)}  # pixels, classes
LENGTH, MASKED = 128, 19  # units, and masked units, of a block


def hours_of(config: dict[str, Any], steps: int) -> float:
    """Estimated hours of ``steps`` steps."""
    data = config["data"]["_target_"].rpartition(".")[2]
    is_text = config["data"].get("objective") == "next_token"
    multiply_adds, parameters = cost(json.dumps(config["model"]), data)
    tokens = config["data"]["bptt"] if is_text else 1
    samples = config["workers"] * config["trainer"]["batch_size"] * tokens
    operations = 2 * PASSES * multiply_adds * samples
    moved = config["workers"] * parameters * BYTES_PER_ENTRY
    return steps * (operations / OPERATIONS_PER_SECOND + moved / BYTES_PER_SECOND) / 3600


@cache
def cost(model: str, data: str) -> tuple[int, int]:
    """(multiply-adds of a sample or token, parameters) of a model; ``model`` is its settings as JSON."""
    settings = json.loads(model)
    factory = get_method(settings.pop("_target_"))
    sizes, inputs = _of(data, is_masked=settings.get("config") is not None)
    with torch.device("meta"), torch.no_grad():
        network = factory(**settings, **sizes).eval()
        with FlopCounterMode(display=False) as counter:
            network(*(made.to("meta") for made in inputs))
    return counter.get_total_flops() // 2, sum(each.numel() for each in network.parameters())


def _of(data: str, is_masked: bool) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """The arguments that a model's factory takes from a dataset, and a sample as the model's inputs."""
    one = torch.zeros(1, dtype=torch.int64)
    if is_masked:
        sizes = {"vocabulary_size": UNITS, "masked": True, "max_length": LENGTH}
        return sizes, (one.expand(1, LENGTH), one.expand(1, MASKED))
    if data == "wikitext2":
        return {"num_words": WORDS}, (one[None],)
    if data == "movielens":
        return {"num_users": USERS, "num_items": ITEMS}, (one, one)
    side, classes = IMAGES[data]
    return {"input_shape": (3, side, side), "num_classes": classes}, (torch.zeros(1, 3, side, side),)
