"""SparseLoCo's parts, chunked Top-k, bins and decayed feedback, against NumPy; its bits per parameter."""

import numpy as np
import pytest
import torch

from compressors.api import Segment, Step, inputs_of
from compressors.bin_means import BinMeans
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.chunk_top_k import ChunkTopK
from compressors.feedback import DecayedFeedback
from trainers.comm.communicator import Communicator

N, STEPS, DECAY, K = 3, 4, 0.95, 5
SHAPES = {"matrix": (24, 36), "convolution": (6, 4, 3, 3), "vector": (22,), "prime": (17, 3)}
SIDES = {"matrix": (8, 6), "convolution": (6, 6), "vector": (1, 2), "prime": (1, 3)}  # at most 8


def kept(x: np.ndarray, name: str) -> np.ndarray:
    """x [d] with all but the K largest magnitudes of each chunk set to 0."""
    rows = x.reshape(SHAPES[name][0], -1) if len(SHAPES[name]) > 1 else x.reshape(1, -1)
    height, width = SIDES[name]
    out = np.zeros_like(rows)
    for top in range(0, rows.shape[0], height):
        for left in range(0, rows.shape[1], width):
            chunk = rows[top : top + height, left : left + width]
            order = np.argsort(-np.abs(chunk).ravel(), kind="stable")[:K]
            places = np.unravel_index(order, chunk.shape)
            out[top + places[0], left + places[1]] = chunk[places]
    return out.ravel()


def in_bins(values: np.ndarray) -> np.ndarray:
    """Each value replaced by the mean of its bin, of four over six standard deviations."""
    width = 6 * values.std(ddof=1) / 4
    codes = np.clip(np.round((values - values.mean()) / width + 2), 0, 3)
    return np.array([np.float32(values[codes == code].mean()) for code in codes])


@pytest.mark.parametrize("aggregation", ["senders", "mean"])
@pytest.mark.parametrize("quantised", [False, True])
def test_definition(aggregation: str, quantised: bool) -> None:
    first = ChunkTopK(k=K, chunk=8, aggregation=aggregation)
    method = Chain(first=first, second=BinMeans()) if quantised else first
    reducer, communicator = DecayedFeedback(build_reducer(method, 2000), decay=DECAY), Communicator(N)
    communicator.declare_kinds(reducer.kinds)
    memory = {name: np.zeros((N, int(np.prod(shape)))) for name, shape in SHAPES.items()}
    state = None
    for number in range(STEPS):
        draw = torch.Generator().manual_seed(number)
        rows = {
            name: torch.randn(N, int(np.prod(shape)), generator=draw, dtype=torch.float64)
            for name, shape in SHAPES.items()
        }
        segments = [Segment(name, x.clone(), (SHAPES[name],)) for name, x in rows.items()]
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, number), communicator)
        for name, x in rows.items():
            p = DECAY * memory[name] + x.numpy()
            sent = np.stack([kept(row, name) for row in p])
            where = sent != 0
            if quantised:
                for row in sent:
                    row[row != 0] = in_bins(row[row != 0])
            memory[name] = p - sent
            divisor = np.maximum(where.sum(0), 1) if aggregation == "senders" else N
            np.testing.assert_allclose(reduced.mean[name].numpy(), sent.sum(0) / divisor, atol=1e-12)
            np.testing.assert_allclose(reduced.residual[name].numpy(), p - sent, atol=1e-12)


def test_bits_per_parameter() -> None:
    """64 of 4096 entries, 12 bits for an index and 2 for a value; the bins' means are metadata."""
    reducer = build_reducer(Chain(first=ChunkTopK(), second=BinMeans()), 2**14)
    communicator = Communicator(2)
    communicator.declare_kinds(reducer.kinds)
    segments = [Segment("matrix", torch.randn(2, 2**14), ((128, 128),))]
    reducer.reduce(inputs_of(segments), reducer.init(segments), Step(0, 0), communicator)
    charged = dict(zip(communicator.kinds, communicator.take_charges()[0], strict=True))
    assert 8 * (charged["indices"] + charged["levels"]) == 64 / 4096 * (12 + 2) * 2**14 == 0.21875 * 2**14
    assert charged["metadata"] == 4 * 4 and charged["values"] == charged["padding"] == 0
