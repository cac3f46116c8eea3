"""Encoded messages of a worker: round trips, bytes per kind, and refusal of damaged messages."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compressors.encoding.index_codes import BadMessageError, IndexCodes
from compressors.encoding.messages import Format, Parts, read, write
from compressors.encoding.settings import INDICES, VALUES, Encoding
from compressors.kernels.cpu.index_codes import CompiledIndexCodes

KERNELS = CompiledIndexCodes()
EDGES = np.array([0, 700, 700, 701, 1500])
# Positions and values are encoded independently: each code of one kind is tested with one code of the other
WIRES = [Encoding(indices="auto", values=v) for v in VALUES]
WIRES += [Encoding(indices=i, values="int8") for i in INDICES if i != "auto"]
LOST = {"int4": 0.3, "int2": 1.7}  # half of the distance between levels, for normal draws
every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: f"{wire.indices}-{wire.values}")


def form_of(wire: Encoding, codes: IndexCodes = KERNELS, edges: np.ndarray = EDGES) -> Format:
    return Format(wire, edges, torch.float32, codes)


def something(k: int, seed: int = 0, size: int = 1500) -> tuple[np.ndarray, Tensor]:
    stream = np.random.default_rng(seed)
    positions = np.sort(stream.choice(size, k, replace=False))
    return positions, torch.from_numpy(stream.standard_normal(k).astype(np.float32))


def joined(parts: Parts) -> np.ndarray:
    return np.concatenate([part for _, part in parts])


@every_wire
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("k", [0, 1, 40, 1500])
def test_there_and_back(wire: Encoding, k: int, dtype: torch.dtype) -> None:
    """Equal bytes of kernels and reference, which both read; what arrives is near the values."""
    positions, values = something(k)
    forms = [form_of(wire, codes)._replace(dtype=dtype) for codes in (KERNELS, IndexCodes())]
    (parts, arrive), (same, _) = (write(form, positions, values.to(dtype), False) for form in forms)
    assert np.array_equal(joined(parts), joined(same))
    for form in forms:
        where, what = read(form, joined(parts))
        assert np.array_equal(where, positions)
        assert what.dtype == arrive.dtype == dtype and torch.equal(what, arrive)
    if wire.rounds:
        torch.testing.assert_close(arrive.float(), values, rtol=0.01, atol=LOST.get(wire.values, 0.02))
    else:
        assert torch.equal(arrive, values.to(dtype))


def test_auto_takes_the_smallest() -> None:
    sizes = {}
    for k, indices in itertools.product((1, 20, 750), INDICES):
        parts, _ = write(form_of(Encoding(indices=indices)), *something(k), False)
        sizes[k, indices] = sum(part.nbytes for kind, part in parts if kind == "indices")
    for k in (1, 20, 750):
        assert sizes[k, "auto"] == min(sizes[k, indices] for indices in INDICES)
    assert sizes[20, "rice"] < sizes[20, "plain"] < sizes[20, "bitmap"]
    assert sizes[750, "bitmap"] < sizes[750, "rice"] < sizes[750, "plain"]


def test_bytes_of_each_kind() -> None:
    """40 entries in two of four layers: a head of 2 bytes and, for integers, a scale per non-empty layer."""
    positions, values = something(40)
    expected = {"fp32": 160, "bf16": 80, "fp16": 80, "int8": 40, "int4": 20, "int2": 10}
    for code, num_bytes in expected.items():
        parts, _ = write(form_of(Encoding(indices="plain", values=code)), positions, values, False)
        kinds = {
            kind: sum(p.nbytes for k, p in parts if k == kind) for kind in ("values", "indices", "metadata")
        }
        assert kinds == {
            "values": num_bytes,
            "indices": 160,
            "metadata": 2 + (8 if code.startswith("int") else 0),
        }


def test_drawn_positions_do_not_travel() -> None:
    positions, values = something(40)
    form = form_of(Encoding(indices="auto"))
    parts, _ = write(form, positions, values, True)
    assert sum(part.nbytes for _, part in parts) == 160 + 2
    where, what = read(form, joined(parts), positions)
    assert where is positions
    assert torch.equal(what, values)
    with pytest.raises(BadMessageError, match="announces 40 entries, 39 were drawn"):
        read(form, joined(parts), positions[:-1])
    with pytest.raises(BadMessageError, match="do not permit"):
        read(form, joined(parts))


def test_positions_beyond_two_to_the_31() -> None:
    edges = np.array([0, 2**31 + 100, 2**33])
    positions = np.array([0, 2**31 - 1, 2**31, 2**31 + 99, 2**31 + 100, 2**33 - 1])
    for indices, codes in itertools.product(("plain", "rice", "auto"), (KERNELS, IndexCodes())):
        form = form_of(Encoding(indices=indices), codes, edges)
        parts, _ = write(form, positions, torch.ones(6), False)
        assert np.array_equal(read(form, joined(parts))[0], positions)


@every_wire
def test_every_truncation_is_refused(wire: Encoding) -> None:
    parts, _ = write(form_of(wire), *something(60), False)
    message = joined(parts)
    for length in range(len(message)):
        with pytest.raises(BadMessageError):
            read(form_of(wire), message[:length])
    with pytest.raises(BadMessageError, match="has 1 bytes after its end"):
        read(form_of(wire), np.append(message, np.uint8(0)))


@every_wire
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_changed_bytes(wire: Encoding, data: st.DataObject) -> None:
    """After changed, added or lost bytes both decoders refuse, or both give the same valid entries.

    These are as many values as positions, which are in range and ascend.
    """
    k = data.draw(st.integers(0, 300))
    message = joined(write(form_of(wire), *something(k, data.draw(st.integers(0, 99))), False)[0]).copy()
    near_the_head = st.integers(0, min(len(message), 12) - 1) | st.integers(0, len(message) - 1)
    for place, value in data.draw(st.lists(st.tuples(near_the_head, st.integers(0, 255)), max_size=4)):
        message[place] = value
    extra = np.frombuffer(data.draw(st.binary(max_size=5)), dtype=np.uint8)
    message = np.concatenate([message, extra])[: data.draw(st.integers(0, 10**4))]
    outcomes = []
    for codes in (KERNELS, IndexCodes()):
        try:
            where, what = read(form_of(wire, codes), message)
        except BadMessageError:
            outcomes.append(None)
        else:
            assert len(where) == len(what) and (np.diff(where) > 0).all()
            assert len(where) == 0 or (where[0] >= 0 and where[-1] < EDGES[-1])
            outcomes.append((where.tolist(), what.view(torch.int32).tolist()))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("indices", "change", "reason"),
    [
        ("plain", lambda m: m[:0], "ends after 0 bytes, 1 too early"),
        ("plain", lambda m: [3, *m[1:]], "code is 3, which the settings do not permit"),
        ("plain", lambda m: [m[0], 255, 127, *m[2:]], "announces 16383 of 1500 elements"),
        ("plain", lambda m: [*m[:2], *m[6:10], *m[2:6], *m[10:]], "do not ascend"),
        ("rice", lambda m: [*m[:3], 60, *m[4:]], "more bits than any position"),
    ],
)
def test_lies(indices: str, change, reason: str) -> None:
    form = form_of(Encoding(indices=indices))
    message = joined(write(form, *something(20), False)[0])
    with pytest.raises(BadMessageError, match=reason):
        read(form, np.array(change(message), dtype=np.uint8))


def test_scales_are_checked() -> None:
    form = form_of(Encoding(indices="plain", values="int8"))
    parts, _ = write(form, np.array([5]), torch.tensor([3.0]), False)
    message = joined(parts)
    for scale, step, reason in [
        (-1.0, 127, "negative"),
        (np.inf, 127, "infinite"),
        (3e38, 127, "infinite"),
        (1.0, 128, "beyond its scale"),
    ]:
        bad = message.copy()
        bad[6:10] = np.frombuffer(np.float32(scale).tobytes(), dtype=np.uint8)
        bad[10] = step
        with pytest.raises(BadMessageError, match=reason):
            read(form, bad)
