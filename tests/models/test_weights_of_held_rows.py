"""What rows that a fit stops on count for: all that is told of them is that of rows repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from usboost import BoostedFeatures, PredictionIntervals, Table, TreeLearner, Views
from usboost.evaluation.metrics import row_losses
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.packages import ScikitBaseline
from usboost.models.baselines.trees import ForestBaseline, ForestBaselineRegressor
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier, BoostedFeatureNetworkRegressor
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier, TwoBranchNetworkRegressor
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor

RNG = np.random.default_rng(0)
N = 200
A, B = RNG.normal(size=(2, N, 3)).astype(np.float32)
Z = A[:, 0] + B[:, 1] * B[:, 2] + 0.5 * RNG.normal(size=N)
Y = np.digitize(Z, [-0.5, 0.8])
FIT, HELD = np.arange(120), np.arange(120, N)
WEIGHTS = np.where(Y == 1, 6.0, 1.0)
TREES = {name: TreeLearner(2, engine="histogram") for name in "US"}
BRANCHES: dict[str, Any] = {"dnn1": (6,), "dnn2": (6,), "dnn3": (4,), "n_epochs": 3, "device": "cpu"}


def views(rows: Any = slice(None)) -> Views:
    return Views(U=Table.from_numeric(A[rows]), S=Table.from_numeric(B[rows]))


def fitted(model: Any, y: np.ndarray, **more: Any) -> Any:
    return clone(model).fit(views(FIT), y[FIT], (views(HELD), y[HELD], WEIGHTS[HELD]), **more)


CLASSIFIERS = {
    "linear": LinearBaseline(penalties=(0.1, 0.01)),
    "forest": ForestBaseline(n_trees=10, leaf_sizes=(1, 20)),
    "2wl": TwoWeakLearnerClassifier(TREES, loss="cross_entropy", n_rounds=3),
    "two branches": TwoBranchNetworkClassifier(**BRANCHES),
    "bfv": BoostedFeatureNetworkClassifier(BoostedFeatures(3), TwoBranchNetworkClassifier(**BRANCHES)),
}
REGRESSORS = {
    "ridge": RidgeBaseline(),
    "forest": ForestBaselineRegressor(n_trees=10, leaf_sizes=(1, 20)),
    "2wl": TwoWeakLearnerRegressor(TREES, n_rounds=3),
    "two branches": TwoBranchNetworkRegressor(**BRANCHES),
    "intervals": PredictionIntervals(TwoWeakLearnerRegressor(TREES, n_rounds=3), method="residuals"),
    "bfv": BoostedFeatureNetworkRegressor(BoostedFeatures(3), TwoBranchNetworkRegressor(**BRANCHES)),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_of_classes(name: str) -> None:
    model = fitted(CLASSIFIERS[name], Y)
    told, weights = model.history_[model.best_round_ - 1], WEIGHTS[HELD]
    p = model.predict_proba(views(HELD))
    answers, losses = p.argmax(axis=1), row_losses(Y[HELD], p)
    expected = {
        "risk_val": np.average(losses, weights=weights),
        "f1_val": f1_score(Y[HELD], answers, average="macro", sample_weight=weights),
        "accuracy_val": accuracy_score(Y[HELD], answers, sample_weight=weights),
    }
    known = {key: value for key, value in expected.items() if key in told}
    assert "risk_val" in known and {key: told[key] for key in known} == pytest.approx(known, rel=1e-5)
    assert losses.mean() != pytest.approx(expected["risk_val"], rel=1e-2)


@pytest.mark.parametrize("name", REGRESSORS)
def test_of_numbers(name: str) -> None:
    model = fitted(REGRESSORS[name], Z)
    told, weights = model.history_[model.best_round_ - 1], WEIGHTS[HELD]
    off = Z[HELD] - model.predict(views(HELD))
    square = np.average(np.square(off), weights=weights)
    known = {
        "risk_val": square / getattr(model, "regressor_", model).target_scale_ ** 2,
        "rmse_val": np.sqrt(square),
        "mae_val": np.average(np.abs(off), weights=weights),
    }
    known = {key: value for key, value in known.items() if key in told}
    assert "risk_val" in known and {key: told[key] for key in known} == pytest.approx(known, rel=1e-4)
    assert np.square(off).mean() != pytest.approx(square, rel=1e-2)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (LinearBaseline(penalties=(3.0, 0.3, 0.03, 0.003)), "penalties"),
        (ForestBaseline(n_trees=10, leaf_sizes=(1, 5, 20, 60)), "leaf_sizes"),
    ],
)
def test_of_some_candidates_the_best_by_weight_is_kept(model: Any, name: str) -> None:
    """For some of these weights it is another one than for equal rows; a fit to all rows keeps to it."""
    candidates, kept = getattr(model, name), []
    for weights in (np.ones(N), *(np.where(k == Y, 30.0, 1.0) for k in range(3))):
        found = clone(model).fit(views(FIT), Y[FIT], (views(HELD), Y[HELD], weights[HELD]))
        risks = []
        for each in candidates:
            alone = clone(model).set_params(**{name: (each,), "validation_fraction": 0.0})
            p = alone.fit(views(FIT), Y[FIT]).predict_proba(views(HELD))
            risks.append(np.average(row_losses(Y[HELD], p), weights=weights[HELD]))
        kept.append(candidates[int(np.argmin(risks))])
        assert candidates[found.best_round_ - 1] == kept[-1]
        again = found.for_all_rows()
        assert getattr(again, name) == (kept[-1],) and again.validation_fraction == 0
    assert len(set(kept)) > 1


@pytest.mark.parametrize("weighs", ["none", "training", "validation", "both"])
def test_an_estimator_that_does_not_stop_learns_from_all_rows_as_they_count(weighs: str) -> None:
    """Rows without weights beside others that have some count once each."""
    own = WEIGHTS[FIT] if weighs in ("training", "both") else None
    of_held = (WEIGHTS[HELD],) if weighs in ("validation", "both") else ()
    model = ScikitBaseline(LogisticRegression(C=0.1))
    model.fit(views(FIT), Y[FIT], (views(HELD), Y[HELD], *of_held), own)
    counts = np.ones(N)
    counts[FIT] = 1 if own is None else own
    counts[HELD] = of_held[0] if of_held else 1
    expected = LogisticRegression(C=0.1).fit(model._rows(views()), Y, counts)
    np.testing.assert_allclose(model.estimator_.coef_, expected.coef_, atol=1e-4)
