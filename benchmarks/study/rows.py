"""How much of a difference is the test rows' own luck: what the study's fits say of the rows, drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from usboost.errors import UsboostError
from usboost.evaluation import ranking

DRAWS = 1000
NAMES = ranking.NAMES | {"f1": "F1 at ½"}
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
        """Return the predicted classes that an F1 is of."""
        if metric == "f1":
            return np.asarray(self.probabilities.argmax(axis=1))
        return (self.probabilities[:, 1] >= self.threshold).astype(int)


def interval(values: Sequence[float] | np.ndarray | pd.Series) -> tuple[float, float]:
    """Return the mean, and half the 95 % interval of Student's t; NaN for one value."""
    found = np.asarray(values, dtype=float)
    if len(found) < 2:
        return float(found.mean()), float("nan")
    spread = stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return float(found.mean()), float(spread)


def drawn(fits: Sequence[Predicted], metric: str, counts: np.ndarray) -> np.ndarray:
    """Return a metric of `SHOWN`, the mean over fits, on rows drawn again, float (draws,).

    `counts`, (draws, n), says how often each test row is in each draw.
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
    """Return each metric of `SHOWN` on rows drawn again, the mean over the fits, float (n_draws,).

    The rows are the same for all models of equal test rows; "f1_tuned" is of two classes only.
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
    """Return half the 95 % percentile interval of a difference, from two arrays of shape (draws,)."""
    return float(np.ptp(np.quantile(model - against, [0.025, 0.975]))) / 2


def row(
    model: Sequence[Predicted],
    against: Sequence[Predicted],
    drawn_model: dict[str, np.ndarray],
    drawn_against: dict[str, np.ndarray],
) -> list[str]:
    """Return differences as ``mean ± seeds ± rows``, paired by seed; bold where both together leave 0 out.

    `drawn_model` and `drawn_against` are what `draws` returns for the fits of the two, seed by seed.
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
