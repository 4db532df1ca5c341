"""Columns of text through the command line and the estimators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from tests.fit.conftest import accepted
from usboost.fit.estimator import MultimodalClassifier, MultimodalRegressor


def table(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.choice(["fruit", "tool"], n)
    noun = [rng.choice({"fruit": ["apple", "pear"], "tool": ["hammer", "saw"]}[each]) for each in kind]
    title = [f"{rng.choice(['big', 'red', 'old'])} {each} {k}" for k, each in enumerate(noun)]
    return pd.DataFrame(
        {"title": title, "noun": noun, "width": rng.normal(size=n), "key": [f"k{k}" for k in range(n)]}
    ).assign(kind=kind)


def test_the_commands(tmp_path: Path) -> None:
    path, model = tmp_path / "t.csv", tmp_path / "model"
    table().to_csv(path, index=False)
    roles = (path, "--label", "kind", "--text", "noun")
    fitted = accepted("fit", *roles, "--rounds", 3, "--out", model)
    assert fitted.stderr.count("64 components of character n-grams") == 2
    assert "column 'key' is left out: each row has its own value" in fitted.stderr
    accepted("predict", model, path, "--out", tmp_path / "p.csv")
    assert (pd.read_csv(tmp_path / "p.csv")["label"] == table()["kind"]).mean() > 0.9
    accepted("report", model, path, "--label", "kind", "--out", tmp_path / "r.html")
    assert "__text_" not in (tmp_path / "r.html").read_text()
    accepted("compare", *roles, "--models", "lgbm,logistic", "--folds", 2, "--rounds", 3)


def test_the_estimators(tmp_path: Path) -> None:
    X = table().drop(columns="kind")
    classifier = MultimodalClassifier(rounds=3, text="noun").fit(X, table()["kind"])
    assert classifier.bundle_.card.columns == {"title": "text", "noun": "text", "width": "number"}
    classifier.save(tmp_path / "model")
    loaded = MultimodalClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    y = X["title"].str.contains("apple") * 10.0 + X["width"]
    regressor = MultimodalRegressor(rounds=3).fit(X, y)
    assert np.corrcoef(regressor.predict(X), y)[0, 1] > 0.8
