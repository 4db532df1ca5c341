"""Boosted features by hand: the GBM, its folds and the network have the fit's weights, groups and seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from usboost import BoostedFeatures, Table, TwoBranchNetworkClassifier, Views
from usboost.evaluation.folds import Related
from usboost.models.methods.bfv_network import BFV, BoostedFeatureNetworkClassifier

RNG = np.random.default_rng(0)
N = 160
A, B = RNG.normal(size=(2, N, 3)).astype(np.float32)
Z = A[:, 0] + B[:, 1] * B[:, 2] + 0.5 * RNG.normal(size=N)
Y = (Z > 0.3).astype(int)
WEIGHTS = np.where(B[:, 0] > 0, 5.0, 1.0)
GROUPS = RNG.integers(0, 30, N)
VIEWS = Views(U=Table.from_numeric(A), S=Table.from_numeric(B))
NETWORK = TwoBranchNetworkClassifier(dnn1=(6,), dnn2=(6,), dnn3=(4,), n_epochs=2, device="cpu")


@pytest.mark.parametrize("out_of_fold", [False, True])
@pytest.mark.parametrize("groups", [None, GROUPS])
def test_by_hand(out_of_fold: bool, groups: Any) -> None:
    features = BoostedFeatures(4, min_samples_leaf=10)
    model = BoostedFeatureNetworkClassifier(
        features, NETWORK, out_of_fold=out_of_fold, validation_fraction=0, random_state=5
    )
    model.fit(VIEWS, Y, sample_weight=WEIGHTS, groups=groups)
    table = VIEWS["S"]
    gbm = BoostedFeatures(4, min_samples_leaf=10).fit(table, Y, WEIGHTS).gbm_
    read = gbm.features(table)
    np.testing.assert_array_equal(model.gbm_.features(table), read)
    if out_of_fold:
        related = None if groups is None else Related(groups=groups)
        for rows, block in features.out_of_fold(table, Y, weights=WEIGHTS, related=related):
            read[rows] = block
    mean = np.average(read, axis=0, weights=WEIGHTS)
    deviation = np.sqrt(np.average(np.square(read - mean), axis=0, weights=WEIGHTS))
    np.testing.assert_allclose(model.mean_, mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.scale_, 1 / deviation, rtol=1e-4)
    standardised = VIEWS.with_view(BFV, Table.from_numeric((read - model.mean_) * model.scale_))
    network = TwoBranchNetworkClassifier(**NETWORK.get_params(deep=False))
    network.set_params(views=("U", BFV), validation_fraction=0, random_state=5)
    network.fit(standardised, Y, sample_weight=WEIGHTS)
    expected = network.predict_proba(model._read_views(VIEWS))
    np.testing.assert_allclose(model.predict_proba(VIEWS), expected, atol=1e-6)


def test_features_out_of_fold_are_of_weighted_fits() -> None:
    features = BoostedFeatures(4, min_samples_leaf=10)
    for related in (None, Related(groups=GROUPS)):
        for unseen, block in features.out_of_fold(VIEWS["S"], Y, 3, WEIGHTS, related):
            seen = np.setdiff1d(np.arange(N), unseen)
            fitted = BoostedFeatures(4, min_samples_leaf=10).fit(VIEWS["S"][seen], Y[seen], WEIGHTS[seen])
            np.testing.assert_array_equal(block, fitted.transform(VIEWS["S"][unseen]))
