"""Earlyboost at every frame beside its peers, the trigger's figures, and boosted networks on Iris.

Peers are fitted anew for every prefix, on all its frames at once: one plain tree, and AdaBoost.
From the repository's root: ``USBOOST_DATA=... python -m benchmarks.speed.early [--repeats R]``; without
USBOOST_DATA only the bundled data sets are used.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.base import clone
from sklearn.ensemble import AdaBoostClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from usboost.datasets.sequences.read import SequenceSplit, digits_rows, iris, pendigits, ts_split
from usboost.models.boosted.boosted_network import BoostedNetworkClassifier
from usboost.models.boosted.early_trigger import EarlyTrigger
from usboost.models.boosted.earlyboost import EarlyBoostClassifier

CONSOLE = Console(width=130)


def tree(depth: int | None) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_depth=depth, random_state=0)


def curve_of_earlyboost(model: EarlyBoostClassifier, data: SequenceSplit) -> tuple[list[float], float]:
    """Test accuracy after every frame, and seconds of the fit."""
    start = time.perf_counter()
    model.fit(data.X_train, data.y_train)
    spent = time.perf_counter() - start
    return [float(np.mean(a == data.y_test)) for a in model.staged_predict(data.X_test)], spent


def curve_of_prefixes(model: Any, data: SequenceSplit, frames: list[int]) -> tuple[list[float], float]:
    """Test accuracy of a model fitted to each prefix, and seconds of all those fits."""
    out, spent = [], 0.0
    for t in frames:
        seen, unseen = (np.asarray(X)[:, :t].reshape(len(X), -1) for X in (data.X_train, data.X_test))
        start = time.perf_counter()
        fitted = clone(model).fit(seen, data.y_train)
        spent += time.perf_counter() - start
        out.append(float(np.mean(fitted.predict(unseen) == data.y_test)))
    return out, spent


def accuracy_over_time(title: str, data: SequenceSplit, frames: list[int]) -> None:
    table = Table(title=f"{title}: accuracy after t frames")
    for column in ("", *map(str, frames), "fit (s)"):
        table.add_column(column, justify="right")

    def row(name: str, accuracies: list[float], spent: float) -> None:
        table.add_row(name, *(f"{a:.3f}" for a in accuracies), f"{spent:.1f}")

    for name, weak in (
        ("Earlyboost, trees of depth 1", tree(1)),
        ("Earlyboost, trees of depth 3 (default)", tree(3)),
        ("Earlyboost, trees of depth 5", tree(5)),
        ("Earlyboost, logistic regression", LogisticRegression(max_iter=500)),
    ):
        accuracies, spent = curve_of_earlyboost(EarlyBoostClassifier(weak), data)
        row(name, [accuracies[t - 1] for t in frames], spent)
    for name, peer in (
        ("a tree of depth 3 per prefix", tree(3)),
        ("a full tree per prefix", tree(None)),
        ("AdaBoost, 50 trees of depth 3, per prefix", AdaBoostClassifier(tree(3), random_state=0)),
    ):
        row(name, *curve_of_prefixes(peer, data, frames))
    CONSOLE.print(table)


def trigger(title: str, data: SequenceSplit, thresholds: list[float]) -> None:
    """The figures by threshold, and the threshold that cross-validation on the training data would take."""
    table = Table(title=f"{title}: the trigger on class probability")
    for column in (
        "threshold",
        "harmonic mean",
        "accuracy",
        "earliness",
        "harmonic mean, 5-fold on training",
    ):
        table.add_column(column, justify="right")
    X, y = np.asarray(data.X_train), data.y_train
    folds = []
    for seen, unseen in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        model = EarlyBoostClassifier().fit(X[seen], y[seen])
        folds.append(
            [EarlyTrigger(threshold=h).use(model).score(X[unseen], y[unseen])[0] for h in thresholds]
        )
    by_folds = np.mean(folds, axis=0)
    model = EarlyBoostClassifier().fit(X, y)
    for threshold, inside in zip(thresholds, by_folds):
        figures = EarlyTrigger(threshold=threshold).use(model).score(data.X_test, data.y_test)
        mark = " *" if inside == by_folds.max() else ""
        table.add_row(f"{threshold:g}", *(f"{figure:.3f}" for figure in figures), f"{inside:.3f}{mark}")
    CONSOLE.print(table)


def boosted_networks(repeats: int) -> None:
    X, y = iris()
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=0)
    table = Table(title=f"Iris: accuracy, stratified 5-fold repeated {repeats} times, standardised columns")
    for column in ("", "accuracy", "std of the repeats", "fit (s)"):
        table.add_column(column, justify="right")
    models: dict[str, Any] = {
        f"BNN, {loss.replace('_', '-')}, {rounds} network{'s' * (rounds > 1)}": BoostedNetworkClassifier(
            loss, n_rounds=rounds
        )
        for loss in ("squared", "cross_entropy")
        for rounds in (1, 5, 10)
    }
    for name, model in {**models, "logistic regression": LogisticRegression()}.items():
        start = time.perf_counter()
        scores = cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=folds)
        spent = (time.perf_counter() - start) / len(scores)
        means = scores.reshape(repeats, 5).mean(axis=1)
        table.add_row(name, f"{means.mean():.4f}", f"{means.std():.4f}", f"{spent:.2f}")
    CONSOLE.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repeats", type=int, default=5, help="repetitions of the 5 folds on Iris (default: 5)"
    )
    options = parser.parse_args()

    thresholds = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    digits = digits_rows()
    accuracy_over_time("Digits by rows, T = 8, d = 8, K = 10", digits, list(range(1, 9)))
    trigger("Digits by rows", digits, thresholds)
    folder = os.environ.get("USBOOST_DATA")
    if folder:
        pen = pendigits(Path(folder) / "pendigits")
        accuracy_over_time("Pen-digits, official split, T = 8, d = 2, K = 10", pen, list(range(1, 9)))
        trigger("Pen-digits", pen, thresholds)
        gun = ts_split(Path(folder) / "gunpoint", "GunPoint")
        accuracy_over_time(
            "GunPoint, official split, T = 150, d = 1, K = 2", gun, [1, 15, 30, 45, 60, 75, 100, 150]
        )
        trigger("GunPoint", gun, [0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999])
    boosted_networks(options.repeats)


if __name__ == "__main__":
    main()
