"""Deltas between versions of weights: exact round trips, refused bases, files, folders, the command."""

import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command_line import command
from random_damage import DAMAGE, damage
from results_commands import command_of_results
from safetensors.torch import load_file, save_file
from torch import Tensor

from total_error.deltas import Delta, DeltaError, DeltaReader, DeltaWriter, as_seen, encode, fingerprint
from trainers.deltas.__main__ import compare

FLOATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
Weights = dict[str, Tensor]


def weights(seed: int = 0) -> Weights:
    """Tensors of every dtype, with special numbers, without elements, without dimensions, not contiguous."""
    draw = torch.Generator().manual_seed(seed)
    special = [torch.nan, -torch.nan, torch.inf, -torch.inf, 0.0, -0.0]
    found = {}
    for dtype in FLOATS:
        own = torch.randn(40, 30, generator=draw).to(dtype)
        own.view(-1)[:6] = torch.tensor(special).to(dtype)
        found[f"{dtype}"] = own
    for dtype in INTEGERS:
        found[f"{dtype}"] = torch.randint(0, 100, (1000,), generator=draw).to(dtype)
    found["bool"] = torch.rand(900, generator=draw) < 0.5
    found["complex"] = torch.randn(50, dtype=torch.complex64, generator=draw)
    found["scalar"] = torch.tensor(3.5, dtype=torch.bfloat16)
    found["empty"] = torch.empty(0, 4)
    found["columns"] = torch.randn(20, 30, generator=draw).T
    return found


def bits_of(tensor: Tensor) -> Tensor:
    """The bytes of every element, [number of elements, bytes of one]; they may share memory."""
    return tensor.contiguous().view(-1).view(torch.uint8).view(tensor.numel(), tensor.itemsize)


def moved(old: Weights, seed: int = 1) -> Weights:
    """``old`` with every 13th element from other weights, and the special numbers reversed."""
    new, others = {name: x.contiguous().clone() for name, x in old.items()}, weights(seed)
    for name, x in new.items():
        bits_of(x)[::13] = bits_of(others[name])[::13]
        if x.is_floating_point() and x.dim():
            bits_of(x)[:6] = bits_of(old[name])[:6].flip(0)
    return new


def assert_same(found: Weights, expected: Weights) -> None:
    """Names, dtypes, shapes and bits; ``torch.equal`` holds 0.0 and -0.0 for equal, and NaN for different."""
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        own = found[name]
        assert own.dtype == x.dtype and own.shape == x.shape, name
        assert torch.equal(bits_of(own), bits_of(x)), name


def test_a_delta_is_exact(tmp_path: Path) -> None:
    old = weights()
    new = moved(old)
    kept = {name: x.clone() for name, x in old.items()}
    delta = encode(old, new)
    delta.save(tmp_path / "delta.safetensors")
    loaded = Delta.load(tmp_path / "delta.safetensors")
    for own in (delta, loaded):
        assert_same(own.apply(old), new)
    assert_same(old, kept)
    assert delta.num_bytes == loaded.num_bytes < 0.5 * sum(x.nbytes for x in new.values())
    assert 0.05 < delta.density == loaded.density < 1 / 12


def test_zero_and_minus_zero_are_two_numbers() -> None:
    old = {"x": torch.tensor([0.0, -0.0, torch.nan, 1.0] * 50, dtype=torch.bfloat16)}
    new = {"x": torch.tensor([-0.0, -0.0, torch.nan, 1.0] * 50, dtype=torch.bfloat16)}
    delta = encode(old, new)
    assert delta.num_changed == 50 and not delta.whole
    assert_same(delta.apply(old), new)


