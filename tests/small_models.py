"""Classifiers that fit in a blink."""

from __future__ import annotations

from typing import Any

from usboost.bfv import BoostedFeatures
from usboost.boosted_features import BoostedFeatureNetworkClassifier
from usboost.fusion import TwoBranchNetworkClassifier
from usboost.learners.networks import NetworkLearner
from usboost.learners.trees import TreeLearner
from usboost.outsider import LightGBMOutsider
from usboost.two_weak_learner import TwoWeakLearnerClassifier


def network(**changes: Any) -> NetworkLearner:
    return NetworkLearner(**{"hidden": (5,), "batch_size": 64, "device": "cpu", **changes})


def boosting(**changes: Any) -> TwoWeakLearnerClassifier:
    learners = {"U": network(), "S": TreeLearner(min_samples_leaf=5)}
    return TwoWeakLearnerClassifier(**{"learners": learners, "n_rounds": 4, **changes})


def two_branches(**changes: Any) -> TwoBranchNetworkClassifier:
    settings = {"dnn1": (4,), "dnn2": (4,), "dnn3": (4,), "n_epochs": 4, "device": "cpu"}
    return TwoBranchNetworkClassifier(**{**settings, **changes})


def on_features(**changes: Any) -> BoostedFeatureNetworkClassifier:
    return BoostedFeatureNetworkClassifier(BoostedFeatures(n_trees=6), two_branches(), **changes)


def outsider(**changes: Any) -> LightGBMOutsider:
    return LightGBMOutsider(**{"n_trees": 6, **changes})
