"""A script without the tests' modules that fits, saves, loads and predicts; its argument is a folder."""

import sys
from pathlib import Path

import numpy as np

import usboost
from usboost import BoostedNetworkClassifier, LightGBMBaseline, Table, TwoWeakLearnerClassifier, Views

rng = np.random.default_rng(0)
signal, columns = rng.normal(size=(200, 4)), rng.normal(size=(200, 3))
labels = np.where(signal[:, 0] + columns[:, 0] > 0, "yes", "no")
views = Views(U=Table.from_numeric(signal), S=Table.from_numeric(columns))

for model, X in (
    (TwoWeakLearnerClassifier(n_rounds=3), views),
    (LightGBMBaseline(n_trees=5), views),
    (BoostedNetworkClassifier(n_rounds=3), np.hstack([signal, columns])),
):
    folder = Path(sys.argv[1]) / type(model).__name__
    usboost.save(model.fit(X, labels), folder)
    again = usboost.load(folder)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.mean(again.predict(X) == labels) > 0.7
sys.stdout.write(f"{usboost.__version__} {usboost.__file__}\n")
