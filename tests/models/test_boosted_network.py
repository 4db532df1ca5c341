"""Boosted neural networks: the paper's algorithm, γ, exact least squares, and scikit-learn's manners."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from tests.boosting.test_rounds import Linear
from tests.conftest import refuses
from usboost import NetworkLearner, Table, TreeLearner, UsboostError
from usboost.learners.base import Target
from usboost.losses.regression import Squared
from usboost.models.methods.boosted_network import BoostedNetworkClassifier, BoostedNetworkRegressor


class Broken(Linear):
    """Fits, but gives `value` everywhere from a given round on."""

    def __init__(self, value: float, first: int) -> None:
        super().__init__(0.5)
        self.value, self.first = value, first

    def fit(self, target: Target, *, seed: int, start: Any) -> Linear:
        fitted = super().fit(target, seed=seed, start=start)
        if len(self.fits) >= self.first:
            fitted.coefficients = np.full_like(fitted.coefficients, 0.0)
            fitted.coefficients[0] = self.value
        return fitted


def network(epochs: int = 5) -> NetworkLearner:
    return NetworkLearner((8,), "adam", 0.01, 32, epochs)


def classes(n: int = 150, k: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return np.random.default_rng(7).normal(size=(k, 4))[y] * 1.5 + rng.normal(size=(n, 4)), y


def curve(n: int = 200, m: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32).astype(np.float64)
    y = np.column_stack([np.sin(X[:, 0]) + X[:, 1] ** 2 + 3, X[:, 2] * X[:, 0]])[:, :m]
    return X, y + 0.1 * rng.normal(size=y.shape)


def outputs(model: Any, X: np.ndarray) -> list[np.ndarray]:
    """Every kept network's own outputs h_j."""
    prepared = next(iter(model._weak_learners().values())).prepare(Table.from_numeric(X))
    return [stage.learners["x"].predict(prepared).astype(np.float64) for stage in model.stages_]


def test_the_loop_is_the_papers_algorithm_to_the_letter() -> None:
    """Algorithms 1 and 2 with scikit-learn's trees in the networks' place, and equation (3) for γ_0."""
    X, y = curve()
    f, gammas, costs = np.zeros_like(y), [], []
    for _ in range(6):
        delta = y - f
        h = DecisionTreeRegressor(max_depth=2, min_samples_leaf=5, random_state=0).fit(X, delta).predict(X)
        gammas.append(sum(delta[i] @ h[i] for i in range(len(y))) / sum(h[i] @ h[i] for i in range(len(y))))
        f = f + gammas[-1] * h
        costs.append(sum((y[i] - f[i]) @ (y[i] - f[i]) for i in range(len(y))))
    own = BoostedNetworkRegressor(TreeLearner(2, min_samples_leaf=5, engine="sklearn"), n_rounds=6).fit(X, y)
    np.testing.assert_allclose(own.gammas_, gammas, rtol=1e-6)
    np.testing.assert_allclose(own.predict(X), f, atol=1e-5)
    np.testing.assert_allclose([row["risk_train"] * len(y) for row in own.history_], costs, rtol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_gamma_is_the_numeric_minimum_along_every_network(loss: str) -> None:
    X, y = classes()
    model = BoostedNetworkClassifier(loss, network(), n_rounds=4).fit(X, y)
    risk, one_hot = model._loss(), np.eye(3)[y]
    f = np.zeros((len(y), risk.n_outputs))
    for row, gamma, h in zip(model.history_, model.gammas_, outputs(model, X)):
        best = minimize_scalar(lambda g, f=f, h=h: risk.risk(f + g * h, one_hot), bracket=(0, 1), tol=1e-12)
        assert gamma == pytest.approx(best.x, rel=1e-4, abs=1e-4)
        f = f + gamma * h
        assert row["risk_train"] == pytest.approx(risk.risk(f, one_hot), rel=1e-7)
        assert row["gamma"] == gamma


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_the_cost_never_rises(loss: str, weighted: bool) -> None:
    X, y = classes()
    model = BoostedNetworkClassifier(loss, network(), n_rounds=8, weighted=weighted).fit(X, y)
    risks = [row["risk_train"] for row in model.history_]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(risks))
    assert risks[-1] < 0.6 * (1.0 if loss == "squared" else np.log(3))
    assert model.history_[-1]["accuracy_train"] == pytest.approx(model.score(X, y))


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e-2, -3.0, 1e6])
def test_one_round_of_least_squares_is_the_solution_at_any_scale(scale: float) -> None:
    X, y = curve()
    model = BoostedNetworkRegressor(Linear(scale), n_rounds=1).fit(X, y)
    design = np.column_stack([np.ones(len(X)), X])
    solution = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(model.predict(X), design @ solution, atol=1e-9)
    assert model.gammas_[0] == pytest.approx(1 / scale)


