"""DeMo against NumPy, with its momentum and its sign; its bytes, and those of the authors' code."""

import numpy as np
import pytest
import torch
from torch import nn

from compressors.api import Segment, Step, inputs_of
from compressors.build import build_reducer
from compressors.chunk_top_k import ChunkTopK
from compressors.demo import DeMo
from compressors.feedback import DecayedFeedback
from trainers.comm.communicator import Communicator
from trainers.optimizer import sign_sgd

N, STEPS, DECAY, K = 3, 4, 0.999, 5
SHAPES = {"matrix": (24, 36), "convolution": (6, 4, 3, 3), "vector": (24,), "prime": (17, 3)}
SIDES = {"matrix": (8, 6), "convolution": (6, 6), "vector": (1, 8), "prime": (1, 3)}  # at most 8


def cosines(size: int) -> np.ndarray:
    """The orthonormal DCT-II: y_k = s_k sum_i x_i cos(pi (2 i + 1) k / (2 size)), as a matrix."""
    k, i = np.mgrid[:size, :size]
    scale = np.where(k == 0, np.sqrt(1 / size), np.sqrt(2 / size))
    return scale * np.cos(np.pi * (2 * i + 1) * k / (2 * size))


def by_definition(p: np.ndarray, name: str, aggregation: str) -> tuple[np.ndarray, np.ndarray]:
    """The mean [d] and what each worker sent, [N, d], of p [N, d]."""
    columns = int(np.prod(SHAPES[name][1:])) if len(SHAPES[name]) > 1 else p.shape[1]
    height, width = SIDES[name]
    own = p.reshape(N, -1, columns)
    sent, mean = np.zeros_like(own), np.zeros_like(own[0])
    down, across = cosines(height), cosines(width)
    for top in range(0, own.shape[1], height):
        for left in range(0, columns, width):
            at = np.s_[..., top : top + height, left : left + width]
            coefficients = down @ own[at] @ across.T
            order = np.argsort(-np.abs(coefficients).reshape(N, -1), axis=1, kind="stable")
            kept = np.zeros((N, height * width))
            np.put_along_axis(kept, order[:, :K], 1, axis=1)
            kept = kept.reshape(coefficients.shape)
            divisor = np.maximum(kept.sum(0), 1) if aggregation == "senders" else N
            sent[at] = down.T @ (kept * coefficients) @ across
            mean[at] = down.T @ ((kept * coefficients).sum(0) / divisor) @ across
    return mean.ravel(), sent.reshape(N, -1)


@pytest.mark.parametrize("aggregation", ["senders", "mean"])
def test_definition(aggregation: str) -> None:
    """p = decay e + lr g; e = p - C(p); the weights decay, and move by the sign of the mean."""
    reducer = DecayedFeedback(DeMo(k=K, chunk=8, aggregation=aggregation), scale="step", decay=DECAY)
    communicator, state, rate, weight_decay = Communicator(N), None, 0.01, 0.1
    memory = {name: np.zeros((N, int(np.prod(shape)))) for name, shape in SHAPES.items()}
    model = nn.ParameterDict(
        {name: torch.ones(x.shape[1], dtype=torch.float64) for name, x in memory.items()}
    )
    weights = {name: np.ones(x.shape[1]) for name, x in memory.items()}
    optimizer = sign_sgd(model, lr=rate, weight_decay=weight_decay)
    for number in range(STEPS):
        draw = torch.Generator().manual_seed(number)
        rows = {n: torch.randn(x.shape, generator=draw, dtype=torch.float64) for n, x in memory.items()}
        segments = [Segment(name, x.clone(), (SHAPES[name],)) for name, x in rows.items()]
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, number, rate), communicator)
        for name, x in rows.items():
            p = DECAY * memory[name] + rate * x.numpy()
            mean, sent = by_definition(p, name, aggregation)
            memory[name] = p - sent
            np.testing.assert_allclose(rate * reduced.mean[name].numpy(), mean, atol=1e-12)
            np.testing.assert_allclose(reduced.residual[name].numpy(), p - sent, atol=1e-12)
            weights[name] = weights[name] * (1 - rate * weight_decay) - rate * np.sign(mean)
            model[name].grad = reduced.mean[name]
        optimizer.step()
        for name, expected in weights.items():
            np.testing.assert_allclose(model[name].detach().numpy(), expected, atol=1e-12)


def test_bytes() -> None:
    """4 bytes and 12 bits for each of 32 coefficients per chunk; 12 bytes with the authors' int64."""
    communicator = Communicator(2)
    segments = [Segment("matrix", torch.randn(2, 2**14), ((128, 128),))]
    DeMo().reduce(inputs_of(segments), (), Step(0, 0), communicator)
    charged = dict(zip(communicator.kinds, communicator.take_charges()[0], strict=True))
    coefficients = 32 * 2**14 // 64**2
    assert charged["values"] == 4 * coefficients and charged["indices"] == 1.5 * coefficients
    assert sum(charged.values()) == 5.5 * coefficients
    authors = torch.ones(coefficients).topk(
        coefficients
    )  # as their code: values and indices as torch has them
    assert authors.values.nbytes + authors.indices.nbytes == 12 * coefficients


def test_many_senders_of_half_precision_are_counted() -> None:
    """In bf16 256 + 1 is 256."""
    rows = torch.ones(300, 64, dtype=torch.bfloat16)
    reducer, segments = build_reducer(ChunkTopK(k=64), 64), [Segment("a", rows, ((64,),))]
    reduced, _ = reducer.reduce(inputs_of(segments), reducer.init(segments), Step(0, 0), Communicator(300))
    assert torch.equal(reduced.mean["a"], torch.ones(64, dtype=torch.bfloat16))
