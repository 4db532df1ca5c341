"""Small tables are scored by k-fold, stratified if there are classes; a seed is one repetition."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold

from tasks import tracking
from tasks.fits.identity import Planned
from tasks.fits.results import RECORD, TRACE
from tasks.folders import prepared_folder
from tasks.pages.origin import made_by
from usboost.data.encoding import TableEncoder
from usboost.data.views import Views
from usboost.datasets.prepared import store


def fit_folds(planned: Planned, out: Path, run_id: str) -> dict[str, Any]:
    """Fit and score a model on every fold of one repetition; the mean of the folds is the seed's score.

    Encoders are fitted on each fold's training rows only. MLflow gets the mean of the folds' rounds, and
    each fold's scores; a run for each fold would hide the others.
    """
    dataset, model, seed = planned.dataset, planned.model, planned.seed
    card = store.read_card(prepared_folder(dataset))
    frame = store.read_frame(prepared_folder(dataset), "train")
    y, classes = frame[store.LABEL].to_numpy(), bool(card["classes"])
    folds = (StratifiedKFold if classes else KFold)(card["folds"], shuffle=True, random_state=seed)
    scored, traces, seconds = [], [], 0.0
    for number, (seen, unseen) in enumerate(folds.split(y, y)):
        fitted, held = frame.iloc[seen], frame.iloc[unseen]
        encoders = {view: TableEncoder.fit(fitted, names) for view, names in card["views"].items()}
        views, views_held = (
            Views({view: encoder.transform(rows) for view, encoder in encoders.items()})
            for rows in (fitted, held)
        )
        estimator = clone(planned.estimator)
        if number == 0:
            tracking.log_estimator(run_id, estimator, dataset=dataset, model=model, seed=seed)
        started = time.perf_counter()
        estimator.fit(views, y[seen])
        seconds += time.perf_counter() - started
        scored.append(planned.task.score(y[unseen], planned.task.predict(estimator, views_held)))
        traces.append(tracking.history_frame(estimator.history_, seed).assign(fold=number))
    scores = {"test": {name: float(np.mean([fold[name] for fold in scored])) for name in scored[0]}}
    rounds = max(len(trace) for trace in traces)
    tracking.log_scores(run_id, scores, rounds=rounds, fit_seconds=seconds, folds=len(scored))
    trace = pd.concat(traces, ignore_index=True)
    record = {
        "seed": seed,
        "fingerprint": planned.fingerprint,
        "rounds": rounds,
        "best_round": rounds,
        "fit_seconds": seconds,
        "scores": scores,
        "made": made_by(run_id),
    }
    (out / RECORD).write_text(json.dumps(record))
    mean = trace.groupby("round", as_index=False).mean(numeric_only=True).drop(columns="fold")
    mean = mean.astype({"seed": "int64", "round": "int64"})
    mean.to_parquet(out / TRACE, index=False)
    tracking.log_folds(run_id, mean, scored)
    return record
