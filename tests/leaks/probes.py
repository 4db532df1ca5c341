"""Rows spoiled on purpose, and what a fit did to its training rows.

A probe fits twice, once with spoiled rows that the fit must not learn from, and wants the same model to the
last bit; then it spoils rows that it may learn from and wants another one, or it would prove nothing.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from usboost import LightGBMBaseline, Table, Views
from usboost.table.columns.texts import holds_text
from usboost.table.user_table import UserTable


def spoiled(views: Views, rows: np.ndarray) -> Views:
    """Tables whose rows have numbers far away, of the other sign, and other categories."""
    return Views({name: _spoiled(views[name], rows) for name in views.names})


def _spoiled(table: Any, rows: np.ndarray) -> Table:
    numeric, codes = table.numeric.copy(), table.codes.copy()
    numeric[rows] = -40 * numeric[rows] + 7
    codes[rows] = codes[rows] % (np.asarray(table.cardinalities) - 1) + 1
    return replace(table, numeric=numeric, codes=codes)


def spoiled_table(table: UserTable, rows: np.ndarray, *, labels: bool = False) -> UserTable:
    """A user's table whose rows have huge and missing numbers, unknown categories and
    texts of unknown words.

    With `labels` the rows are of the next class, too.
    """
    features = table.features.copy()
    for name in features:
        if isinstance(features[name].dtype, pd.CategoricalDtype):
            features[name] = features[name].cat.add_categories(["never seen"])
            features.iloc[rows, features.columns.get_loc(name)] = "never seen"
        elif holds_text(features[name]):
            features.iloc[rows, features.columns.get_loc(name)] = "words never seen, many words"
            features.iloc[rows[::2], features.columns.get_loc(name)] = np.nan
        else:
            features[name] = features[name].astype(float)
            features.iloc[rows, features.columns.get_loc(name)] = 1e9
            features.iloc[rows[::2], features.columns.get_loc(name)] = np.nan
    codes = table.labels.copy()
    if labels:
        codes[rows] = (codes[rows] + 1) % len(table.classes)
    return replace(table, features=features, labels=codes)


def training(model: Any) -> np.ndarray:
    """What a fit did to its training rows, round by round, whichever round it kept.

    LightGBM tells nothing of them; its trees stand for it.
    """
    if isinstance(model, LightGBMBaseline):
        return grown(model)
    names = [
        name
        for name in model.history_[0]
        if not name.endswith("_val") and not name.startswith("seconds") and name != "round"
    ]
    return np.array([[row[name] for name in names] for row in model.history_])


def watched(model: Any) -> np.ndarray:
    """What the rows that tell when to stop had to say of each round."""
    return np.array([row["risk_val"] for row in model.history_])


def grown(model: LightGBMBaseline) -> np.ndarray:
    """All leaf values and thresholds, tree by tree."""
    return np.concatenate([np.concatenate([tree.value.ravel(), tree.threshold]) for tree in model.gbm_.trees])


def same_start(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two fits did the same until the shorter one stopped."""
    n = min(len(one), len(other))
    assert n > 1
    return np.array_equal(one[:n], other[:n])