def test_a_residual_of_0_has_no_gamma() -> None:
    constant, stump = np.array([4.0, 4.0]), TreeLearner(1, min_samples_leaf=1, engine="sklearn")
    with pytest.raises(UsboostError, match=r"round 2: .* all zero"):
        BoostedNetworkRegressor(stump, n_rounds=5).fit(np.array([[1.0], [3.0]]), constant)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_a_network_without_output_is_a_clear_error(loss: str) -> None:
    X, y = classes()
    with pytest.raises(UsboostError, match=r"round 3: .* all zero"):
        BoostedNetworkClassifier(loss, Broken(0.0, first=3), n_rounds=5).fit(X, y)


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_a_network_that_diverges_names_the_round(loss: str, value: float) -> None:
    X, y = classes()
    with pytest.raises(UsboostError, match=r"round 2: .*'x'.* NaN"):
        BoostedNetworkClassifier(loss, Broken(value, first=2), n_rounds=5).fit(X, y)


def test_cross_entropy_by_default_counts_samples_by_their_curvature() -> None:
    """Two rounds of weighted least squares by hand; the second round's curvatures differ between samples."""
    X, y = classes()
    model = BoostedNetworkClassifier("cross_entropy", Linear(), n_rounds=2).fit(X, y)
    design = np.column_stack([np.ones(len(X)), X.astype(np.float32)])
    unit, scores = np.eye(3)[y], np.zeros((len(X), 3))
    for gamma in model.gammas_:
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        own = (p * unit).sum(axis=1)
        newton = (unit - 1 / 3) / own[:, None]
        root = np.sqrt(own * (1 - own))[:, None]
        h = design @ np.linalg.lstsq(root * design, root * newton, rcond=None)[0]
        scores = scores + gamma * h
    np.testing.assert_allclose(model.decision_function(X), scores, rtol=1e-5, atol=1e-6)
    equal = BoostedNetworkClassifier("cross_entropy", Linear(), n_rounds=2, weighted=False)
    assert np.abs(equal.fit(X, y).decision_function(X) - scores).max() > 1e-3


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_probabilities_and_predictions(loss: str) -> None:
    X, y = classes()
    names = np.array(["x", "y", "z"])
    model = BoostedNetworkClassifier(loss, network(), n_rounds=3).fit(X, names[y])
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert p.min() >= 0
    np.testing.assert_array_equal(names[p.argmax(axis=1)], model.predict(X))
    np.testing.assert_array_equal(names[model.decision_function(X).argmax(axis=1)], model.predict(X))
    staged = list(model.staged_predict(X))
    assert len(staged) == 3
    np.testing.assert_array_equal(staged[-1], model.predict(X))
    two = BoostedNetworkClassifier(loss, network(), n_rounds=3).fit(X, y > 0)
    np.testing.assert_array_equal(two.decision_function(X) > 0, two.predict(X))


@settings(max_examples=50)
@given(f=st.lists(st.floats(-3, 3), min_size=2, max_size=5))
def test_the_nearest_probabilities(f: list[float]) -> None:
    """Projection on the simplex: feasible, and no feasible direction comes nearer."""
    point = np.array([f])
    p = Squared(len(f)).probabilities(point)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1)
    corners = np.eye(len(f))
    # ⟨f − p, q − p⟩ ≤ 0 for every corner q characterises the projection
    assert ((corners - p) @ (point - p)[0]).max() < 1e-9


