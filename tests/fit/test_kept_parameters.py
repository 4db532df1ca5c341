"""A model that was loaded is fitted again as it was fitted: its parameters are kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from tests.fit.conftest import accepted
from usboost import MultimodalClassifier, MultimodalRegressor

RNG = np.random.default_rng(0)
SHOP = RNG.integers(1, 12, 200)
Y = np.where((SHOP % 3 == 1) ^ (RNG.uniform(size=200) < 0.15), 1, 0)
X = pd.DataFrame({"shop": SHOP, "z": RNG.normal(size=200), "leak": Y + RNG.normal(size=200) * 0.1})
ROLES = {"categorical": "shop", "drop": "leak", "missing": ("-1", "x")}


@pytest.mark.filterwarnings("ignore::usboost.UsboostWarning")
@pytest.mark.parametrize(
    "given",
    [
        {"threshold": 0.3, "class_weight": "balanced", "calibrate": False, "rounds": 7},
        {"threshold": "f1", "class_weight": {np.int64(1): 2, 0: 1.5}, "refit": False, "positive": 1},
        {"model": None, "preset": "fast", "time_limit": np.float64(600), "random_state": None, "rounds": 3},
        {"images_root": Path(), "callbacks": [], "drop": ["leak"], "group": "z", "fast_predict": False},
    ],
)
def test_all_parameters_but_those_of_the_process(given: dict[str, Any], tmp_path: Path) -> None:
    model = MultimodalClassifier(**{"model": "logistic", **ROLES, **given}).fit(X, Y)
    model.save(tmp_path / "m")
    loaded = MultimodalClassifier.load(tmp_path / "m")
    before, after = model.get_params(), loaded.get_params()
    if isinstance(by_label := before["class_weight"], dict):  # as labels are named
        before["class_weight"] = {str(label): weight for label, weight in by_label.items()}
    for name in before.keys() - {"callbacks", "images_root", "random_state"}:
        kept = before[name]
        assert after[name] == (list(kept) if isinstance(kept, tuple) else kept), name
    expected = model.predict_proba(X)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    if given.get("random_state", 0) is not None and "time_limit" not in given:
        again = clone(loaded).fit(X, Y)
        np.testing.assert_array_equal(again.predict_proba(X), expected)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert cross_val_score(loaded, X, Y, cv=2).mean() < 0.95  # the dropped column is not read


@pytest.mark.filterwarnings("ignore::usboost.UsboostWarning")
def test_those_that_a_command_was_given(tmp_path: Path) -> None:
    X.assign(y=Y, w=1.0).to_csv(tmp_path / "t.csv", index=False)
    options = ("--categorical", "shop", "--drop", "leak", "--weight", "w", "--rounds", 7, "--no-calibrate")
    fit = ("fit", tmp_path / "t.csv", "--label", "y", "--model", "logistic", "--threshold", "0.3")
    accepted(*fit, *options, "--out", tmp_path / "m")
    loaded = MultimodalClassifier.load(tmp_path / "m")
    kept = loaded.get_params()
    assert (kept["rounds"], kept["threshold"], kept["calibrate"], kept["model"]) == (
        7,
        0.3,
        False,
        "logistic",
    )
    assert (kept["categorical"], kept["drop"]) == (["shop"], ["leak", "w"])
    again = clone(loaded).fit(X.assign(w=1.0), Y)
    np.testing.assert_allclose(again.predict_proba(X.assign(w=2.0)), loaded.predict_proba(X.assign(w=2.0)))


def test_a_card_sets_nothing_else(tmp_path: Path) -> None:
    MultimodalRegressor("ridge", drop="leak").fit(X, X.z * 2).save(tmp_path / "m")
    card = tmp_path / "m/card.json"
    document = json.loads(card.read_text())
    document["parameters"] |= {"images_root": "/", "callbacks": [1], "bundle_": 1, "fit": 2, "rounds": 9}
    card.write_text(json.dumps(document))
    loaded = MultimodalRegressor.load(tmp_path / "m")
    assert (loaded.images_root, loaded.callbacks, loaded.rounds, loaded.drop) == (None, None, 9, "leak")
    del document["parameters"]  # of a model that was saved before
    card.write_text(json.dumps(document))
    assert MultimodalRegressor.load(tmp_path / "m").model == "ridge"
