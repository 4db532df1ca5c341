"""Two weak learners on cross-entropy: LogitBoost done literally, mistakes, and what a file keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeRegressor

from tests.conftest import reloaded
from usboost import NetworkLearner, Table, TreeLearner, TwoWeakLearnerClassifier, UsboostError, Views


def model(**changes) -> TwoWeakLearnerClassifier:
    trees = {view: TreeLearner(max_depth=2, min_samples_leaf=5) for view in ("U", "S")}
    given = {"learners": trees, "target": "newton", "loss": "cross_entropy", "n_rounds": 8}
    return TwoWeakLearnerClassifier(**{**given, "validation_fraction": 0, "patience": None, **changes})


def test_one_view_with_fixed_steps_is_logitboost():
    """Friedman, Hastie and Tibshirani's Algorithm 3, with F = f/√2 in our one coordinate of two classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] ** 2 + 0.5 * rng.normal(size=200) > 0.5).astype(int)
    stumps = {"S": TreeLearner(max_depth=1, min_samples_leaf=1, engine="sklearn")}
    fitted = model(learners=stumps, step="fixed", step_settings={"value": 1.0}, n_rounds=5)
    fitted.fit(Views(S=Table.from_numeric(x)), y)

    score = np.zeros(len(y))  # half the log-odds
    for _ in range(5):
        p = 1 / (1 + np.exp(-2 * score))
        weight = p * (1 - p)
        stump = DecisionTreeRegressor(max_depth=1).fit(x, (y - p) / weight, sample_weight=weight)
        score += 0.5 * stump.predict(x)
    expected = 1 / (1 + np.exp(-2 * score))
    found = fitted.predict_proba(Views(S=Table.from_numeric(x)))[:, 1]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("target", ["newton", "gradient"])
def test_the_risk_is_the_log_loss_and_never_rises(two_views, n_classes, target):
    views, y = two_views(n_classes)
    fitted = model(target=target).fit(views, y)
    risks = [row["risk_train"] for row in fitted.history_]
    assert np.all(np.diff(risks) <= 1e-12)
    assert risks[0] < np.log(n_classes)
    assert risks[-1] == pytest.approx(log_loss(y, fitted.predict_proba(views)))


def test_labels_that_trees_separate_do_not_end_the_fit(two_views):
    views, _ = two_views(2)
    fitted = model(n_rounds=5).fit(views, views["S"].numeric[:, 0] > 0)
    assert len(fitted.stages_) == 5
    assert (fitted.predict(views) == (views["S"].numeric[:, 0] > 0)).all()


def test_a_monitored_risk_chooses_the_round(two_views):
    views, y = two_views(2)
    fitted = model(n_rounds=40, monitor="risk_val", patience=None, validation_fraction=0.3).fit(views, y)
    risks = [row["risk_val"] for row in fitted.history_]
    assert fitted.best_round_ == 1 + int(np.argmin(risks))


def test_a_file_keeps_the_loss(two_views, tmp_path: Path):
    views, y = two_views(3)
    network = NetworkLearner(hidden=(4,), batch_size=64, device="cpu")
    fitted = model(learners={"U": network, "S": TreeLearner()}, n_rounds=3).fit(views, y)
    again = reloaded(fitted, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), fitted.predict_proba(views))
    assert again.loss == "cross_entropy"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loss": "hinge"}, "unknown loss kind 'hinge'"),
        ({"target": "second_order"}, "needs w_tilde"),
    ],
)
def test_mistakes_get_one_sentence(two_views, changes, said):
    views, y = two_views(2)
    with pytest.raises(UsboostError, match=said):
        model(**changes).fit(views, y)