def test_tensors_come_and_go_and_change_their_form() -> None:
    old = {"stays": torch.ones(9), "goes": torch.ones(3), "shape": torch.ones(6), "dtype": torch.ones(4)}
    new = {
        "stays": torch.ones(9),
        "comes": torch.zeros(2),
        "shape": torch.ones(2, 3),
        "dtype": torch.ones(4).half(),
    }
    delta = encode(old, new)
    assert (
        delta.removed == ("goes",) and set(delta.whole) == {"comes", "shape", "dtype"} and not delta.changed
    )
    assert_same(delta.apply(old), new)
    nothing = encode(new, new)
    assert nothing.num_bytes == nothing.num_changed == 0
    assert_same(nothing.apply(new), new)
    assert_same(encode({}, new).apply({}), new)
    assert_same(encode(new, {}).apply(new), {})


def test_a_delta_is_never_larger_than_the_weights() -> None:
    draw = torch.Generator().manual_seed(0)
    old, new = ({"x": torch.randint(-(2**63), 2**63 - 1, (5000,), generator=draw)} for _ in range(2))
    delta = encode(old, new)
    assert delta.num_bytes == new["x"].nbytes and delta.density == 1
    assert_same(delta.apply(old), new)


def test_weights_as_seen_in_bfloat16() -> None:
    """A small step changes all of the fp32 numbers, and few of the bf16 numbers."""
    draw = torch.Generator().manual_seed(0)
    old = {
        "x": 0.02 * torch.randn(20_000, generator=draw),
        "counts": torch.arange(5),
        "half": torch.ones(3).half(),
    }
    new = old | {"x": old["x"] - 1e-6 * torch.randn(20_000, generator=draw)}
    delta = encode(old, new, dtype=torch.bfloat16)
    assert delta.density < 0.06 < encode(old, new).density
    assert delta.num_bytes < 2 * 20_000 / 20
    seen = as_seen(old, torch.bfloat16)
    assert [x.dtype for x in seen.values()] == [torch.bfloat16, torch.int64, torch.float16]
    assert_same(delta.apply(seen), as_seen(new, torch.bfloat16))
    with pytest.raises(DeltaError, match="must have the fingerprint"):
        delta.apply(old)


def test_a_step_after_encode_changes_no_delta(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 8)
    old = {"weight": torch.ones(3)}  # of another shape; the bias is new
    expected = {name: x.clone() for name, x in model.state_dict().items()}
    delta = encode(old, model.state_dict())
    assert set(delta.whole) == {"weight", "bias"}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    delta.save(tmp_path / "delta.safetensors")
    for own in (delta, Delta.load(tmp_path / "delta.safetensors")):
        assert_same(own.apply(old), expected)


def test_a_delta_has_tied_weights_under_both_names(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model[1].weight = model[0].weight
    delta = encode({}, model.state_dict())
    delta.save(tmp_path / "delta.safetensors")
    assert_same(Delta.load(tmp_path / "delta.safetensors").apply({}), model.state_dict())


@pytest.mark.parametrize("change", ["bit", "name", "shape", "dtype", "more"])
def test_another_base_is_refused(change: str) -> None:
    old = {"x": torch.ones(4), "y": torch.zeros(4)}
    delta = encode(old, {"x": torch.ones(4), "y": torch.ones(4)})
    others = {
        "bit": {"x": torch.ones(4), "y": torch.tensor([0.0, 0.0, 0.0, -0.0])},
        "name": {"x": torch.ones(4), "z": torch.zeros(4)},
        "shape": {"x": torch.ones(4), "y": torch.zeros(2, 2)},
        "dtype": {"x": torch.ones(4), "y": torch.zeros(4, dtype=torch.int32)},
        "more": {**old, "z": torch.ones(1)},
    }
    with pytest.raises(
        DeltaError, match=f"^the base of this delta must have the fingerprint {fingerprint(old)}, got"
    ):
        delta.apply(others[change])


def test_tensors_that_are_not_plain_and_an_integer_dtype_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^x must be a plain dense tensor: gather a sharded one first, got 'Tensor'$"
    ):
        encode({}, {"x": torch.ones(2, 2).to_sparse()})
    with pytest.raises(ValueError, match=r"^dtype must be a floating-point dtype or None, got torch\.int8$"):
        encode({}, {}, dtype=torch.int8)
    with pytest.raises(ValueError, match=r"^x must be of a dtype that safetensors has, got torch"):
        encode({}, {"x": torch.ones(2, dtype=torch.complex128)})
    conjugate = torch.complex(torch.ones(2), torch.ones(2)).conj()
    delta = encode({}, {"x": conjugate})
    assert torch.equal(delta.apply_to({}, delta.base)["x"], conjugate)


