"""Boosted feature vectors: their sum is the GBM's raw score."""

import lightgbm
import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier

from tests.conftest import make_views, refuses
from tests.small_models import on_features
from usboost import Table
from usboost.models.methods.bfv_network import BFV
from usboost.models.methods.boosted_features import BoostedFeatures, initial_score, lightgbm_parameters


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_identity_against_lightgbm_itself(n_classes):
    """initial + rate · Σ leaf values = the booster's own raw score, on rows it never saw."""
    views, y = make_views(n_classes, n=600)
    held, _ = make_views(n_classes, n=150, seed=1)
    features = BoostedFeatures(n_trees=12, max_depth=3).fit(views["S"], y)
    initial = initial_score(y, n_classes)
    parameters = lightgbm_parameters(n_classes) | {
        "learning_rate": 0.1,
        "max_depth": 3,
        "num_leaves": 8,
        "min_data_in_leaf": 20,
        "num_threads": 1,
        "seed": 0,
    }
    data = lightgbm.Dataset(
        views["S"].matrix(),
        label=y,
        init_score=np.repeat(initial, len(y)),
        categorical_feature=list(views["S"].categorical),
        params=parameters,
    )
    booster = lightgbm.train(parameters, data, num_boost_round=12)
    raw = booster.predict(held["S"].matrix(), raw_score=True).reshape(len(held), -1) + initial
    np.testing.assert_allclose(features.gbm_.raw_score(held["S"]), raw, rtol=1e-5, atol=1e-5)
    trees_per_stage = 1 if n_classes == 2 else n_classes
    vectors = features.transform(held["S"])
    assert vectors.shape == (150, 12 * trees_per_stage)
    total = vectors.reshape(150, 12, trees_per_stage).sum(axis=1)
    np.testing.assert_allclose(initial + 0.1 * total, raw, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_identity_against_sklearns_gbm(n_classes):
    views, y = make_views(n_classes, n=300)
    table = views["S"]
    features = BoostedFeatures(n_trees=8, engine="sklearn", min_samples_leaf=5).fit(table, y)
    gbm = GradientBoostingClassifier(n_estimators=8, max_depth=3, min_samples_leaf=5, random_state=0)
    x = np.ascontiguousarray(table.matrix())
    gbm.fit(x, y)
    raw = gbm.decision_function(x).reshape(len(y), -1)
    np.testing.assert_allclose(features.gbm_.raw_score(table), raw, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(features.gbm_.probabilities(table), gbm.predict_proba(x), atol=1e-4)
    column = gbm.estimators_[2, 0].predict(x)  # stage 2, first class
    np.testing.assert_allclose(
        features.transform(table)[:, 2 * gbm.estimators_.shape[1]], column, rtol=1e-4, atol=1e-6
    )


def test_out_of_fold_features_do_not_know_their_label():
    """A number that identifies the row lets in-sample leaves repeat noise labels; out of fold they cannot."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    table = Table.from_numeric(np.column_stack([rng.permutation(400) for _ in range(4)]))
    settings = BoostedFeatures(n_trees=40, max_depth=5, min_samples_leaf=2)
    inside = settings.fit(table, y).transform(table).sum(axis=1)
    outside = np.full(400, np.nan)
    seen = []
    for rows, block in settings.out_of_fold(table, y, 4):
        outside[rows] = block.sum(axis=1)
        seen.append(rows)
    assert sorted(np.concatenate(seen)) == list(range(400))
    assert np.corrcoef(inside, y)[0, 1] > 0.7
    assert abs(np.corrcoef(outside, y)[0, 1]) < 0.2


def test_tiny_data_keep_the_shape():
    table, y = Table.from_numeric(np.arange(10, dtype=float)[:, None]), np.array([0, 1] * 5)
    assert BoostedFeatures(n_trees=4).fit(table, y).transform(table).shape == (10, 4)
    refuses("unknown GBM engine", BoostedFeatures(engine="catboost").fit, table, y)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("depth", "bytes_each"), [(3, 1), (9, 2)])
def test_leaf_numbers_give_the_networks_of_their_float32_values(depth, bytes_each, weighted):
    views, y = make_views(2, n=700)
    gbm = BoostedFeatures(n_trees=70, max_depth=depth, min_samples_leaf=1).fit(views["S"], y).gbm_
    assert gbm.coded(views["S"]).codes.itemsize == bytes_each
    values = views.with_view(BFV, Table.from_numeric(gbm.features(views["S"])))
    weights = np.random.default_rng(0).integers(1, 4, len(y)) / 2 if weighted else None
    held, plain = (
        on_features(gbm=gbm, validation_fraction=0.2).fit(given, y, sample_weight=weights)
        for given in (views, values)
    )
    np.testing.assert_array_equal(held.mean_, plain.mean_)
    np.testing.assert_array_equal(held.scale_, plain.scale_)
    np.testing.assert_array_equal(held.predict_proba(views), plain.predict_proba(values))
