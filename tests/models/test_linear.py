"""Logistic regression as an external baseline: scikit-learn's, of the penalty with the lowest loss."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tests.conftest import make_views
from usboost.models.linear import LinearBaseline
from usboost.models.persistence import load, save


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_scikit_learns_on_standardised_numbers_and_indicators(n_classes: int) -> None:
    views, y = make_views(n_classes, n=400)
    train, val, test = views[:250], views[250:320], views[320:]

    def columns(part):
        tables = [part["U"], part["S"]]
        return np.column_stack([t.numeric for t in tables]), np.column_stack([t.codes for t in tables])

    numbers, codes = columns(train)
    scaler, encoder = StandardScaler().fit(numbers), OneHotEncoder(sparse_output=False)
    encoder.set_params(categories=[range(c) for t in ("U", "S") for c in views[t].cardinalities]).fit(codes)

    def matrix(part):
        numbers, codes = columns(part)
        return np.column_stack((scaler.transform(numbers), encoder.transform(codes)))

    penalties, losses, probabilities = (0.1, 0.01, 0.001), [], []
    for penalty in penalties:
        expected = LogisticRegression(C=1 / (penalty * 250), max_iter=1000, tol=1e-8)
        expected.fit(matrix(train), y[:250])
        losses.append(log_loss(y[250:320], expected.predict_proba(matrix(val))))
        probabilities.append(expected.predict_proba(matrix(test)))
    model = LinearBaseline(penalties=penalties, max_iter=1000).fit(train, y[:250], (val, y[250:320]))
    best = int(np.argmin(losses))
    assert model.best_round_ == best + 1
    assert [row["risk_val"] for row in model.history_] == pytest.approx(losses, abs=2e-3)
    np.testing.assert_allclose(model.predict_proba(test), probabilities[best], atol=5e-3)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_saved_one_predicts_the_same(tmp_path, n_classes: int) -> None:
    views, y = make_views(n_classes)
    labels = np.array(list("abcd"))[y]
    model = LinearBaseline().fit(views, labels)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), model.predict_proba(views))
    np.testing.assert_array_equal(again.predict(views), model.predict(views))
