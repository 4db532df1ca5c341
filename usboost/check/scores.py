"""A quick model of a table's rows: what a grouping is worth to it, and which labels it does not believe."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from usboost.errors import UsboostError, silenced
from usboost.evaluation.folds import Related, Split, inner_folds
from usboost.table.user_table import UserTable

FOLDS, ROWS = 5, 4000
"""Limits of the quick model; of more rows, a sample of whole groups is drawn to compare folds."""

MOST = 50
"""Labels that are said to look wrong."""

_TREES, _AXES = 60, 64
_KNOWN = 0.8  # share of a class's rows that are predicted right, of a class that can be known
_WRONG, _SHARE = 0.15, 0.005  # probability of a wrong label, of the other's; share of rows that needs no word


@dataclass(frozen=True)
class Flattery:
    """Scores of the quick model ("accuracy" or "R²") by random folds, and with groups together.

    `low`, `high`: a 95 % interval of their difference over groups; `worse`: how much larger the loss is with
    groups together, in losses of a constant; `z`: that in standard errors.
    """

    score: str
    random: float
    together: float
    low: float
    high: float
    worse: float
    z: float

    def __str__(self) -> str:
        both = f"{self.score} {self.random:.3f}; with these rows together {self.together:.3f}"
        return f"a quick model by random folds: {both} (less by {self.low:.3f} to {self.high:.3f})"


def matrix_of(table: UserTable, images: list[np.ndarray]) -> np.ndarray:
    """Return what the quick model reads: columns, and axes of the images, float32 (n, p)."""
    found = table.fit_encoding(np.arange(len(table))).views(table.features, {})["S"].matrix()
    return np.concatenate([found, *(units[:, :_AXES] for units in images)], axis=1)


def out_of_fold(x: np.ndarray, y: np.ndarray, splits: list[Split]) -> np.ndarray:
    """Predict each row by a fit to the other folds: float64 (n, M), or (n,); NaN for rows in none."""
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    is_number = y.dtype.kind == "f"
    out = np.full(len(y) if is_number else (len(y), int(y.max()) + 1), np.nan)
    for train, held in splits:
        made = (ExtraTreesRegressor if is_number else ExtraTreesClassifier)(_TREES, random_state=0)
        made.fit(x[train], y[train])
        if is_number:
            out[held] = made.predict(x[held])
        else:
            out[held] = 0.0
            out[np.ix_(held, made.classes_)] = made.predict_proba(x[held])
    return out


def flattery(x: np.ndarray, y: np.ndarray, codes: np.ndarray) -> Flattery | None:
    """Score the quick model by both kinds of folds; None where groups cannot be held out.

    `y`: class codes int64, or numbers float64, (n,); `codes`: of the groups, int64 (n,).
    """
    order = np.random.default_rng(0).permutation(int(codes.max()) + 1)[codes]
    rows = np.sort(np.argsort(order, kind="stable")[:ROWS])
    x, y, codes = x[rows], y[rows], np.unique(codes[rows], return_inverse=True)[1]
    y = y if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1]
    try:
        by_group = inner_folds(y, FOLDS, 0, Related(groups=codes))
        random = inner_folds(y, FOLDS, 0)
    except UsboostError:
        return None
    predicted = [out_of_fold(x, y, splits) for splits in (random, by_group)]
    judged = ~np.isnan(np.stack([each.reshape(len(y), -1)[:, 0] for each in predicted])).any(axis=0)
    y, codes = y[judged], np.unique(codes[judged], return_inverse=True)[1]
    apart, together = (each[judged] for each in predicted)
    if y.dtype.kind == "f":
        losses = [(each - y) ** 2 / max(y.var(), 1e-12) for each in (apart, together)]
        scores, name = [1 - each for each in losses], "R²"
    else:
        true = np.eye(apart.shape[1])[y]
        prior = float(((true - true.mean(axis=0)) ** 2).sum(axis=1).mean())
        losses = [((each - true) ** 2).sum(axis=1) / max(prior, 1e-12) for each in (apart, together)]
        scores, name = [(each.argmax(axis=1) == y).astype(float) for each in (apart, together)], "accuracy"
    worse, z = _over_groups(losses[1] - losses[0], codes)[:2]
    more, _, error = _over_groups(scores[0] - scores[1], codes)
    first, second = (float(each.mean()) for each in scores)
    return Flattery(name, first, second, more - 1.96 * error, more + 1.96 * error, worse, z)


def _over_groups(values: np.ndarray, codes: np.ndarray) -> tuple[float, float, float]:
    """Return the mean over rows, that in standard errors over groups, and the standard error."""
    mean = float(values.mean())
    sums = np.bincount(codes, weights=values - mean)
    error = float(np.sqrt((sums**2).sum() * len(sums) / max(len(sums) - 1, 1))) / len(values)
    return mean, mean / max(error, 1e-9), error


def skill(values: np.ndarray, y: np.ndarray) -> float:
    """Return how well one number of each row, float64 (n,), predicts the label: 0 not at all, 1 wholly.

    By a tree of 32 leaves, out of fold: R² of ranks, or the accuracy as if classes were equally frequent,
    beyond chance. NaN is a value.
    """
    from sklearn.metrics import balanced_accuracy_score, r2_score
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    x, folds = np.asarray(values, dtype=np.float64)[:, None], KFold(FOLDS, shuffle=True, random_state=0)
    if y.dtype.kind == "f":
        ranks, tree = pd.Series(y).rank().to_numpy(), DecisionTreeRegressor(max_leaf_nodes=32)
        return float(r2_score(ranks, cross_val_predict(tree, x, ranks, cv=folds)))
    tree = DecisionTreeClassifier(max_leaf_nodes=32, class_weight="balanced", random_state=0)
    with silenced("y_pred contains classes"):
        return float(balanced_accuracy_score(y, cross_val_predict(tree, x, y, cv=folds), adjusted=True))


def tells(values: np.ndarray, y: np.ndarray) -> float:
    """Return the `skill` of a number for the label, or for a class of 20 rows or more against the others."""
    found = [skill(values, y)]
    if y.dtype.kind != "f" and y.max() > 1:
        often = np.flatnonzero(np.bincount(y) >= 20)
        found += [skill(values, (y == code).astype(np.int64)) for code in often]
    return max(found)


def wrong_labels(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return rows whose label looks wrong, the likeliest first; none where chance leaves as many.

    Confident learning: another class has at least the mean probability that its own rows give it, and the
    label far less, although most rows of that label are predicted right. Chance: `_SHARE` of the rows, by an
    exact test at 1 in 100. `predicted`: out of fold, float64 (n, M), NaN for rows in no fold.
    """
    known = ~np.isnan(predicted[:, 0])
    own = np.where(known, predicted[np.arange(len(y)), y], np.nan)
    right = pd.Series(np.nan_to_num(predicted).argmax(axis=1) == y)[known].groupby(y[known]).mean()
    usual = pd.Series(own).groupby(y).mean().reindex(range(predicted.shape[1])).fillna(2.0).to_numpy()
    above = np.nan_to_num(predicted) - usual
    above[np.arange(len(y)), y] = -1.0
    sure = (above.max(axis=1) >= 0) & (own <= _WRONG * np.nan_to_num(predicted).max(axis=1))
    sure &= known & (right.reindex(y).fillna(0.0).to_numpy() >= _KNOWN)
    if stats.binom.sf(sure.sum() - 1, known.sum(), _SHARE) > 0.01:
        return np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(sure)
    return rows[np.argsort(own[rows] - predicted[rows].max(axis=1), kind="stable")][:MOST]
