"""Payload declarations: missing ones are refused, and bytes are counted by the declared kind."""

import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
import torch
from descriptions import facts_of
from methods import segment
from processes import run_in_processes
from signs import CODECS, ScaledSign, SignAbove, Signs, packed, train, unpacked
from skipping import STEPS
from torch import Tensor

from compressors.api import Codec, Step, Traits, inputs_of
from compressors.build import build_reducer
from compressors.chain import Chain
from compressors.core.fields import KINDS, Field
from compressors.core.payloads import Sparse
from compressors.encoding.settings import Encoding
from compressors.feedback import ErrorFeedback
from compressors.random_block import RandomBlock
from compressors.top_k import TopK
from trainers.checkpoint.files import read_checkpoint, step_folders, write_part
from trainers.checkpoint.redistribution import redistribute
from trainers.checkpoint.state import Snapshot, WorkerState
from trainers.comm.communicator import Communicator
from trainers.run.report import print_summary
from trainers.step.layout import Layout
from trainers.step.ledger import Ledger

D, W = 500, 4


class Undeclared(NamedTuple):
    values: Annotated[Tensor, Field("values", 1)]
    bits: Tensor


class Nothing(NamedTuple):
    values: Annotated[Tensor, "values"]


class Twice(NamedTuple):
    values: Annotated[Tensor, Field("values", 1), Field("signs")]


class Unnamed(NamedTuple):
    values: Annotated[Tensor, Field("Entropy Bound")]


class Clash(NamedTuple):
    values: Annotated[Tensor, Field("entropy_bound")]


class Odd(NamedTuple):
    values: Annotated[Tensor, Field("values", 0)]


