"""Quantisers, and methods with a state or a composition, against NumPy over 30 steps of 4 workers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from compressors.api import Segment, Step, inputs_of
from compressors.arc_top_k import ARCTopK
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.core.randomness import derive_seed, distinct_coordinates, generator, random_bits, uniform
from compressors.ef_sign import EFSign
from compressors.feedback import ErrorFeedback, no_feedback
from compressors.hard_threshold import HardThreshold
from compressors.natural import Natural
from compressors.one_bit import OneBit
from compressors.qsgd import QSGD
from compressors.random_k import RandomK
from compressors.reused_threshold import ReusedThreshold
from compressors.strom import Strom
from compressors.terngrad import TernGrad
from compressors.top_k import TopK
from compressors.two_way import TwoWay
from trainers.comm.communicator import Communicator

N, STEPS, SEED, PERIOD, RANK = 4, range(3, 33), 5, 7, 4
SHAPES = ((6, 10), (31,), (4, 3, 3, 3))
SEGMENTS = {
    "global": {"model": SHAPES},
    "layer": {str(number): (shape,) for number, shape in enumerate(SHAPES)},
}
Definition = Callable[[str, np.ndarray, int], tuple[np.ndarray, np.ndarray]]  # C(p) [n, d] and the mean [d]


def largest(x: np.ndarray, k: int) -> np.ndarray:
    """Ascending positions of the ``k`` largest magnitudes."""
    return np.sort(np.argsort(-np.abs(x), kind="stable")[:k])


def draws_of(segment: str, number: int, worker: int, size: int) -> np.ndarray:
    """A worker's own random numbers in [0, 1), one for each entry."""
    return uniform(derive_seed("own", SEED, number, segment, worker), size, torch.float64).numpy()


def single(number: float) -> float:
    """Rounded to float32, as scales are sent."""
    return float(np.float32(number))


def qsgd(codec: QSGD) -> Callable[..., np.ndarray]:
    """Every bucket's entries in units of its norm / s, rounded up if the draw says so."""

    def rounded(x: np.ndarray, segment: str, number: int, worker: int) -> np.ndarray:
        s, size = codec.num_levels, min(codec.bucket_size, len(x))
        padded = np.pad(x, (0, -len(x) % size)).reshape(-1, size)
        of_bucket = np.abs(padded).max(1) if codec.norm == "max" else np.linalg.norm(padded, axis=1)
        norms = of_bucket[:, None].astype(np.float32).astype(float)
        draws = draws_of(segment, number, worker, padded.size).reshape(padded.shape)
        levels = np.minimum(np.floor(np.abs(padded) / np.where(norms > 0, norms, 1) * s + draws), s)
        return (np.sign(padded) * levels * (norms / s)).ravel()[: len(x)]

    return rounded


def natural(x: np.ndarray, segment: str, number: int, worker: int) -> np.ndarray:
    """|x| = 2^e m with 1 <= m < 2 becomes 2^(e + 1) with probability m - 1, else 2^e."""
    x = x.astype(np.float32).astype(float)
    low = 2.0 ** (np.frexp(x)[1] - 1)
    draws = random_bits(derive_seed("own", SEED, number, segment, worker), len(x)) >> np.uint32(9)
    return np.sign(x) * low * np.where(np.abs(x) / low - 1 + draws / 2**23 >= 1, 2, 1)


def terngrad(clip: float | None) -> Callable[..., np.ndarray]:
    """s sign(x) with probability |x| / s, else 0; s = min(max |x|, ``clip`` standard deviations)."""

    def rounded(x: np.ndarray, segment: str, number: int, worker: int) -> np.ndarray:
        draws = layers_of(draws_of(segment, number, worker, len(x)), segment)
        return np.concatenate([layer(*own) for own in zip(layers_of(x, segment), draws, strict=True)])

    def layer(x: np.ndarray, draws: np.ndarray) -> np.ndarray:
        s = single(min(np.abs(x).max(), math.inf if clip is None else clip * x.std()))
        return np.sign(x) * s * (draws * s < np.abs(x))

    return rounded


def strom(x: np.ndarray, *_: object) -> np.ndarray:
    return np.where(np.abs(x) >= 1, np.sign(x), 0)


def sign(x: np.ndarray, *_: object) -> np.ndarray:
    """(||x||_1 / d) sign(x), where 0 is positive."""
    return np.where(x >= 0, 1, -1) * single(np.abs(x).mean())


def ef_sign(x: np.ndarray, segment: str, *_: object) -> np.ndarray:
    return np.concatenate([sign(layer) for layer in layers_of(x, segment)])


def one_bit(per: str) -> Callable[..., np.ndarray]:
    """For every entry the mean of its half of the column: the entries >= 0, or the negative ones."""

    def rounded(x: np.ndarray, segment: str, *_: object) -> np.ndarray:
        found = []
        for layer, shape in zip(layers_of(x, segment), shapes_of(segment), strict=True):
            for column in layer.reshape(shape[0] if per == "column" and len(shape) > 1 else 1, -1):
                halves = [column[column >= 0], column[column < 0]]
                found.append(np.where(column >= 0, *(single(h.mean()) if len(h) else 0 for h in halves)))
        return np.concatenate(found)

    return rounded


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
        for layer, part in enumerate(layers_of(p, name)):
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


def half_scaled(kind: str) -> Callable[..., np.ndarray]:
    """Entries at half of the coordinates times d / k, the same coordinates for all workers or not."""

    def rounded(x: np.ndarray, segment: str, number: int, worker: int) -> np.ndarray:
        salt = (worker,) if kind == "own" else ()
        seed, k = derive_seed(kind, SEED, number, segment, *salt), len(x) // 2
        kept = np.isin(np.arange(len(x)), distinct_coordinates(seed, len(x), k))
        return x * kept * len(x) / k

    return rounded


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


