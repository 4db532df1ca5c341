"""Renaming the classes renames the answers and changes nothing else, for every boosting model."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.conftest import make_views
from usboost import BoostedNetworkClassifier, NetworkLearner, TreeLearner, TwoWeakLearnerClassifier
from usboost.learners.base import FittedLearner
from usboost.learners.networks import learner as networks

METHODS: dict[str, dict[str, Any]] = {
    "2WL": {},
    "2WL, fixed steps": {"step": "fixed"},
    "2WL2O": {"target": "second_order"},
    "2WL-Newton": {"target": "newton", "shrinkage": 0.3},
    "2WL-Logistic": {"target": "newton", "loss": "cross_entropy", "shrinkage": 0.3},
    "2WL on cross-entropy's gradient": {"loss": "cross_entropy"},
}
TREES: dict[str, TreeLearner] = {
    "a tree a class": TreeLearner(min_samples_leaf=5),
    "one tree": TreeLearner(min_samples_leaf=5, engine="histogram"),
    "leaf-wise": TreeLearner(min_samples_leaf=5, max_depth=8, max_leaves=7, category_l2=20.0),
    "some columns": TreeLearner(min_samples_leaf=5, feature_fraction=0.5),
}


def boosted(learners: dict[str, Any], method: str) -> TwoWeakLearnerClassifier:
    settings = {"n_rounds": 6, "patience": None, "validation_fraction": 0, **METHODS[method]}
    return TwoWeakLearnerClassifier(learners, **settings)


@pytest.mark.parametrize("trees", TREES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_classes", [3, 4, 7])
@settings(max_examples=2)
@given(seed=st.integers(0, 2**16))
def test_trees(n_classes: int, method: str, trees: str, seed: int) -> None:
    views, y = make_views(n_classes, n=250, seed=seed)
    renamed = np.random.default_rng(seed).permutation(n_classes)
    first = boosted({"S": TREES[trees]}, method).fit(views, y).predict_proba(views)
    second = boosted({"S": TREES[trees]}, method).fit(views, renamed[y]).predict_proba(views)
    np.testing.assert_allclose(second[:, renamed], first, atol=1e-6)


class _Renaming:
    """Initial weights with the last layer's rows in another order: the renamed problem's own."""

    def __init__(self, order: np.ndarray) -> None:
        self._order, self._drawn = torch.from_numpy(order), networks.initialise

    def __call__(self, network: nn.Module, seed: int) -> None:
        self._drawn(network, seed)
        last = [layer for layer in network.modules() if hasattr(layer, "draw_weights")][-1]
        with torch.no_grad():
            last.weight[self._order] = last.weight.clone()
            last.bias[self._order] = last.bias.clone()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_classes", [3, 4, 7])
def test_networks_and_trees(n_classes: int, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same seed and the output rows renamed, the network's sums only run in another order."""
    views, y = make_views(n_classes, n=250)
    renamed = np.random.default_rng(1).permutation(n_classes)
    learners = {"U": NetworkLearner((5,), batch_size=64, device="cpu"), "S": TREES["a tree a class"]}
    first = boosted(learners, method).fit(views, y).predict_proba(views)
    monkeypatch.setattr(networks, "initialise", _Renaming(renamed))
    second = boosted(learners, method).fit(views, renamed[y]).predict_proba(views)
    np.testing.assert_allclose(second[:, renamed], first, atol=2e-3)
    assert np.mean(second[:, renamed].argmax(axis=1) == first.argmax(axis=1)) > 0.98


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize("n_classes", [3, 4, 7])
def test_boosted_networks(n_classes: int, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    views, y = make_views(n_classes, n=200)
    renamed = np.random.default_rng(1).permutation(n_classes)
    own = BoostedNetworkClassifier(loss, NetworkLearner((6,), "adam", 0.01, 32, 3, device="cpu"), n_rounds=3)
    first = own.fit(views["U"], y).predict_proba(views["U"])
    monkeypatch.setattr(networks, "initialise", _Renaming(renamed))
    second = own.fit(views["U"], renamed[y]).predict_proba(views["U"])
    np.testing.assert_allclose(second[:, renamed], first, atol=2e-3)


def test_networks_minimise_the_error_in_the_metric() -> None:
    views, y = make_views(3, n=200)
    model = boosted({"U": NetworkLearner((6,), "adam", 0.02, 50, 20, device="cpu")}, "2WL-Newton")
    fitted: FittedLearner = model.fit(views, y).stages_[0].learners["U"]
    prepared = NetworkLearner(device="cpu").prepare(views["U"])
    output = fitted.predict(prepared).astype(np.float64)
    own = output[np.arange(200), y][:, None]
    # H at f = 0: a quarter of Σ_k (g_c − g_k − 2)²
    others = np.arange(3) != y[:, None]
    error = (0.25 * np.square(own - output - 2) * others).sum(axis=1).mean()
    assert error < 0.8 * (0.25 * 4 * 2)