def codec_of(payload: Any) -> Any:
    class Made(Codec):
        def encode(self, x: Tensor, step: Step) -> object:
            raise AssertionError("bytes are about to move")

    Made.payload = payload
    return Made()


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (Undeclared, "Undeclared.bits must be declared, as Annotated[Tensor, Field(KIND)] with the kind"),
        (Nothing, "Nothing.values must be declared, as Annotated[Tensor, Field(KIND)] with the kind"),
        (Twice, "Twice.values must be declared, as Annotated[Tensor, Field(KIND)] with the kind"),
        (Unnamed, "Unnamed.values must be of a kind in lower case, got Field(kind='Entropy Bound'"),
        (Clash, "Clash.values must be of a kind in lower case, got Field(kind='entropy_bound'"),
        (Odd, "Odd.values must have elements_per_entry >= 1 or None, got 0"),
        (dict, "a payload must be a NamedTuple of tensors, got dict"),
        (None, "Made.payload must be the class that encode returns, got None"),
    ],
)
def test_what_is_not_declared_is_refused_when_the_reducer_is_built(payload: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build_reducer(codec_of(payload), D)


@pytest.mark.parametrize("traits", [Traits(), Traits(linear=True)], ids=["gathered", "reduced"])
def test_a_codec_without_a_payload_is_refused(traits: Traits) -> None:
    bare = type("Bare", (Codec,), {"traits": traits})
    message = r"Bare\.payload must be the class that encode returns, got None"
    with pytest.raises(ValueError, match=message):
        build_reducer(bare(), D)


def test_another_payload_than_the_declared_one_is_refused_before_bytes_move() -> None:
    class Another(ScaledSign):
        payload = Sparse

    communicator = Communicator(W)
    rows = [segment(torch.ones(W, D))]
    with pytest.raises(
        ValueError, match=r"Another\.encode must return Another\.payload, which is Sparse, got Signs"
    ):
        build_reducer(Another(), D).reduce(inputs_of(rows), (), Step(0, 0), communicator)
    assert not communicator.take_charges().any()


def test_fields_of_different_lengths_are_refused_where_none_are_declared() -> None:
    class Short(ScaledSign):
        def encode(self, x: Tensor, step: Step) -> Signs:
            signs = super().encode(x, step)
            return signs._replace(scale=signs.scale.repeat(1 + step.worker % 2))

    communicator = Communicator(W)
    communicator.declare_kinds(("signs",))
    with pytest.raises(ValueError, match=r"Signs\.scale must have the same length on all workers"):
        build_reducer(Short(), D).reduce(inputs_of([segment(torch.ones(W, D))]), (), Step(0, 0), communicator)


def test_the_largest_number_sent_is_of_elements_whatever_their_fields_hold() -> None:
    """Elements of two segments, for the worker that sends most; a byte of the signs holds 8 elements."""
    rows = torch.zeros(2, 100)
    rows[0, :62] = rows[1, :47] = 1
    segments = [segment(rows.clone(), "a"), segment(rows.clone(), "b")]
    communicator = Communicator(2)
    communicator.declare_kinds(("signs",))
    build_reducer(SignAbove(threshold=0.5), 200).reduce(inputs_of(segments), (), Step(0, 0), communicator)
    assert communicator.take_largest_sent() == 2 * 62


def test_methods_that_need_one_value_an_element_say_so() -> None:
    with pytest.raises(
        ValueError, match="wire must be plain with ScaledSign: it does not send one value per"
    ):
        build_reducer(ScaledSign(), D, encoding=Encoding(indices="auto"))
    rule = r"Chain\.first must be a codec that sends one exact value per element, got 'ScaledSign'"
    with pytest.raises(ValueError, match=rule):
        Chain(first=ScaledSign(), second=TopK(density=0.5))
    rule = r"Chain\.second after RandomBlock must be a sparsifier, got 'ScaledSign'"
    with pytest.raises(ValueError, match=rule):  # the length of RandomBlock's block is not sent
        Chain(first=RandomBlock(density=0.5, shared_coordinates=False), second=ScaledSign())

    class Summed(ScaledSign):
        traits = Traits(linear=True)

    with pytest.raises(ValueError, match="AllReduce needs a codec that sends one field of values"):
        build_reducer(Summed(), D)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_a_sign_of_every_element_is_a_density_of_1_and_a_bit_each(scope: str) -> None:
    """Mean, total error and bytes against a computation by hand: ceil(d / 8) + 4 bytes per segment."""
    model = torch.nn.Linear(50, 9)
    layout, communicator = Layout(dict(model.named_parameters()), scope), Communicator(W)
    reducer = build_reducer(ScaledSign(), layout.num_parameters, ErrorFeedback)
    communicator.declare_kinds(reducer.kinds)
    ledger, size, state = Ledger(layout, communicator, reducer), layout.num_parameters, None
    residual, total = torch.zeros(W, size), 0.0
    pieces = [slice(0, 450), slice(450, 459)] if scope == "layer" else [slice(0, 459)]
    for step in range(3):
        flat = torch.randn(W, size, generator=torch.Generator().manual_seed(step))
        p = residual + flat
        sent = torch.cat([p[:, own].sign() * p[:, own].abs().mean(1, keepdim=True) for own in pieces], 1)
        residual = p - sent
        total += residual.double().square().sum(1).mean().item()
        segments = layout.segments(flat.clone())
        state = reducer.init(segments) if state is None else state
        reduced, state = reducer.reduce(inputs_of(segments), state, Step(0, step), communicator)
        torch.testing.assert_close(torch.cat(list(reduced.mean.values())), sent.mean(0))
        ledger.record(reduced)
        ledger.close_step()
    found = ledger.metrics()
    per_step = sum(-(-(own.stop - own.start) // 8) for own in pieces) + 4 * len(pieces)
    assert found["compression/density"] == found["compression/density_mean"] == 1
    assert found["compression/total_error"] == pytest.approx(total, rel=1e-5)
    assert found["comm/bytes_sent"] == per_step and found["comm/bytes_sent_total"] == 3 * per_step
    assert found["comm/link_bytes_sent_total"] == 3 * 3 * per_step
    assert found["comm/signs_bytes_total"] == 3 * (per_step - 4 * len(pieces))
    assert found["comm/metadata_bytes_total"] == 3 * 4 * len(pieces)
    assert found["comm/values_bytes_total"] == 0
    assert found["comm/bits_per_parameter"] == 8 * per_step / size < 1.3
    assert not found.keys() & {f"comm/{name}" for name in MEANINGLESS}
    assert all(layer["density_mean"] == 1 for layer in ledger.layers().values())


BUFFERS = ("running_scale", "norm.running_mean", "norm.running_var")  # differ between processes
MEANINGLESS = ("entropy_bound_bytes", "entropy_bound_bytes_total", "paper_bits_total")


@pytest.fixture(scope="module")
def one_process() -> dict[str, dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train(0, 1)
    torch.set_num_threads(threads)


def test_kinds_of_their_own_are_the_same_in_two_processes(one_process: dict[str, dict[str, Any]]) -> None:
    for result in run_in_processes(train, 2):
        for name, one in one_process.items():
            assert result[name]["records"] == one["records"]
            for key in result[name]["tensors"].keys() - {f"model/{buffer}" for buffer in BUFFERS}:
                assert torch.equal(result[name]["tensors"][key], one["tensors"][key]), key


@pytest.mark.parametrize("name", CODECS)
def test_kinds_of_its_own_in_a_training_and_for_other_workers(
    name: str, one_process: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    one = one_process[name]
    last = one["records"][-1]
    assert not last.keys() & {f"comm/{name}" for name in MEANINGLESS}
    by_kind = {kind: last[f"comm/{kind}_bytes_total"] for kind in (*KINDS, "signs")}
    assert sum(by_kind.values()) == last["comm/bytes_sent_total"]
    steps, elements, layers = last["step"], sum(one["sizes"]), len(one["sizes"])
    assert last["comm/bits_per_parameter"] == 8 * last["comm/bytes_sent_total"] / (steps * elements)
    assert one["summary"]["comm/bits_per_parameter"] == last["comm/bits_per_parameter"]
    informed = last["compression/density_mean"] * elements * steps
    if name == "scaled":
        assert informed == elements * steps
        assert by_kind["signs"] == steps * sum(-(-size // 8) for size in one["sizes"])
    else:
        assert 0 < informed < elements * steps
        assert by_kind["indices"] == pytest.approx(4 * informed)
        assert informed / 8 <= by_kind["signs"] < informed / 8 + steps * layers
        assert by_kind["metadata"] == steps * layers * (4 + 4)  # a count and a magnitude

    rows = torch.stack([one["tensors"][f"{worker}/ledger/total_bytes"] for worker in range(W)])
    assert rows.shape == (W, len(KINDS) + 1)
    workers = {w: WorkerState({"ledger/total_bytes": row}, {"list": []}) for w, row in enumerate(rows)}
    write_part(tmp_path, Snapshot({}, workers, facts_of(STEPS, W)), "run", 0, 1)
    two = redistribute(read_checkpoint(step_folders(tmp_path)[0]), range(2), 2, STEPS).workers
    torch.testing.assert_close(two[1].tensors["ledger/total_bytes"], rows[2:].mean(0))


def test_packed_signs_come_back() -> None:
    for size in (1, 7, 8, 9, 33):
        x = torch.randn(size)
        assert torch.equal(unpacked(packed(x), size), x.sign())
        assert len(packed(x)) == -(-size // 8)


@pytest.mark.parametrize("method", [TopK(density=0.5), SignAbove(threshold=0.1)], ids=["values", "signs"])
def test_a_total_that_has_no_meaning_is_absent(method: Codec) -> None:
    layout, communicator = Layout(dict(torch.nn.Linear(4, 1).named_parameters()), "global"), Communicator(2)
    reducer = build_reducer(method, 5)
    communicator.declare_kinds(reducer.kinds)
    ledger = Ledger(layout, communicator, reducer)
    for _ in range(2):
        segments = layout.segments(torch.ones(2, 5))
        ledger.record(reducer.reduce(inputs_of(segments), (), Step(0, 0), communicator)[0])
        ledger.close_step()
    known = {name for name in MEANINGLESS if f"comm/{name}" in ledger.metrics()}
    assert known == (set(MEANINGLESS) if method.traits.exact else set())


@pytest.mark.parametrize("values", ["fp32", "bf16", "int8"])
def test_the_paper_counts_no_rounded_values(values: str) -> None:
    """The paper counts 32 bits per value, so its total needs fp32; the entropy bound exists for all codes."""
    layout, communicator = Layout(dict(torch.nn.Linear(40, 1).named_parameters()), "global"), Communicator(2)
    reducer = build_reducer(TopK(density=0.5), 41, encoding=Encoding(indices="auto", values=values))
    ledger = Ledger(layout, communicator, reducer)
    reduced, _ = reducer.reduce(inputs_of(layout.segments(torch.randn(2, 41))), (), Step(0, 0), communicator)
    ledger.record(reduced)
    ledger.close_step()
    found = ledger.metrics()
    assert ("comm/paper_bits_total" in found) == (values == "fp32")
    assert 0 < found["comm/entropy_bound_bytes"] < found["comm/bytes_sent"]


def test_the_summary_names_a_kind_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    summary = {
        "comm/values_bytes_total": 0.0,
        "comm/metadata_bytes_total": 8.0,
        "comm/signs_bytes_total": 70.0,
    }
    others = {"comm/entropy_bound_bytes_total": 3.0, "comm/link_bytes_sent_total": 4.0}
    print_summary({**summary, **others, "comm/bits_per_parameter": 1.0625, "step": 3})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["signs", "70"] in lines and not any("entropy" in line for line in lines)
    assert lines.index(["metadata", "8"]) + 1 == lines.index(["signs", "70"])
    assert ["bits", "handed", "over", "per", "step", "and", "parameter", "1.062"] in lines
