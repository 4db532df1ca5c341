"""The forest against scikit-learn's, the prior against counts; both from files."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import RandomForestRegressor

from tests.conftest import reloaded
from tests.tables import one
from usboost.models.baselines.packages import PriorBaseline, PriorBaselineRegressor
from usboost.models.baselines.trees import ForestBaseline, ForestBaselineRegressor

WINE, DIABETES = load_wine(), load_diabetes()


def saved(model, folder: Path):
    return reloaded(model, folder / "model")


def test_classes_as_scikit_learns_forest_on_indicators(tmp_path):
    x, y = WINE.data, WINE.target
    model = ForestBaseline(("S",), n_trees=15, leaf_sizes=(3,), validation_fraction=0, random_state=4)
    model.fit(one(x), y)
    forest = RandomForestRegressor(15, min_samples_leaf=3, max_features="sqrt", random_state=4)
    expected = forest.fit(x.astype(np.float32), np.eye(3)[y]).predict(x.astype(np.float32))
    np.testing.assert_allclose(model.predict_proba(one(x)), expected, atol=1e-6)
    importances = model.feature_importances_
    assert importances.sum() == pytest.approx(1) and len(importances) == x.shape[1]
    np.testing.assert_array_equal(saved(model, tmp_path).predict_proba(one(x)), model.predict_proba(one(x)))


def test_numbers_as_scikit_learns_forest_and_the_better_leaves_are_kept(tmp_path):
    x, y = DIABETES.data, DIABETES.target
    train, held = np.arange(300), np.arange(300, len(y))
    model = ForestBaselineRegressor(("S",), n_trees=15, leaf_sizes=(1, 20), random_state=4)
    model.fit(one(x[train]), y[train], (one(x[held]), y[held]))
    errors = []
    for size in (1, 20):
        forest = RandomForestRegressor(15, min_samples_leaf=size, max_features=1 / 3, random_state=4)
        predicted = forest.fit(x[train].astype(np.float32), y[train]).predict(x[held].astype(np.float32))
        errors.append(np.square(predicted - y[held]).mean())
    best = int(np.argmin(errors))
    assert model.best_round_ == best + 1
    found = np.square(model.predict(one(x[held])) - y[held]).mean()
    assert found == pytest.approx(errors[best], rel=1e-5)
    np.testing.assert_array_equal(saved(model, tmp_path).predict(one(x)), model.predict(one(x)))


def test_the_prior_is_the_same_for_every_row(tmp_path):
    x, names = WINE.data, np.array(["b", "a", "c"])[WINE.target]
    model = PriorBaseline().fit(one(x), names)
    expected = [np.mean(names == name) for name in "abc"]
    np.testing.assert_allclose(model.predict_proba(one(x[:5])), np.tile(expected, (5, 1)))
    assert set(model.predict(one(x))) == {"a"}
    np.testing.assert_array_equal(saved(model, tmp_path).shares_, model.shares_)
    mean = PriorBaselineRegressor().fit(one(DIABETES.data), DIABETES.target)
    np.testing.assert_allclose(mean.predict(one(DIABETES.data[:3])), DIABETES.target.mean())
    assert saved(mean, tmp_path / "other").predict(one(DIABETES.data[:3])).shape == (3,)
