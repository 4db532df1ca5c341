"""Small tables are scored by k-fold, stratified if there are classes; a seed is one repetition."""

import time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold

from tasks import tracking
from tasks.fits.cell import Cell
from tasks.folders import prepared_folder
from usboost.data.encoding import TableEncoder
from usboost.data.views import Views
from usboost.datasets import store


def fit_folds(
    cell: Cell,
) -> tuple[dict[str, dict[str, float]], list[dict[str, float]], pd.DataFrame, dict[str, Any]]:
    """Fit and score a model on every fold of one repetition; the mean of the folds is the seed's score.

    Returns that mean as the scores of the split "test", each fold's scores, the mean of their rounds, and
    the longest fit's rounds and the seconds of all. Encoders are fitted on each fold's training rows only.
    """
    card = store.read_card(prepared_folder(cell.dataset))
    frame = store.read_frame(prepared_folder(cell.dataset), "train")
    y = frame[store.LABEL].to_numpy()
    folds = StratifiedKFold if card["classes"] else KFold
    scored, traces, seconds = [], [], 0.0
    splits = folds(card["folds"], shuffle=True, random_state=cell.seed).split(y, y)
    for number, (train, test) in enumerate(splits):
        fitted = frame.iloc[train]
        encoders = {view: TableEncoder.fit(fitted, names) for view, names in card["views"].items()}
        views, views_test = (
            Views({view: encoder.transform(rows) for view, encoder in encoders.items()})
            for rows in (fitted, frame.iloc[test])
        )
        estimator = clone(cell.estimator)
        started = time.perf_counter()
        estimator.fit(views, y[train])
        seconds += time.perf_counter() - started
        scored.append(cell.task.score(y[test], cell.task.predict(estimator, views_test)))
        traces.append(tracking.history_frame(estimator.history_, cell.seed).assign(fold=number))
    scores = {"test": {name: float(np.mean([fold[name] for fold in scored])) for name in scored[0]}}
    trace = pd.concat(traces, ignore_index=True).groupby("round", as_index=False).mean(numeric_only=True)
    trace = trace.drop(columns="fold").astype({"seed": "int64", "round": "int64"})
    return scores, scored, trace, {"rounds": max(map(len, traces)), "fit_seconds": seconds}
