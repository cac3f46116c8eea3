"""Logistic regression with L2: gradients against autograd, diagnostics, the cached x*, refusals."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from libsvm_files import write_rows
from scipy.sparse import issparse

from compressors.core.randomness import generator
from data.convex import libsvm as libsvm_module
from data.convex import rows as rows_module
from data.convex.libsvm import libsvm
from models.convex import kept_optimum
from models.convex.logistic_l2 import logistic_l2
from models.convex.optimum import LogisticObjective, is_optimum


def build(tmp_path: Path, rows: int = 40, density: float = 1.0, data: dict | None = None, **settings):
    """(dataset, model) from a small file."""
    write_rows(tmp_path, "few", rows, 6, density=density)
    dataset = libsvm(name="few", root=str(tmp_path), **(data or {}))
    return dataset, logistic_l2(**dataset.model_arguments(), **settings)


@pytest.mark.parametrize("density", [1.0, 0.1])
@pytest.mark.parametrize("data", [{}, {"partition": "dirichlet", "alpha": 0.5}], ids=["even", "uneven"])
@pytest.mark.parametrize(("workers", "features", "batch_size"), [(12, 37, None), (20, 37, 3), (12, 1, 1)])
def test_bits_do_not_depend_on_who_else_is_in_the_process(
    tmp_path: Path, density: float, workers: int, features: int, batch_size: int | None, data: dict
) -> None:
    """A BLAS rounds depending on the shape, so each worker's product must have only its own shape."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    write_rows(tmp_path, "few", 300, features, density=density)
    dataset = libsvm(name="few", root=str(tmp_path), replacement=True, **data)
    model = logistic_l2(**dataset.model_arguments(), offset=0.3)
    together = torch.zeros(workers, features, dtype=torch.float64)
    loader = dataset.loader(workers, range(workers), batch_size, partial(generator, 1))
    all_losses = model.worker_gradients(loader.batches(0), together, True)
    for size in (s for s in (1, 2, workers // 2) if workers % s == 0):
        for start in range(0, workers, size):
            part = dataset.loader(workers, range(start, start + size), batch_size, partial(generator, 1))
            alone = torch.zeros(size, features, dtype=torch.float64)
            losses = model.worker_gradients(part.batches(0), alone, True)
            assert torch.equal(alone, together[start : start + size]), (size, start)
            assert torch.equal(losses, all_losses[start : start + size]), (size, start)
    torch.set_num_threads(threads)


def test_texts_with_many_features_stay_sparse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of RCV1's width and density: optimum and gradients of shards and batches need no dense table."""
    rng, folder = np.random.default_rng(3), tmp_path / "libsvm"
    folder.mkdir()
    lines = []
    for _ in range(100):
        indices = np.sort(rng.choice(47236, 76, replace=False)) + 1
        values = rng.random(76)
        pairs = zip(indices, values / np.linalg.norm(values), strict=True)
        lines.append(f"{rng.choice((-1, 1))} " + " ".join(f"{i}:{v:.6f}" for i, v in pairs))
    (folder / "rcv1_train.binary").write_text("\n".join([*lines, "1 47236:1"]) + "\n")
    monkeypatch.setitem(libsvm_module.SHAPES, "rcv1_train.binary", (101, 47236))

    def require_few(name: str, value: object, num_bytes: int) -> None:
        assert num_bytes <= 20 * 8 * 47236  # 20 of 101 rows

    monkeypatch.setattr(rows_module, "require_memory", require_few)
    dataset = libsvm(name="rcv1_train.binary", root=str(tmp_path))
    model = logistic_l2(**dataset.model_arguments(), l2=0.01, offset=1e-3)
    assert issparse(model.problem.features)
    objective = LogisticObjective(model.problem.features, model.problem.weights.numpy(), model.l2)
    assert is_optimum(objective, model.optimum.numpy(), model.smoothness)
    out = torch.zeros(20, 47236, dtype=torch.float64)
    whole = dataset.loader(20, range(20), None, partial(generator, 1))
    assert issparse(whole.batches(0).features)
    model.worker_gradients(whole.batches(0), out)
    expected = objective.gradient(model.weight.detach().numpy())
    torch.testing.assert_close(out.mean(0), torch.from_numpy(expected), rtol=1e-9, atol=1e-12)
    batches = dataset.loader(20, range(20), 1, partial(generator, 1))
    model.worker_gradients(batches.batches(0), out)
    x, rows = model.weight.detach(), batches._indices(0)
    for worker in (0, 19):
        row = torch.from_numpy(dataset.features[rows[worker]].toarray()[0]) * -dataset.labels[rows[worker]]
        expected = torch.sigmoid(row @ x) * row * batches._weights[worker] + model.l2 * x
        torch.testing.assert_close(out[worker], expected, rtol=1e-10, atol=1e-14)


def test_diagnostics_at_the_start_and_at_the_optimum(tmp_path: Path) -> None:
    _, model = build(tmp_path, offset=0.5)
    found = model.diagnostics()
    assert found["convex/distance_squared"] == pytest.approx(6 * 0.25)
    assert found["convex/suboptimality"] == pytest.approx(model.facts()["start_value"] - model.optimum_value)
    with torch.no_grad():
        model.weight.copy_(model.optimum)
    at_optimum = model.diagnostics()
    assert at_optimum["convex/suboptimality"] == pytest.approx(0, abs=1e-15)
    assert at_optimum["convex/distance_squared"] == 0


def test_constants_follow_the_papers_rules(tmp_path: Path) -> None:
    dataset, model = build(tmp_path)
    features = dataset.features.toarray()
    smoothness = np.linalg.norm(features, 2) ** 2 / (4 * len(features))
    assert model.smoothness == pytest.approx(smoothness, rel=1e-12)
    assert model.l2 == model.smoothness / 10000
    assert model.step_size == 1 / (model.smoothness + model.l2)
    assert model.weight.dtype == torch.float64
    assert model.weight.detach().tolist() == [0.0] * 6
    assert build(tmp_path, l2=0.5)[1].l2 == 0.5


def test_optimum_is_found_once_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path)[1]
    (kept,) = (tmp_path / "optima").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(kept_optimum, "minimise", None)  # would fail
        again = build(tmp_path)[1]
    assert torch.equal(first.optimum, again.optimum)
    assert (first.optimum_value, first.smoothness, first.l2) == (
        again.optimum_value,
        again.smoothness,
        again.l2,
    )
    kept.write_bytes(kept.read_bytes()[:100])  # damaged: computed again
    assert torch.equal(build(tmp_path)[1].optimum, first.optimum)


def test_what_is_kept_is_not_believed_if_it_is_no_optimum(tmp_path: Path) -> None:
    first = build(tmp_path)[1]
    (kept,) = (tmp_path / "optima").iterdir()
    np.savez(kept, x=first.optimum.numpy() + 0.1)
    assert torch.equal(build(tmp_path)[1].optimum, first.optimum)
    np.savez(kept, x=first.optimum.numpy()[:3], smoothness=1e15, l2=3.0)
    again = build(tmp_path)[1]
    assert torch.equal(again.optimum, first.optimum)
    assert (again.smoothness, again.l2) == (first.smoothness, first.l2)


def test_no_damage_to_what_is_kept_does_harm(tmp_path: Path) -> None:
    first = build(tmp_path)[1]
    (kept,) = (tmp_path / "optima").iterdir()
    whole = kept.read_bytes()
    for position in range(0, len(whole), 31):
        kept.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        model = build(tmp_path)[1]
        torch.testing.assert_close(model.optimum, first.optimum, rtol=1e-10, atol=1e-12)


def test_a_folder_that_cannot_be_written_costs_time_only(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "optima").write_text("in the way")
    assert build(tmp_path)[1].optimum_value > 0
    assert "note: x* was not saved for the next run" in capsys.readouterr().err


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings, message in (
        ({"l2": -1.0}, r"model\.l2 must be a finite number >= 0, or null, got -1\.0"),
        ({"l2": float("nan")}, r"model\.l2"),
        ({"l2": "1"}, r"model\.l2"),
        ({"offset": float("inf")}, r"model\.offset must be a finite number, or null, got inf"),
        ({"offset": True}, r"model\.offset"),
        ({"shift": 1}, r"model\.shift must be true or false, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            build(tmp_path, **settings)
    build(tmp_path)  # rows are checked also with a cached optimum
    monkeypatch.setitem(kept_optimum.SMOOTHNESS, "few", 3.0)
    with pytest.raises(ValueError, match=r"these rows are not few's: L is .*, that of few is 3"):
        build(tmp_path)


def test_separable_rows_without_l2_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "libsvm"
    folder.mkdir()
    (folder / "apart").write_text("".join(f"{s} 1:{s * (1 + i)} 2:{i}\n" for i in range(5) for s in (-1, 1)))
    dataset = libsvm(name="apart", root=str(tmp_path))
    with pytest.raises(ValueError, match="no unique minimum"):
        logistic_l2(**dataset.model_arguments(), l2=0.0)
    assert logistic_l2(**dataset.model_arguments()).optimum_value > 0


@pytest.mark.parametrize(("value", "message"), [("0", "all zero"), ("1e200", "too large: L is not finite")])
def test_features_that_leave_no_step_size_are_refused(tmp_path: Path, value: str, message: str) -> None:
    folder = tmp_path / "libsvm"
    folder.mkdir()
    (folder / "extreme").write_text(f"1 1:{value} 2:{value}\n-1 1:{value}\n" * 20)
    dataset = libsvm(name="extreme", root=str(tmp_path))
    with pytest.raises(ValueError, match=f"the features of extreme are {message}"):
        logistic_l2(**dataset.model_arguments())
