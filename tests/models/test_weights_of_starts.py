"""Linear models that boosting starts from, on rows that stand for several each: by fits without the row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from usboost import Table, TreeLearner, TwoWeakLearnerClassifier, Views
from usboost.boosting.context import FitContext
from usboost.evaluation.folds import Related
from usboost.models.baselines.linear import FOLDS, LinearBaseline, RidgeBaseline, _turns
from usboost.models.methods.weak_learners import fit_start

N = 90
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4)).astype(np.float32)
Z = X[:, 0] + RNG.normal(size=N)
Y = np.digitize(Z, [-0.5, 0.8])
COUNTS = RNG.integers(1, 9, N).astype(float)
GROUPS = RNG.integers(0, 20, N)
VIEWS = Views(S=Table.from_numeric(X))


def ridge_without(read: np.ndarray, y: np.ndarray, penalty: float, seen: np.ndarray) -> Ridge:
    return Ridge(penalty).fit(read[seen].astype(np.float64), y[seen], COUNTS[seen])


def test_ridge_regressions_leave_rows_out_as_wholes() -> None:
    """A row that stands for eight is left out as eight: by a fit without it, for every row and penalty."""
    penalties = (30.0, 3.0, 0.3, 0.03)
    model = RidgeBaseline(("S",), penalties).fit(VIEWS, Z, None, COUNTS)
    y, read = (Z - model.target_centre_) / model.target_scale_, model._rows(VIEWS)
    mean = np.average(read, axis=0, weights=COUNTS)
    scale = (COUNTS @ np.square(read - mean)).sum() / read.shape[1]
    risks, left_out = [], {}
    for penalty in penalties:
        fits = [ridge_without(read, y, penalty * scale, np.arange(N) != k) for k in range(N)]
        left_out[penalty] = np.array([fit.predict(read[[k]])[0] for k, fit in enumerate(fits)])
        risks.append(np.average(np.square(left_out[penalty] - y), weights=COUNTS))
    best = penalties[int(np.argmin(risks))]
    assert model.penalty_ == pytest.approx(best)
    assert model.history_[0]["risk_train"] == pytest.approx(min(risks), rel=1e-4)
    found = model.out_of_fold(VIEWS, y, COUNTS)[:, 0]
    np.testing.assert_allclose(found, left_out[best], atol=1e-4)
    assert np.abs(model.out_of_fold(VIEWS, y)[:, 0] - found).max() > 1e-2


@pytest.mark.parametrize("related", [None, Related(groups=GROUPS), Related(times=GROUPS)])
def test_logistic_regressions_score_a_fold_by_the_others_as_they_count(related: Related | None) -> None:
    model = LinearBaseline(("S",), penalties=(0.03,), random_state=3).fit(VIEWS, Y, (VIEWS, Y), COUNTS)
    read = model._rows(VIEWS).astype(np.float64)
    turn = _turns(Y, 3, FOLDS, 3) if related is None else related.parts(FOLDS, Y, 3)
    found = model.out_of_fold(VIEWS, Y, COUNTS, related)
    for fold in range(turn.max() + 1):
        seen = turn != fold
        expected = LogisticRegression(C=1 / (0.03 * COUNTS[seen].sum()), tol=1e-9, max_iter=2000)
        expected.fit(read[seen], Y[seen], COUNTS[seen])
        scores = expected.decision_function(read[~seen])
        np.testing.assert_allclose(found[~seen], scores - scores.mean(axis=1, keepdims=True), atol=0.02)
    assert np.abs(model.out_of_fold(VIEWS, Y, None, related) - found).max() > 0.1


def test_a_view_is_left_out_by_what_rows_count_for() -> None:
    """One that tells the heavy rows and harms the light ones is read; where these are heavy it is not."""
    rng = np.random.default_rng(0)
    n = 600
    told, y = np.arange(n) % 3 == 0, rng.integers(0, 2, n)
    wide = rng.normal(size=(n, 40))
    wide[told, 0] += 3 * (2 * y[told] - 1)
    wide[~told, 0] *= 4  # is as large, and means nothing
    views = Views(
        U=Table.from_numeric(wide), S=Table.from_numeric(rng.normal(size=(n, 1)) + 0.2 * y[:, None])
    )
    settings = LinearBaseline(penalties=(0.01,), validation_fraction=0)

    def left_out(weights: np.ndarray) -> tuple[str, ...]:
        def fit(model: Any) -> None:
            model.fit_codes(views, y, 2, FitContext())

        return fit_start(settings, ("U",), views, y, fit, weights)[2]

    gains = []
    for names in (("S",), ("U", "S")):
        model = LinearBaseline(names, penalties=(0.01,), validation_fraction=0).fit(views, y)
        gains.append(model.losses(model.out_of_fold(views, y), y))
    assert (gains[0] - gains[1])[told].mean() > 0 > (gains[0] - gains[1])[~told].mean()
    assert left_out(np.where(told, 1.0, 1e-3)) == () and left_out(np.where(told, 1e-3, 1.0)) == ("U",)


def test_a_starts_folds_are_drawn_by_the_models_seed() -> None:
    """What the first round is fitted to are the losses of these folds."""
    trees = {"S": TreeLearner(1)}
    start = LinearBaseline(("S",), penalties=(0.03,))
    risks = []
    for seed in (3, 4):
        settings = {"loss": "cross_entropy", "n_rounds": 1, "shrinkage": 1e-9, "validation_fraction": 0}
        model = TwoWeakLearnerClassifier(trees, start=start, random_state=seed, **settings).fit(VIEWS, Y)
        alone = LinearBaseline(("S",), penalties=(0.03,), random_state=seed, validation_fraction=0)
        scores = alone.fit(VIEWS, Y).out_of_fold(VIEWS, Y)
        risks.append(model.history_[0]["risk_train"])
        assert risks[-1] == pytest.approx(alone.losses(scores, Y).mean(), rel=1e-5)
    assert risks[0] != pytest.approx(risks[1], rel=1e-4)
