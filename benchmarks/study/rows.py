"""How much of a difference is the test rows' own luck: what kept models say of the rows, drawn again.

``python -m benchmarks.study.results predict FOLDER`` reads the models of the plan's HEADLINES back from
MLflow and keeps each one's test predictions beside its record; `table` uses them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.tracking import MlflowClient
from scipy import stats

from benchmarks.study.plan import Cell
from usboost.datasets.prepared import store
from usboost.errors import UsboostError
from usboost.evaluation import metrics, names
from usboost.files import replacing
from usboost.models import persistence
from usboost.models.base import ViewsClassifier

DRAWS = 1000
FILE = "predicted/test.npz"
NAMES = names.NAMES | {"f1": "F1 at ½"}
SHOWN = {metric: NAMES[metric] for metric in ("f1", "f1_tuned", "log_loss")}


@dataclass(frozen=True)
class Predicted:
    """One fit's predictions on the test rows.

    Attributes
    ----------
    y : int array of shape (n,), classes 0..M−1
    probabilities : float array of shape (n, M)
    threshold : of class 1's probability, best on the validation rows; NaN for more than two classes
    """

    y: np.ndarray
    probabilities: np.ndarray
    threshold: float

    def classes(self, metric: str) -> np.ndarray:
        """The predicted classes that an F1 is of."""
        if metric == "f1":
            return np.asarray(self.probabilities.argmax(axis=1))
        return (self.probabilities[:, 1] >= self.threshold).astype(int)


def keep(folder: Path, cell: Cell) -> None:
    """Write the test predictions of a cell's model from MLflow, if they are not there yet.

    Raises
    ------
    UsboostError
        If the cell is not there, or the model does not have the scores of its record.
    """
    place = folder / cell.place
    if (place / FILE).is_file():
        return
    record = record_of(folder, cell)
    if record is None:
        raise UsboostError(f"{cell.results} has no result of seed {cell.seed}; fit the cell first")
    run = MlflowClient().get_run(record["made"]["mlflow_run"])
    model_id = run.outputs.model_outputs[0].model_id
    prepared = folder / cell.part / "data/prepared" / cell.dataset
    with tempfile.TemporaryDirectory() as temporary:
        got = mlflow.artifacts.download_artifacts(f"models:/{model_id}", dst_path=temporary)
        model = persistence.load(Path(got) / "artifacts" / "model")
        found = said(model, prepared)
    check(found, record["scores"]["test"], cell)
    with replacing(place / Path(FILE).parent) as fresh:
        kept = {"y": found.y, "probabilities": found.probabilities, "threshold": found.threshold}
        np.savez(fresh / Path(FILE).name, **kept)


def record_of(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """A cell's record among the results; None where it has not been fitted."""
    file = folder / cell.results / "scores.json"
    if not file.is_file():
        return None
    found = (record for record in json.loads(file.read_text())["seeds"] if record["seed"] == cell.seed)
    return next(found, None)


def said(model: ViewsClassifier, prepared: Path) -> Predicted:
    """What a model says of the test rows, with the threshold that is best on the validation rows."""
    views, y = store.read(prepared, "val")
    threshold = float("nan")
    if len(model.classes_) == 2:
        threshold = metrics.best_threshold(y, model.predict_proba(views)[:, 1])
    views, y = store.read(prepared, "test")
    return Predicted(y, model.predict_proba(views), threshold)


def check(found: Predicted, recorded: dict[str, float], cell: Cell) -> None:
    """Refuse a model that came back as another."""
    scored = metrics.score(found.y, found.probabilities)
    for metric in ("f1", "log_loss"):
        if abs(scored[metric] - recorded[metric]) > 1e-6:
            raise UsboostError(
                f"{cell.place}: the model in MLflow has {metric} {scored[metric]:.6f}, its record "
                f"{recorded[metric]:.6f}"
            )


def read(folder: Path, cell: Cell) -> Predicted | None:
    """What `keep` wrote."""
    path = folder / cell.place / FILE
    if not path.is_file():
        return None
    with np.load(path) as kept:
        return Predicted(kept["y"], kept["probabilities"], float(kept["threshold"]))