def test_a_reader_follows_a_writer(tmp_path: Path) -> None:
    """Through anchors, a second writer, deleted files and a damaged copy of its own."""
    versions = [weights()]
    for seed in range(1, 8):
        versions.append(moved(versions[-1], seed))
    writer, reader = DeltaWriter(tmp_path, anchor_every=3), DeltaReader(tmp_path)
    with pytest.raises(FileNotFoundError, match="no whole version of weights in"):
        reader.read()
    for number, version in enumerate(versions[:5]):
        written = writer.write(version)
        assert written.number == number and written.is_anchor == (number % 3 == 0)
        whole = {name: x.nbytes for name, x in version.items()}
        assert written.whole_bytes == sum(whole.values())
        changed = reader.read()
        assert ("empty" in changed) == (number == 0) and "torch.bfloat16" in changed
        assert reader.number == number and reader.read() == set()
        assert_same(reader.tensors, version)
        assert 0 < written.delta_bytes < 0.6 * written.whole_bytes or number == 0
    assert_same(load_file(tmp_path / "000000003.whole.safetensors"), as_seen(versions[3]))
    late = DeltaReader(tmp_path)
    assert late.read() == set(versions[4])
    assert_same(late.tensors, versions[4])
    writer = DeltaWriter(tmp_path, anchor_every=3)
    assert writer.write(versions[5]).is_anchor
    writer.write(versions[6])
    for path in tmp_path.glob("00000000[0-3].*"):
        path.unlink()
    for own in (reader, DeltaReader(tmp_path)):
        own.read()
        assert own.number == 6
        assert_same(own.tensors, versions[6])
    (tmp_path / "000000006.delta.safetensors").unlink()
    writer.write(versions[7])
    with pytest.raises(DeltaError, match=r"000000006\.delta\.safetensors is missing$"):
        DeltaReader(tmp_path).read()
    reader.read()
    assert_same(reader.tensors, versions[7])


def write_versions(folder: Path, num_versions: int, seed: int, anchor_every: int = 50) -> list[Weights]:
    """Versions of one training."""
    versions, writer = [weights(seed)], DeltaWriter(folder, anchor_every=anchor_every)
    while len(versions) < num_versions:
        versions.append(moved(versions[-1], seed + len(versions)))
    for version in versions:
        writer.write(version)
    return versions


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize("num_before", [1, 3])
@pytest.mark.parametrize(("num_after", "num_deleted"), [(1, 0), (2, 0), (3, 0), (4, 0), (6, 0), (6, 3)])
def test_a_reader_notices_another_training_in_its_folder(
    num_before: int, num_after: int, num_deleted: int, tmp_path: Path
) -> None:
    """With fewer, as many and more versions, and without those before a whole one."""
    write_versions(tmp_path, num_before, seed=0)
    reader = DeltaReader(tmp_path)
    reader.read()
    empty(tmp_path)
    with pytest.raises(FileNotFoundError, match="no whole version of weights in"):
        reader.read()
    versions = write_versions(tmp_path, num_after, seed=100, anchor_every=3)
    for number in range(num_deleted):
        for path in tmp_path.glob(f"{number:09d}.*"):
            path.unlink()
    assert reader.read() == set(versions[-1]) and reader.number == num_after - 1
    assert_same(reader.tensors, versions[-1])
    assert reader.read() == set()


