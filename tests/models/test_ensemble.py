"""Greedy weights against all weights; an ensemble of fits to folds, from files, and what it falls back to."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine

from usboost.data.table import Table
from usboost.errors import UsboostError
from usboost.models import persistence
from usboost.models.baselines import LightGBMBaseline, LightGBMBaselineRegressor
from usboost.models.ensemble import EnsembleClassifier, EnsembleRegressor
from usboost.models.forest import ForestBaseline
from usboost.models.linear import LinearBaseline
from usboost.models.prior import PriorBaseline
from usboost.models.ridge_baseline import RidgeBaseline
from usboost.models.selection import better_than_noise, blended, greedy_weights, losses


def views(x: np.ndarray) -> dict[str, Table]:
    return {"S": Table.from_numeric(x.astype(np.float32))}


def members() -> dict:
    return {
        "linear": LinearBaseline(("S",)),
        "forest": ForestBaseline(("S",), n_trees=20),
        "lgbm": LightGBMBaseline(("S",), n_trees=30),
        "prior": PriorBaseline(),
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_weights_are_nearly_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=300)
    predicted = {name: y + rng.normal(size=300) * scale for name, scale in (("a", 1), ("b", 1.2), ("c", 3))}
    found = greedy_weights(predicted, y)
    assert sum(found.values()) == pytest.approx(1)
    loss = losses(blended(predicted, found), y).mean()
    grid = (
        losses(blended(predicted, dict(zip("abc", (a, b, 1 - a - b), strict=True))), y).mean()
        for a, b in itertools.product(np.linspace(0, 1, 51), repeat=2)
        if a + b <= 1
    )
    assert loss <= min(grid) * 1.005
    assert loss <= min(losses(each, y).mean() for each in predicted.values())


def test_equal_models_are_no_blend():
    y = np.random.default_rng(0).normal(size=100)
    same = y + 0.1
    assert greedy_weights({"a": same, "b": same.copy()}, y) == {"a": 1.0}
    assert not better_than_noise(same, same, y)


def test_classes(tmp_path):
    x, y = load_wine(return_X_y=True)
    names = np.array(["red", "rose", "white"])[y]
    model = EnsembleClassifier(members(), folds=3).fit(views(x), names)
    assert "prior" not in model.weights_ and sum(model.weights_.values()) == pytest.approx(1)
    assert model.losses_["prior"] == max(model.losses_.values())
    found = model.predict_proba(views(x))
    assert np.allclose(found.sum(axis=1), 1) and (model.predict(views(x)) == names).mean() > 0.97
    expected = sum(
        weight * np.mean([each.predict_proba(views(x)) for each in model.fits_[name]], axis=0)
        for name, weight in model.weights_.items()
    )
    np.testing.assert_allclose(found, expected)
    persistence.save(model, tmp_path / "model")
    np.testing.assert_array_equal(persistence.load(tmp_path / "model").predict_proba(views(x)), found)


def test_no_fit_sees_the_rows_it_is_judged_by():
    """Labels that mean nothing: what is told of them comes from rows that were fitted to, were there any."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
    model = EnsembleClassifier({"forest": ForestBaseline(("S",), n_trees=30, leaf_sizes=(1,))}, folds=5)
    assert model.fit(views(x), y).losses_["forest"] > 0.6


def test_numbers(tmp_path):
    x, y = load_diabetes(return_X_y=True)
    both = {"ridge": RidgeBaseline(("S",)), "lgbm": LightGBMBaselineRegressor(("S",), n_trees=60)}
    train, test = np.arange(len(y)) % 4 > 0, np.arange(len(y)) % 4 == 0
    model = EnsembleRegressor(both, folds=3).fit(views(x[train]), y[train])
    assert model.score(views(x[test]), y[test]) > 0.4
    persistence.save(model, tmp_path / "model")
    again = persistence.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(views(x[test])), model.predict(views(x[test])))


def test_a_changed_file_of_a_member_is_seen(tmp_path: Path):
    x, y = load_wine(return_X_y=True)
    persistence.save(EnsembleClassifier(members(), folds=2).fit(views(x), y), tmp_path / "model")
    path = tmp_path / "model/model.json"
    document = json.loads(path.read_text())
    for change in ({"linear": 0.5}, {"linear": -1.0, "forest": 2.0}, {"gone": 1.0}):
        path.write_text(json.dumps({**document, "weights": change}))
        with pytest.raises(UsboostError, match="weights are not those of its members"):
            persistence.load(tmp_path / "model")
    path.write_text(json.dumps(document))
    part = next((tmp_path / "model").glob("m0-0/*.safetensors"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(UsboostError):
        persistence.load(tmp_path / "model")