def test_early_stopping_keeps_the_best_round() -> None:
    X, y = classes(n=90)
    held, y_held = classes(n=90, seed=3)
    model = BoostedNetworkClassifier(learner=TreeLearner(4, min_samples_leaf=1), n_rounds=40, patience=4)
    model.fit(X, y, (held, y_held))
    assert len(model.history_) == model.best_round_ + 4
    assert len(model.gammas_) == model.best_round_
    best = model.history_[model.best_round_ - 1]
    assert model.score(held, y_held) == pytest.approx(best["accuracy_val"])
    X, y = curve()
    tree = TreeLearner(3, min_samples_leaf=1)
    model = BoostedNetworkRegressor(tree, n_rounds=60, patience=3, validation_fraction=0.3)
    model.fit(X, y)
    risks = [row["risk_val"] for row in model.history_]
    assert model.best_round_ == int(np.argmin(risks)) + 1 == len(model.stages_)


def test_arrays_frames_and_tables_are_the_same() -> None:
    X, y = classes()
    by_array = BoostedNetworkClassifier(learner=network(), n_rounds=2).fit(X, y)
    for form in (pd.DataFrame(X, columns=list("abcd")), Table.from_numeric(X), X.tolist()):
        other = BoostedNetworkClassifier(learner=network(), n_rounds=2).fit(form, y)
        np.testing.assert_array_equal(other.predict_proba(form), by_array.predict_proba(X))
    categorical = Table(np.zeros((4, 0), np.float32), np.array([[1], [2], [1], [2]], np.int32), (3,))
    model = BoostedNetworkClassifier(learner=network(60), n_rounds=2).fit(categorical, ["a", "b", "a", "b"])
    assert model.predict(categorical).tolist() == ["a", "b", "a", "b"]


def test_regression_of_one_and_several_outputs() -> None:
    X, y = curve(n=400)
    unseen, y_unseen = curve(n=400, seed=1)
    model = BoostedNetworkRegressor(network(20), n_rounds=6).fit(X, y)
    assert model.predict(unseen).shape == (400, 2)
    assert model.score(unseen, y_unseen) > 0.9
    assert BoostedNetworkRegressor(network(), n_rounds=2).fit(X, y[:, 0]).predict(X).shape == (400,)
    assert BoostedNetworkRegressor(network(), n_rounds=2).fit(X, y[:, :1]).predict(X).shape == (400, 1)


def test_scikit_learns_tools() -> None:
    X, y = classes()
    model = BoostedNetworkClassifier(learner=network(), n_rounds=2)
    assert clone(model).get_params()["n_rounds"] == 2
    grid = GridSearchCV(model, {"loss": ["squared", "cross_entropy"], "learner__hidden": [(4,), (8,)]}, cv=2)
    assert grid.fit(X, y).score(X, y) > 0.5
    assert cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=2).mean() > 0.5
    equal = [clone(model).fit(X, y).predict_proba(X) for _ in range(2)]
    np.testing.assert_array_equal(*equal)
    other = clone(model).set_params(random_state=5).fit(X, y)
    assert not np.array_equal(other.predict_proba(X), equal[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [({"loss": "hinge"}, "unknown loss 'hinge'"), ({"n_rounds": 0}, "n_rounds must be at least 1, not 0")],
)
def test_settings_that_do_not_suit(change: dict[str, Any], said: str) -> None:
    X, y = classes()
    refuses(said, BoostedNetworkClassifier(**change).fit, X, y)


def test_data_that_do_not_suit() -> None:
    X, y = classes()
    broken = pd.DataFrame(X, columns=list("abcd"))
    broken.loc[5, "c"] = np.nan
    fit = BoostedNetworkClassifier(learner=network(), n_rounds=1).fit
    for data, said in (
        (broken, "row 5 of X holds nan in column c"),
        (np.where(np.arange(150)[:, None] == 2, 1e300, X), "row 2 of X holds 1e"),
        (broken.astype({"a": str}).assign(a="red"), "X is not numeric"),
        (X[0], "two dimensions"),
        (X[:-1], "one label for each of the 149 rows"),
    ):
        refuses(said, fit, data, y)
    refuses(r"3 features.*expecting 4", fit(X, y).predict, X[:, :3])
    refuses(r"3 columns.* on 4", fit(X, y).predict, Table.from_numeric(X[:, :3]))
    regress = BoostedNetworkRegressor(network(), n_rounds=1).fit
    for target, said in (
        (y[:-1], "X has 150 rows but y has 149"),
        (np.full(150, np.nan), "y must be finite"),
        (np.array(["a"] * 150), "y is not numeric"),
    ):
        refuses(said, regress, X, target)
