"""The named models with settings for one computer: what `fit` and `compare` train."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from usboost.errors import UsboostError
from usboost.learners.base import Learner
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.trees.learner import TreeLearner
from usboost.models.base import ViewsClassifier
from usboost.models.baselines import LightGBMBaseline
from usboost.models.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.gbm import BoostedFeatures
from usboost.models.two_branch import TwoBranchNetworkClassifier
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier
from usboost.multimodal.choices import MODELS

ROUNDS = {"boosting": 100, "crossed": 500, "networks": 40, "lightgbm": 2000}
"""At most so many rounds, epochs and trees; the validation rows stop them earlier."""

RATE = 0.003
BATCH = 128

_BOTH = ("U", "S")
_LOGISTIC: dict[str, Any] = {"target": "newton", "loss": "cross_entropy", "monitor": "risk_val"}
# by model: views, and what of the classifier's parameters is not the papers'
_BOOSTING: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "2wl": (_BOTH, {}),
    "2wl2o": (_BOTH, {"target": "second_order"}),
    "2wl_newton": (_BOTH, {"target": "newton", "shrinkage": 0.3}),
    "2wl_logistic": (_BOTH, {"shrinkage": 0.3, **_LOGISTIC}),
    "crossed": (_BOTH, {"shrinkage": 0.1, **_LOGISTIC}),
    "1wl_u": (("U",), {}),
    "1wl_s": (("S",), {}),
}


def build(name: str, *, pictures: bool, seed: int = 0, rounds: int | None = None) -> ViewsClassifier:
    """An unfitted model.

    Parameters
    ----------
    name : of `choices.MODELS`.
    pictures : whether the view U holds pictures, read by a small CNN, or the table itself.
    rounds : boosting rounds, epochs or trees at most; by default those of `ROUNDS`.

    Raises
    ------
    UsboostError
        If there is no such model.
    """
    check(name)
    if name in ("lgbm", "lgbm_s"):
        both = pictures and name == "lgbm"
        return LightGBMBaseline(
            ("U", "S") if both else ("S",), n_trees=rounds or ROUNDS["lightgbm"], random_state=seed
        )
    if name in _BOOSTING:
        read, settings = _BOOSTING[name]
        crossed = name == "crossed"
        if crossed and pictures:  # without pictures both views are the whole table
            read = ("U+S", "S+U")
        network = NetworkLearner(
            hidden=(32,) if pictures and not crossed else (100, 50),
            learning_rate=RATE,
            batch_size=BATCH,
            start="warm",
        )
        leafwise = {"max_depth": 12, "max_leaves": 31, "category_l2": 300.0}
        tree = TreeLearner(**(leafwise if crossed else {"max_depth": 3}))
        learners: dict[str, Learner] = {
            view: clone(network if view[0] == "U" else tree).set_params(reads=tuple(view.split("+")))
            for view in read
        }
        return TwoWeakLearnerClassifier(
            learners,
            n_rounds=rounds or ROUNDS.get(name, ROUNDS["boosting"]),
            patience=20,
            random_state=seed,
            **settings,
        )
    branches = TwoBranchNetworkClassifier(
        dnn1=(32,) if pictures else (100, 50),
        learning_rate=RATE,
        batch_size=BATCH,
        n_epochs=rounds or ROUNDS["networks"],
        patience=8,
        random_state=seed,
    )
    if name == "baseline":
        return branches
    features = BoostedFeatures(n_trees=200, max_depth=3, random_state=seed)
    return BoostedFeatureNetworkClassifier(features, branches, random_state=seed)


def check(name: str) -> None:
    """Refuse a name that is no model's."""
    if name not in MODELS:
        raise UsboostError(f"there is no model {name!r}; choose among {', '.join(MODELS)}")