def layers_of(x: np.ndarray, name: str) -> list[np.ndarray]:
    """Parts of ``x`` [..., d], one for each layer of segment ``name``."""
    return np.split(x, np.cumsum([math.prod(shape) for shape in shapes_of(name)])[:-1], axis=-1)


ROUNDED = QSGD(bucket_size=16)
QUANTISERS = {  # with the bytes of a worker in a step for 199 entries, and for 3 layers in one segment
    "ef_sign": (EFSign(), ef_sign, 25 + 3 * 4),
    "one_bit": (OneBit(), one_bit("column"), 25 + (6 + 1 + 4) * 8),
    "one_bit per layer": (OneBit(per="layer"), one_bit("layer"), 25 + 3 * 8),
    "natural": (Natural(), natural, 199 + 25),
    "terngrad": (TernGrad(), terngrad(2.5), 40 + 3 * 4),
    "terngrad in 2 bits": (TernGrad(clip=None, values_per_byte=4), terngrad(None), 50 + 3 * 4),
    "qsgd": (ROUNDED, qsgd(ROUNDED), 100 + 13 * 4),
    "strom": (Strom(threshold=1.0), strom, None),
    "random_k, unbiased": (RandomK(density=0.5, unbiased=True), half_scaled("shared"), 99 * 8),
    "random_k of each worker, unbiased": (
        RandomK(density=0.5, unbiased=True, shared_coordinates=False),
        half_scaled("own"),
        99 * (8 + 4),
    ),
}
for levels, bits, norm, size in (
    (1, 2, "l2", 512),
    (5, 4, "max", 64),
    (16, 6, "l2", 50),
    (200, 9, "max", 16),
):
    codec = QSGD(bits=None, levels=levels, norm=norm, bucket_size=size)
    num_bytes = sum(math.ceil(199 * part / 8) for part in (8, 4, 2, 1) if bits & part)
    QUANTISERS[f"qsgd in {bits} bits"] = (codec, qsgd(codec), num_bytes + 4 * math.ceil(199 / size))
METHODS = {
    "reused_threshold": (ReusedThreshold(density=0.1, period=PERIOD), reused_threshold),
    "arc_top_k": (ARCTopK(density=0.34, rank=RANK), arc_top_k),
    "chain of top_k and qsgd": (
        Chain(first=TopK(density=0.5), second=ROUNDED),
        lambda: chain(half, rounding=qsgd(ROUNDED)),
    ),
    "chain of random_k, top_k and qsgd": (
        Chain(first=RandomK(density=0.5), second=Chain(first=TopK(density=0.5), second=ROUNDED)),
        lambda: chain(drawn_half, half, rounding=qsgd(ROUNDED)),
    ),
    "chain of a threshold and top_k": (
        Chain(first=HardThreshold(threshold=1.0), second=TopK(density=0.5)),
        lambda: chain(above_one, half, rounding=exact),
    ),
    "two_way of qsgd": (TwoWay(up=ROUNDED, down=ROUNDED), lambda: two_way(qsgd(ROUNDED), qsgd(ROUNDED))),
    "two_way of ef_sign": (TwoWay(up=EFSign(), down=EFSign()), lambda: two_way(sign, sign)),
}


def require_equal(method: Any, define: Definition, scope: str, feedback: Any, steps: range) -> np.ndarray:
    """Assert that means and residuals are those of ``define`` in all steps; bytes of each worker and step."""
    sizes = {own: sum(map(math.prod, shapes)) for own, shapes in SEGMENTS[scope].items()}
    reducer, communicator = feedback(build_reducer(method, sum(sizes.values()))), Communicator(N)
    communicator.declare_kinds(reducer.kinds)
    state, memory, charged = None, {own: np.zeros((N, size)) for own, size in sizes.items()}, []
    for number in steps:
        stream = generator(number)
        drawn = {s: torch.randn(N + 1, d, generator=stream, dtype=torch.float64) for s, d in sizes.items()}
        rows = {own: (1 + number % 5) * (x[1:] + x[:1]) for own, x in drawn.items()}
        for own in rows.values():
            own[:, ::17] = 0
        segments = [Segment(own, x.clone(), SEGMENTS[scope][own]) for own, x in rows.items()]
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(SEED, number), communicator)
        for own in sizes:
            p = memory[own] + rows[own].numpy()
            sent, mean = define(own, p, number)
            memory[own] = p - sent if feedback is ErrorFeedback else memory[own]
            np.testing.assert_allclose(reduced.mean[own].numpy(), mean, rtol=0, atol=1e-9)
            np.testing.assert_allclose(reduced.residual[own].numpy(), p - sent, rtol=0, atol=1e-9)
        charged.append(communicator.take_charges().sum(1))
    return np.array(charged)


@pytest.mark.parametrize("scope", SEGMENTS)
@pytest.mark.parametrize("name", METHODS)
def test_definition(name: str, scope: str) -> None:
    """30 steps with error feedback; the first is not a multiple of the period."""
    method, make = METHODS[name]
    require_equal(method, make(), scope, ErrorFeedback, STEPS)


@pytest.mark.parametrize("scope", SEGMENTS)
@pytest.mark.parametrize("name", QUANTISERS)
def test_quantiser(name: str, scope: str) -> None:
    """Some have more variance than feedback allows."""
    method, rounding, num_bytes = QUANTISERS[name]
    charged = require_equal(method, chain(rounding=rounding), scope, no_feedback, range(3))
    if scope == "global" and num_bytes is not None:
        assert (charged == num_bytes).all()
