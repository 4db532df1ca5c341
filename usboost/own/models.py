"""The named models with settings for one computer: what `fit` and `compare` train."""

from __future__ import annotations

from typing import Any

from usboost.base import ViewsClassifier
from usboost.bfv import BoostedFeatures
from usboost.boosted_features import BoostedFeatureNetworkClassifier
from usboost.errors import UsboostError
from usboost.fusion import TwoBranchNetworkClassifier
from usboost.learners.base import Learner
from usboost.learners.networks import NetworkLearner
from usboost.learners.trees import TreeLearner
from usboost.outsider import LightGBMOutsider
from usboost.own.choices import MODELS
from usboost.two_weak_learner import TwoWeakLearnerClassifier

ROUNDS = {"boosting": 100, "networks": 40, "lightgbm": 2000}
"""At most so many rounds, epochs and trees; the validation rows stop them earlier."""

RATE = 0.003
BATCH = 128

_BOTH = ("U", "S")
# by model: views, and what of the classifier's parameters is not the papers'
_BOOSTING: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "2wl": (_BOTH, {}),
    "2wl2o": (_BOTH, {"target": "second_order"}),
    "2wl_newton": (_BOTH, {"target": "newton", "shrinkage": 0.3}),
    "2wl_logistic": (
        _BOTH,
        {"target": "newton", "shrinkage": 0.3, "loss": "cross_entropy", "monitor": "risk_val"},
    ),
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
        return LightGBMOutsider(
            ("U", "S") if both else ("S",), n_trees=rounds or ROUNDS["lightgbm"], random_state=seed
        )
    if name in _BOOSTING:
        read, settings = _BOOSTING[name]
        learners: dict[str, Learner] = {
            "U": NetworkLearner(
                hidden=(32,) if pictures else (100, 50),
                learning_rate=RATE,
                batch_size=BATCH,
                start="warm",
            ),
            "S": TreeLearner(max_depth=3),
        }
        return TwoWeakLearnerClassifier(
            {view: learners[view] for view in read},
            n_rounds=rounds or ROUNDS["boosting"],
            patience=20,
            random_state=seed,
            **settings,
        )
    network = TwoBranchNetworkClassifier(
        dnn1=(32,) if pictures else (100, 50),
        learning_rate=RATE,
        batch_size=BATCH,
        n_epochs=rounds or ROUNDS["networks"],
        patience=8,
        random_state=seed,
    )
    if name == "baseline":
        return network
    features = BoostedFeatures(n_trees=200, max_depth=3, random_state=seed)
    return BoostedFeatureNetworkClassifier(features, network, random_state=seed)


def check(name: str) -> None:
    """Refuse a name that is no model's."""
    if name not in MODELS:
        raise UsboostError(f"there is no model {name!r}; choose among {', '.join(MODELS)}")
