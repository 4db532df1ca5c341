"""A fitted model's predictions on labelled rows, and confidence intervals of its scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.datasets.custom.columns import Column
from usboost.datasets.custom.pictures import check_memory
from usboost.datasets.custom.rows import joined
from usboost.datasets.custom.source import TableFile, require
from usboost.errors import UsboostError
from usboost.evaluation.metrics import score
from usboost.evaluation.names import METRICS
from usboost.multimodal.bundle import Bundle

DRAWS = 500
"""Bootstrap samples of an interval; above `_LARGE` rows, where scores hardly vary, 200."""

_LARGE = 10_000


@dataclass(frozen=True)
class Scored:
    """Labelled rows of a table as a model sees them.

    Attributes
    ----------
    frame : the n rows' columns as they are in the table, without the bytes of pictures.
    views : of the n rows.
    labels : int64 codes of shape (n,) of the model's classes.
    probabilities : float64 of shape (n, M).
    rows : positions in the file, int64 of shape (n,); those without a picture are not among them.
    skipped : the number of rows without a picture.
    """

    frame: pd.DataFrame
    views: Views
    labels: np.ndarray
    probabilities: np.ndarray
    rows: np.ndarray
    skipped: int

    def __len__(self) -> int:
        return len(self.labels)


def score_table(
    bundle: Bundle, path: Path, label: str, *, skip_missing: bool = False, progress: Progress | None = None
) -> Scored:
    """Read labelled rows and predict them.

    Raises
    ------
    UsboostError
        If a column is missing, a value or picture cannot be read, a label is missing or is not a class
        of the model, or there are no rows.
    """
    file = TableFile.open(path)
    require(file, [*bundle.reader.needed, label])
    known = {name: code for code, name in enumerate(bundle.card.classes)}
    parts: list[tuple[pd.DataFrame, Views, np.ndarray, np.ndarray, np.ndarray]] = []
    seen = held = 0
    for batch in bundle.reader.read(file, skip_missing=skip_missing, more=(label,)):
        codes = Column(file, label, batch.raw[label], batch.first).codes(known)
        present = batch.present
        seen += len(present)
        if present.any():
            if (images := bundle.card.images) is not None:
                held += int(present.sum())
                check_memory(file, held, images.channels * images.size[0] ** 2)
            probabilities = bundle.model.predict_proba(batch.views)
            rows = batch.first + np.flatnonzero(present)
            parts.append((batch.raw.to_pandas()[present], batch.views, codes[present], probabilities, rows))
        if progress:
            progress(seen, 0)
    if not parts:
        raise UsboostError(f"{file} has no rows to score")
    labels = np.concatenate([part[2] for part in parts])
    return Scored(
        pd.concat([part[0] for part in parts], ignore_index=True),
        joined([part[1] for part in parts]),
        labels,
        np.concatenate([part[3] for part in parts]),
        np.concatenate([part[4] for part in parts]),
        seen - len(labels),
    )


def intervals(
    labels: np.ndarray, probabilities: np.ndarray, *, seed: int = 0, draws: int | None = None
) -> dict[str, tuple[float, float, float]]:
    """Each score with its bootstrap percentile interval of 95 %: (score, low, high).

    Rows are drawn with replacement; a sample that lacks a class has no AUC and is left out of its
    interval. The interval holds the sampling of these rows, not the variation of the training.

    Parameters
    ----------
    labels : int64 of shape (n,); probabilities : float64 of shape (n, M).
    draws : samples; by default `DRAWS`.
    """
    n = len(labels)
    draws = draws or (DRAWS if n <= _LARGE else 200)
    rng = np.random.default_rng(seed)
    whole = score(labels, probabilities)
    drawn = [
        score(labels[rows], probabilities[rows]) for rows in (rng.integers(0, n, n) for _ in range(draws))
    ]
    found = {}
    for key in METRICS:
        values = np.array([each[key] for each in drawn])
        values = values[np.isfinite(values)]
        low, high = np.quantile(values, [0.025, 0.975]) if len(values) else (np.nan, np.nan)
        found[key] = (whole[key], float(low), float(high))
    return found
