"""Classifiers that fit in a blink."""

from typing import Any

from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.baselines.trees import LightGBMBaseline
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.methods.boosted_features import BoostedFeatures
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier


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


def lgbm(**changes: Any) -> LightGBMBaseline:
    return LightGBMBaseline(**{"n_trees": 6, **changes})
