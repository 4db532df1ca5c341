"""Gains that trees keep, the importances made of them, and models from before there were any."""

import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.conftest import make_views, refuses, reloaded, rewritten
from tests.small_models import boosting, lgbm, network, on_features, two_branches
from usboost import LightGBMBaseline, Table, TreeLearner, Views
from usboost.learners.base import Target
from usboost.learners.tree import Tree
from usboost.models import persistence


def brute_gains(tree: Tree, matrix: np.ndarray, values: np.ndarray, weights: np.ndarray) -> list[float]:
    """Σ w (y − mean)² of the rows at each node less that of its two sides."""

    def error(rows: np.ndarray) -> float:
        mean = np.average(values[rows], axis=0, weights=weights[rows])
        return float((weights[rows, None] * (values[rows] - mean) ** 2).sum())

    at = {0: np.flatnonzero(weights > 0)}
    gains = []
    for node in range(len(tree.feature)):
        goes_left = tree._goes_left(matrix, node)[at[node]]
        sides = at[node][goes_left], at[node][~goes_left]
        gains.append(error(at[node]) - error(sides[0]) - error(sides[1]))
        for child, rows in zip((tree.left[node], tree.right[node]), sides):
            at[int(child)] = rows
    return gains


@pytest.mark.parametrize("engine", ["lightgbm", "sklearn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gains_are_the_reductions_of_the_squared_error(engine: str, weighted: bool) -> None:
    views, _ = make_views(n=250)
    rng = np.random.default_rng(5)
    values = rng.normal(size=(250, 2)) + views["S"].numeric[:, :1] + (views["S"].codes[:, :1] == 2)
    weights = rng.uniform(0.5, 9, 250) if weighted else None
    left_out = rng.random(250) < 0.3 if weighted else None
    learner = TreeLearner(3, min_samples_leaf=10, engine=engine)
    prepared = learner.prepare(views["S"])
    target = Target(values, weights, left_out)
    fitted = learner.trainer(prepared, 2).fit(target, seed=0)
    counted = np.ones(250) if target.fit_weights is None else target.fit_weights
    for output, tree in enumerate(fitted.trees):
        fitted_to = values if len(fitted.trees) == 1 else values[:, [output]]
        expected = brute_gains(tree, prepared.matrix, fitted_to, counted)
        assert len(tree.gain) > 2
        np.testing.assert_allclose(tree.gain, expected, rtol=1e-3)


def test_importances_are_step_times_gain() -> None:
    views, y = make_views(3, n=300)
    model = boosting(validation_fraction=0).fit(views, y)
    total = np.zeros(5)
    for stage in model.stages_:
        for tree in stage.learners["S"].trees:
            for column, gain in zip(tree.feature, tree.gain):
                total[column] += abs(stage.steps["S"]) * gain
    np.testing.assert_allclose(model.feature_importances_, total / total.sum())
    assert model.feature_names_.tolist() == list(views["S"].names)


@pytest.mark.parametrize("make", [boosting, on_features, lgbm])
def test_the_column_that_decides_is_the_most_important(make: Any) -> None:
    views, _ = make_views(n=400)
    own = Table(views["S"].numeric, views["S"].codes, (5, 5), ("height", "width", "depth", "colour", "shape"))
    views, y = views.with_view("S", own), own.numeric[:, 1] > 0
    model = make().fit(views, y)
    importances = dict(zip(model.feature_names_, model.feature_importances_))
    name = "S__width" if make is lgbm else "width"
    assert max(importances, key=importances.get) == name
    assert sum(importances.values()) == pytest.approx(1)
    assert min(importances.values()) >= 0
    assert importances[name] > 0.9


def test_importances_of_several_tables_and_of_none() -> None:
    views, y = make_views(n=200)
    both = boosting(learners={"U": TreeLearner(), "S": TreeLearner()}).fit(views, y)
    assert both.feature_names_.tolist() == [f"{view}__x{j}" for view in "US" for j in range(5)]
    assert both.feature_importances_.shape == (10,)
    joined = boosting(learners={"both": TreeLearner(reads=("S", "U"))}).fit(views, y)
    assert len(joined.feature_names_) == len(joined.feature_importances_) == 10
    assert not hasattr(boosting(learners={"U": network()}).fit(views, y), "feature_importances_")
    assert not hasattr(two_branches().fit(views, y), "feature_importances_")
    assert not hasattr(boosting(), "feature_importances_")
    nothing = Table.from_numeric(np.zeros((200, 2)))
    flat = boosting(learners={"S": TreeLearner()}).fit(Views(S=nothing), y)
    assert flat.feature_importances_.tolist() == [0.0, 0.0]


def test_lightgbms_importances_are_lightgbms_own() -> None:
    views, y = make_views(2, n=300)
    model = LightGBMBaseline(["S"], n_trees=8, validation_fraction=0).fit(views, y)
    share = y.mean()
    booster = lightgbm.train(
        {"objective": "binary", "boost_from_average": False, "learning_rate": 0.05, "verbose": -1, "seed": 0},
        lightgbm.Dataset(
            views["S"].matrix(),
            y,
            init_score=np.full(300, np.log(share / (1 - share))),
            categorical_feature=[3, 4],
            params={"verbose": -1},
        ),
        8,
    )
    expected = booster.feature_importance("gain")
    np.testing.assert_allclose(model.feature_importances_, expected / expected.sum(), rtol=1e-4)


@pytest.mark.parametrize("make", [boosting, on_features, lgbm])
def test_importances_are_saved(make: Any, tmp_path: Path) -> None:
    views, y = make_views(n=200)
    model = make().fit(views, y)
    again = reloaded(model, tmp_path / "m")
    np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)
    np.testing.assert_array_equal(again.feature_names_, model.feature_names_)
    without_gains(tmp_path / "m")
    refuses("gain", persistence.load, tmp_path / "m")


def without_gains(folder: Path) -> None:
    """Take the gains of all trees out of a model's files, and the digests."""
    for path in folder.rglob("*.json"):
        with rewritten(path) as document:
            document.pop("files", None)
    for path in folder.rglob("*.safetensors"):
        arrays = load_file(path)
        save_file({name: array for name, array in arrays.items() if "gain" not in name}, path)


def test_damaged_names_and_gains_are_refused(tmp_path: Path) -> None:
    views, y = make_views(n=200)
    persistence.save(boosting().fit(views, y), tmp_path / "m")
    document = json.loads((tmp_path / "m" / "model.json").read_text())
    del document["files"]
    for columns in (3, {"S": 3}, {"S": [1]}, {"S": []}):
        (tmp_path / "m" / "model.json").write_text(json.dumps({**document, "columns": columns}))
        refuses("its columns are not names", persistence.load, tmp_path / "m")
    (tmp_path / "m" / "model.json").write_text(json.dumps(document))
    path = tmp_path / "m" / "arrays-00000.safetensors"
    arrays = load_file(path)
    for wrong in (np.array([np.inf]), np.array([1.0]), np.array([1, 2])):
        gain = arrays["0/S/0.gain"]
        changed = np.where(np.arange(len(gain)) == 0, wrong[0], gain) if np.isinf(wrong[0]) else wrong
        save_file({**arrays, "0/S/0.gain": changed}, path)
        refuses(r"a tree", persistence.load, tmp_path / "m")