@pytest.mark.parametrize("num_before", [2, 3])
def test_a_damaged_file_of_another_training_is_refused(num_before: int, tmp_path: Path) -> None:
    """The file of the version in memory, and one after it."""
    old = write_versions(tmp_path, num_before, seed=0)
    reader = DeltaReader(tmp_path)
    reader.read()
    empty(tmp_path)
    new = write_versions(tmp_path, 3, seed=100)
    path = tmp_path / "000000002.delta.safetensors"
    content = path.read_bytes()
    damage(path, "zeros", 0)
    said = refusal(reader)
    assert said is not None and path.name in said and reader.number == num_before - 1
    assert_same(reader.tensors, old[-1])
    path.write_bytes(content)
    reader.read()
    assert_same(reader.tensors, new[-1])


def test_no_damaged_file_passes_for_another_training(tmp_path: Path) -> None:
    """A whole version after the damaged file is no way around it."""
    versions = write_versions(tmp_path, 2, seed=0, anchor_every=3)
    reader = DeltaReader(tmp_path)
    reader.read()
    empty(tmp_path)
    write_versions(tmp_path, 5, seed=0, anchor_every=3)  # the same training again
    own, following = (tmp_path / f"00000000{number}.delta.safetensors" for number in (1, 2))
    content = own.read_bytes()
    own.write_bytes(content[:-1])
    said = refusal(reader)
    assert said is not None and own.name in said
    own.write_bytes(content)
    replace(Delta.load(following), base="0" * 32).save(following)
    said = refusal(reader)
    assert said is not None and following.name in said and "must have the fingerprint" in said
    assert reader.number == 1
    assert_same(reader.tensors, versions[-1])


def test_the_model_that_is_trained_on_changes_no_version(tmp_path: Path) -> None:
    model = torch.nn.Linear(30, 20)
    writer, reader = DeltaWriter(tmp_path, dtype=torch.bfloat16), DeltaReader(tmp_path)
    for _ in range(3):
        writer.write(model.state_dict())
        reader.read()
        assert_same(reader.tensors, as_seen(model.state_dict(), torch.bfloat16))
        with torch.no_grad():
            model.weight[:5].add_(1)


def test_a_write_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error the next delta still begins at the last version that is there."""
    versions = [weights()]
    versions += [moved(versions[0]), moved(versions[0], 2)]
    writer, reader = DeltaWriter(tmp_path), DeltaReader(tmp_path)
    writer.write(versions[0])
    with monkeypatch.context() as patch:
        patch.setattr("trainers.files.atomic.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            writer.write(versions[1])
    assert [path.name for path in tmp_path.iterdir()] == ["000000000.whole.safetensors"]
    assert writer.write(versions[2]).number == 1
    reader.read()
    assert_same(reader.tensors, versions[2])


DYING = """
import os, signal, sys
from trainers.files import atomic
from total_error.deltas import DeltaReader, DeltaWriter

