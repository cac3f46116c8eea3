"""Methods with a state or a composition, compared with a definition in NumPy over 30 steps of 4 workers."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from compressors.api import Segment, Step, inputs_of
from compressors.arc_top_k import ARCTopK
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.core.randomness import derive_seed, distinct_coordinates, generator, uniform
from compressors.ef_sign import EFSign
from compressors.feedback import ErrorFeedback
from compressors.hard_threshold import HardThreshold
from compressors.qsgd import QSGD
from compressors.random_k import RandomK
from compressors.reused_threshold import ReusedThreshold
from compressors.top_k import TopK
from compressors.two_way import TwoWay
from trainers.comm.communicator import Communicator

N, STEPS, SEED, PERIOD, RANK = 4, range(3, 33), 5, 7, 4
BUCKET, LEVELS = 16, 7
SHAPES = ((6, 10), (31,), (4, 3, 3, 3))
SEGMENTS = {
    "global": {"model": SHAPES},
    "layer": {str(number): (shape,) for number, shape in enumerate(SHAPES)},
}
Definition = Callable[[str, np.ndarray, int], tuple[np.ndarray, np.ndarray]]  # C(p) [n, d] and the mean [d]


def largest(x: np.ndarray, k: int) -> np.ndarray:
    """Ascending positions of the ``k`` largest magnitudes."""
    return np.sort(np.argsort(-np.abs(x), kind="stable")[:k])


def qsgd(x: np.ndarray, segment: str, number: int, worker: int) -> np.ndarray:
    """Every bucket's entries in units of its largest magnitude / s, rounded up if the draw says so."""
    padded = np.pad(x, (0, -len(x) % min(BUCKET, len(x)))).reshape(-1, min(BUCKET, len(x)))
    norms = np.abs(padded).max(1, keepdims=True).astype(np.float32).astype(float)
    seed = derive_seed("own", SEED, number, segment, worker)
    draws = uniform(seed, padded.size, torch.float64).numpy().reshape(padded.shape)
    levels = np.minimum(np.floor(np.abs(padded) / np.where(norms > 0, norms, 1) * LEVELS + draws), LEVELS)
    return (np.sign(padded) * levels * (norms / LEVELS)).ravel()[: len(x)]


def ef_sign(x: np.ndarray, *_: object) -> np.ndarray:
    return np.where(x >= 0, 1, -1) * float(np.float32(np.abs(x).mean()))


