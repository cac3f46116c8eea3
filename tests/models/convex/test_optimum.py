"""The minimum of logistic regression, refusal of problems without a unique minimum, and singular values."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from models.convex.optimum import LogisticObjective, is_optimum, largest_singular_value, minimise


def problem(
    rows: int = 60, features: int = 4, l2: float = 1e-3, scale: float = 1.0, sparse: bool = False
) -> LogisticObjective:
    rng = np.random.default_rng(0)
    table = scale * rng.standard_normal((rows, features))
    signs = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    signed = -table * signs[:, None]
    return LogisticObjective(csr_matrix(signed) if sparse else signed, np.full(rows, 1 / rows), l2)


def smoothness_of(objective: LogisticObjective) -> float:
    return largest_singular_value(objective.rows) ** 2 / (4 * len(objective.weights))


def test_value_and_gradient_by_hand() -> None:
    objective = LogisticObjective(np.array([[-2.0, 0.0], [1.0, 1.0]]), np.array([0.5, 0.5]), 0.5)
    x = np.array([1.0, -1.0])
    assert objective.value(x) == pytest.approx((np.log1p(np.exp(-2)) + np.log(2)) / 2 + 0.25 * 2)
    small = 1e-6
    numeric = [(objective.value(x + d) - objective.value(x - d)) / (2 * small) for d in small * np.eye(2)]
    assert objective.gradient(x) == pytest.approx(numeric, abs=1e-9)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("direct", [True, False])
def test_gradient_vanishes_at_the_optimum(sparse: bool, scale: float, direct: bool, monkeypatch) -> None:
    if not direct:
        monkeypatch.setattr("models.convex.optimum._DIRECT", 0)  # selects conjugate gradients
    objective = problem(scale=scale, l2=1e-3 * scale**2, sparse=sparse)
    smoothness = smoothness_of(objective)
    x = minimise(objective, smoothness)
    assert np.linalg.norm(objective.gradient(x)) <= 1e-12 * smoothness / scale  # the bound for L = 1
    rng = np.random.default_rng(1)
    for _ in range(20):
        assert objective.value(x + rng.standard_normal(4) / scale * 1e-3) > objective.value(x)


def test_agrees_with_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    objective = problem(l2=0.01)
    found = minimise(objective, smoothness_of(objective))
    labels = np.ones(60)
    labels[:30] = -1
    features = -objective.rows * labels[:, None]
    reference = LogisticRegression(C=1 / (0.01 * 60), fit_intercept=False, tol=1e-12, max_iter=10000).fit(
        features, labels
    )
    assert found == pytest.approx(reference.coef_[0], rel=1e-5)


def test_without_regulariser_where_the_minimum_is_attained() -> None:
    objective = problem(l2=0.0)
    x = minimise(objective, smoothness_of(objective))
    assert np.linalg.norm(objective.gradient(x)) <= 1e-12 * smoothness_of(objective)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(
    "kind", ["separable", "dependent", "more features than rows", "almost unregularised"]
)
def test_no_unique_minimum_is_said(kind: str, direct: bool, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    table, l2 = rng.standard_normal((50, 3)), 0.0
    signs = np.where(rng.random(50) < 0.5, 1.0, -1.0)
    if kind in ("separable", "almost unregularised"):
        signs = np.sign(table @ np.array([1.0, 2.0, 3.0]))
        l2 = 1e-300 if kind == "almost unregularised" else 0.0
    elif kind == "dependent":
        table[:, 2] = table[:, 0] + table[:, 1]
    else:
        table, signs = table[:2], signs[:2]
    if not direct:
        monkeypatch.setattr("models.convex.optimum._DIRECT", 0)
    objective = LogisticObjective(-table * signs[:, None], np.full(len(table), 1 / len(table)), l2)
    undecided = r"(no unique minimum|uniqueness of the minimum|was not minimised).*model\.l2="
    with pytest.raises(ValueError, match=undecided):
        minimise(objective, smoothness_of(objective))


def test_an_optimum_is_told_from_what_is_none() -> None:
    objective = problem()
    smoothness = smoothness_of(objective)
    x = minimise(objective, smoothness)
    assert is_optimum(objective, x, smoothness)
    assert not is_optimum(objective, x + 1e-10, smoothness)


def test_zeros_have_no_largest_singular_value_to_search_for() -> None:
    for features in (np.zeros((40, 30)), csr_matrix((40, 30))):
        assert largest_singular_value(features) == 0


@pytest.mark.parametrize("shape", [(40, 30), (30, 40), (5, 40), (40, 5), (1, 1)])
def test_largest_singular_value(shape: tuple[int, int]) -> None:
    table = np.random.default_rng(0).standard_normal(shape)
    expected = np.linalg.svd(table, compute_uv=False)[0]
    for features in (table, csr_matrix(table)):
        assert largest_singular_value(features) == pytest.approx(expected, rel=1e-12)
        assert largest_singular_value(features) == largest_singular_value(features)