folder, kind = sys.argv[1:]
reader, writer = DeltaReader(folder), DeltaWriter(folder)
reader.read()
writer.write(reader.tensors)
reader.tensors["scalar"] += 1
kill = lambda _: os.kill(os.getpid(), signal.SIGKILL)
atomic.os.fsync = kill
(writer if kind == "delta" else DeltaWriter(folder)).write(reader.tensors)
"""


@pytest.mark.parametrize("kind", ["delta", "whole"])
def test_a_kill_during_a_write_leaves_the_version_before(kind: str, tmp_path: Path) -> None:
    expected = weights()
    DeltaWriter(tmp_path).write(expected)
    (tmp_path / "dying.py").write_text(DYING)
    done = command(str(tmp_path), kind, script=str(tmp_path / "dying.py"), OMP_NUM_THREADS="1")
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (tmp_path / f"000000002.{kind}.safetensors.partial").is_file()
    reader = DeltaReader(tmp_path)
    reader.read()
    assert reader.number == 1
    assert_same(reader.tensors, expected)
    DeltaWriter(tmp_path).write(moved(expected))
    reader.read()
    assert_same(reader.tensors, moved(expected))


@pytest.mark.parametrize("file", ["000000000.whole.safetensors", "000000001.delta.safetensors"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_refused_in_a_line(file: str, kind: str, tmp_path: Path) -> None:
    versions = [weights(), moved(weights())]
    writer = DeltaWriter(tmp_path)
    for version in versions:
        writer.write(version)
    content, refused = (tmp_path / file).read_bytes(), 0
    for seed in range(12):
        (tmp_path / file).write_bytes(content)
        damage(tmp_path / file, kind, seed)
        reader = DeltaReader(tmp_path)
        said = refusal(reader)
        if said is None:  # of a fact that is only told
            assert_same(reader.tensors, versions[1])
        else:
            refused += 1
            assert file in said and "\n" not in said
            assert reader.number is None and reader.tensors == {}
    assert refused > 6


def refusal(reader: DeltaReader) -> str | None:
    """The message of the error of ``reader.read()``, if there is one."""
    try:
        reader.read()
    except DeltaError as error:
        return str(error)
    return None


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"x": torch.ones(2)}, path)
    with pytest.raises(DeltaError, match=r"x\.safetensors is not a delta$"):
        Delta.load(path)


@pytest.mark.parametrize("every", [0, 1.5, True, "3"])
def test_a_wrong_number_of_versions_is_refused(every: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^DeltaWriter\.anchor_every must be a whole number >= 1, got"):
        DeltaWriter(tmp_path, anchor_every=every)


def test_without_safetensors_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "total_error.deltas")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    said = r"^total_error\.deltas needs safetensors, which is not installed: pip install -e '\.\[deltas\]'$"
    with pytest.raises(ImportError, match=said):
        import total_error.deltas  # noqa: F401


def test_the_command_tells_the_bytes_of_a_delta(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = torch.Generator().manual_seed(0)
    old = {f"layers.{i}.weight": 0.02 * torch.randn(100, 50, generator=draw) for i in range(3)}
    new = {name: x - 1e-6 * torch.randn(100, 50, generator=draw) for name, x in old.items()}
    (tmp_path / "new").mkdir()
    save_file(old | {"head.bias": torch.ones(3)}, tmp_path / "old.safetensors")
    save_file(dict([*new.items()][:2]), tmp_path / "new/one.safetensors")
    save_file(dict([*new.items()][2:]) | {"added": torch.ones(7)}, tmp_path / "new/two.safetensors")
    words = ["deltas", str(tmp_path / "old.safetensors"), str(tmp_path / "new"), "--dtype", "bfloat16"]
    main = command_of_results()
    assert main(words) == 0
    delta = encode(old | {"head.bias": torch.ones(3)}, new | {"added": torch.ones(7)}, dtype=torch.bfloat16)
    head, _, layers, added, total, _, removed = capsys.readouterr().out.splitlines()
    assert head.startswith("| group | tensors | entries | changed | whole, bytes | delta, bytes |")
    message_bytes = sum(message.nbytes for message in delta.changed.values())
    assert (
        layers.startswith("| `layers.*.weight` | 3 | 15,000 | 3.")
        and f"| 30,000 | {message_bytes:,} |" in layers
    )
    assert added == "| `added` | 1 | 7 | 100.00% | 14 | 14 | 1.0 |"
    assert f"| {delta.density:.2%} | 30,014 | {delta.num_bytes:,} |" in total
    assert removed == "removed: `head.bias`"
    save_file({"added": torch.ones(7)}, tmp_path / "new/one.safetensors")
    with pytest.raises(ValueError, match=r"two\.safetensors: added is in another file of the folder too"):
        compare(words[1], words[2], None)
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="no safetensors file in"):
        compare(words[1], str(tmp_path / "none"), None)
    (tmp_path / "none/x.safetensors").write_text("text")
    with pytest.raises(ValueError, match=r"x\.safetensors is not a safetensors file"):
        compare(words[1], str(tmp_path / "none"), None)