def reused_threshold() -> Definition:
    """A tenth, by the k-th largest magnitude in the last multiple of the period, or in the first step."""
    thresholds: dict[str, np.ndarray] = {}

    def define(name: str, p: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        if name not in thresholds or number % PERIOD == 0:
            thresholds[name] = np.sort(np.abs(p), axis=1)[:, [-max(1, p.shape[1] // 10)]]
        sent = p * (np.abs(p) >= thresholds[name])
        return sent, sent.mean(0)

    return define


def arc_top_k() -> Definition:
    """Of each layer's matrix the rows with the largest norm in the mean of G V, a third of them."""

    def define(name: str, p: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        kept = []
        sizes = [math.prod(shape) for shape in shapes_of(name)]
        for layer, part in enumerate(np.split(p, np.cumsum(sizes)[:-1], axis=1)):
            columns = {60: 10, 31: 1, 108: 18}[part.shape[1]]
            v = np.ones((1, 1))
            if columns > 1:
                stream = generator("sketch", SEED, number, name, layer)
                v = torch.randn(columns, RANK, generator=stream, dtype=torch.float64).numpy()
            norms = ((part.reshape(N, -1, columns) @ v).mean(0) ** 2).sum(1)
            rows = np.isin(np.arange(len(norms)), largest(norms, max(1, len(norms) // 3)))
            kept.append(rows.repeat(columns))
        sent = p * np.concatenate(kept)
        return sent, sent.mean(0)

    return define


def chain(*selections: Callable[..., np.ndarray], rounding: Callable[..., np.ndarray]) -> Definition:
    """Each selection takes from what the one before it kept; the last values are rounded."""

    def define(name: str, p: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        sent = np.zeros_like(p)
        for worker, row in enumerate(p):
            where, segment = np.arange(len(row)), name
            for select in selections:
                where, segment = where[select(row[where], segment, number)], f"{segment}/second"
            sent[worker, where] = rounding(row[where], segment, number, worker)
        return sent, sent.mean(0)

    return define


def half(x: np.ndarray, *_: object) -> np.ndarray:
    return largest(x, len(x) // 2)


def drawn_half(x: np.ndarray, segment: str, number: int) -> np.ndarray:
    """The same for all workers."""
    return distinct_coordinates(derive_seed("shared", SEED, number, segment), len(x), len(x) // 2).numpy()


def above_one(x: np.ndarray, *_: object) -> np.ndarray:
    return np.flatnonzero(np.abs(x) >= 1)


def exact(x: np.ndarray, *_: object) -> np.ndarray:
    return x


def two_way(up: Callable[..., np.ndarray], down: Callable[..., np.ndarray]) -> Definition:
    """Server s sends down(mean of up(part s) + its residual), and keeps the rest (DoubleSqueeze)."""
    residuals: dict[str, np.ndarray] = {}

    def define(name: str, p: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        size, length = p.shape[1], -(-p.shape[1] // N)
        parts = np.pad(p, ((0, 0), (0, N * length - size))).reshape(N, N, length)
        sent, mean = np.zeros_like(parts), np.zeros((N, length))
        left = residuals.setdefault(name, np.zeros((N, length)))
        for server in range(N):
            total = N * left[server]
            for worker in range(N):
                sent[worker, server] = up(parts[worker, server], f"{name}/{server}", number, worker)
                total += sent[worker, server]
            total /= N  # the same order of sums: a scale is rounded to fp32
            mean[server] = down(total, f"{name}/{server}/mean", number, server)
            left[server] = total - mean[server]
        left.reshape(-1)[size:] = 0
        return sent.reshape(N, -1)[:, :size], mean.ravel()[:size]

    return define


def shapes_of(name: str) -> tuple[tuple[int, ...], ...]:
    return (SEGMENTS["global"] | SEGMENTS["layer"])[name]


ROUNDED = QSGD(bucket_size=BUCKET)
METHODS = {
    "reused_threshold": (ReusedThreshold(density=0.1, period=PERIOD), reused_threshold),
    "arc_top_k": (ARCTopK(density=0.34, rank=RANK), arc_top_k),
    "chain of top_k and qsgd": (
        Chain(first=TopK(density=0.5), second=ROUNDED),
        lambda: chain(half, rounding=qsgd),
    ),
    "chain of random_k, top_k and qsgd": (
        Chain(first=RandomK(density=0.5), second=Chain(first=TopK(density=0.5), second=ROUNDED)),
        lambda: chain(drawn_half, half, rounding=qsgd),
    ),
    "chain of a threshold and top_k": (
        Chain(first=HardThreshold(threshold=1.0), second=TopK(density=0.5)),
        lambda: chain(above_one, half, rounding=exact),
    ),
    "two_way of qsgd": (TwoWay(up=ROUNDED, down=ROUNDED), lambda: two_way(qsgd, qsgd)),
    "two_way of ef_sign": (TwoWay(up=EFSign(), down=EFSign()), lambda: two_way(ef_sign, ef_sign)),
}


@pytest.mark.parametrize("scope", SEGMENTS)
@pytest.mark.parametrize("name", METHODS)
def test_definition(name: str, scope: str) -> None:
    """Means and residuals of 30 steps with error feedback; the first is not a multiple of the period."""
    method, make = METHODS[name]
    define, sizes = make(), {own: sum(map(math.prod, shapes)) for own, shapes in SEGMENTS[scope].items()}
    reducer, communicator = ErrorFeedback(build_reducer(method, sum(sizes.values()))), Communicator(N)
    communicator.declare_kinds(reducer.kinds)
    state, memory = None, {own: np.zeros((N, size)) for own, size in sizes.items()}
    for number in STEPS:
        stream = generator(number)
        drawn = {s: torch.randn(N + 1, d, generator=stream, dtype=torch.float64) for s, d in sizes.items()}
        rows = {own: (1 + number % 5) * (x[1:] + x[:1]) for own, x in drawn.items()}
        segments = [Segment(own, x.clone(), SEGMENTS[scope][own]) for own, x in rows.items()]
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(SEED, number), communicator)
        for own in sizes:
            p = memory[own] + rows[own].numpy()
            sent, mean = define(own, p, number)
            memory[own] = p - sent
            np.testing.assert_allclose(reduced.mean[own].numpy(), mean, rtol=0, atol=1e-9)
            np.testing.assert_allclose(state.residual[own].numpy(), memory[own], rtol=0, atol=1e-9)