def interval(values: Sequence[float] | np.ndarray | pd.Series) -> tuple[float, float]:
    """Mean, and half the 95 % interval of Student's t; NaN for one value."""
    found = np.asarray(values, dtype=float)
    if len(found) < 2:
        return float(found.mean()), float("nan")
    spread = stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return float(found.mean()), float(spread)


def drawn(fits: Sequence[Predicted], metric: str, counts: np.ndarray) -> np.ndarray:
    """A metric's mean over fits on rows drawn again.

    Parameters
    ----------
    metric : of `SHOWN`
    counts : array of shape (draws, n), how often each test row is in each draw

    Returns
    -------
    float array of shape (draws,)
    """
    return np.mean([_drawn(fit, metric, counts) for fit in fits], axis=0)


def _drawn(fit: Predicted, metric: str, counts: np.ndarray) -> np.ndarray:
    n_classes = fit.probabilities.shape[1]
    if metric == "log_loss":
        clipped = np.clip(fit.probabilities.astype(float), 1e-12, None)
        losses = -np.log(clipped[np.arange(len(fit.y)), fit.y] / clipped.sum(axis=1))
        return counts @ losses / counts.sum(axis=1)
    each = np.eye(n_classes)
    true, predicted = each[fit.y], each[fit.classes(metric)]
    of_class = 2 * counts @ (true * predicted) / np.maximum(counts @ (true + predicted), 1)
    return np.asarray(of_class[:, 1] if n_classes == 2 else of_class.mean(axis=1))


def draws(fits: Sequence[Predicted], n_draws: int = DRAWS, seed: int = 0) -> dict[str, np.ndarray]:
    """Every metric of `SHOWN` on rows drawn again; the same rows for all models of equal test rows.

    Returns
    -------
    dict of metric to float array of shape (n_draws,), the mean over the fits; no "f1_tuned" for more
    than two classes
    """
    rng, n = np.random.default_rng(seed), len(fits[0].y)
    metrics_of = [m for m in SHOWN if m != "f1_tuned" or fits[0].probabilities.shape[1] == 2]
    found: dict[str, list[np.ndarray]] = {metric: [] for metric in metrics_of}
    for first in range(0, n_draws, 50):
        sizes = range(first, min(first + 50, n_draws))
        counts = np.stack([np.bincount(rng.integers(n, size=n), minlength=n) for _ in sizes]).astype(float)
        for metric in metrics_of:
            found[metric].append(drawn(fits, metric, counts))
    return {metric: np.concatenate(parts) for metric, parts in found.items()}


def spread(model: np.ndarray, against: np.ndarray) -> float:
    """Half the 95 % percentile interval of a difference, from two arrays of shape (draws,)."""
    low, high = np.quantile(model - against, [0.025, 0.975])
    return float(high - low) / 2


def row(
    model: Sequence[Predicted],
    against: Sequence[Predicted],
    drawn_model: dict[str, np.ndarray],
    drawn_against: dict[str, np.ndarray],
) -> list[str]:
    """Differences as ``mean ± seeds ± rows``, paired by seed; bold where both together leave 0 out.

    Parameters
    ----------
    model, against : fits of two models, seed by seed
    drawn_model, drawn_against : what `draws` returns for them
    """
    for fit in (*model, *against):
        if not np.array_equal(fit.y, model[0].y):
            raise UsboostError("the models' test rows are not the same; fit them on the same data")
    once, cells = np.ones((1, len(model[0].y))), []
    for metric in SHOWN:
        if metric not in drawn_model:
            cells.append("–")
            continue
        by_seed = np.array(
            [_drawn(a, metric, once)[0] - _drawn(b, metric, once)[0] for a, b in zip(model, against)]
        )
        mean, seeds = interval(by_seed)
        rows = spread(drawn_model[metric], drawn_against[metric])
        text = f"{mean:+.4f} ± {seeds:.4f} ± {rows:.4f}"
        cells.append(f"**{text}**" if abs(mean) > np.hypot(seeds, rows) else text)
    return cells
