"""A fitted model on labelled rows: what it said of each, and how sure its scores are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.images import Images
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.datasets.custom.rows import columns_of
from usboost.datasets.custom.table import is_csv, plain_column, text_of
from usboost.errors import UsboostError
from usboost.evaluation.metrics import score
from usboost.multimodal.bundle import Bundle
from usboost.multimodal.choices import METRICS
from usboost.multimodal.table import Progress, as_views, check_memory

DRAWS = 500
"""Bootstrap samples of an interval; above `_LARGE` rows, where scores hardly vary, 200."""

_LARGE = 10_000
_BATCH = 4096


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
    skipped : how many these are.
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
    """Read labelled rows and ask the model about them.

    Raises
    ------
    UsboostError
        If a column is missing, a value or picture cannot be read, a label is missing or is no class of
        the model, or there is no row.
    """
    path = Path(path)
    schema = columns_of(path, [*bundle.needed, label])
    known = {name: code for code, name in enumerate(bundle.card.classes)}
    parts: list[tuple[pd.DataFrame, Views, np.ndarray, np.ndarray, np.ndarray]] = []
    seen = held = 0
    for batch in bundle.read(path, schema, batch=_BATCH, skip_missing=skip_missing, more=(label,)):
        codes = _codes(batch.raw[label], known, label, path, batch.first)
        present = batch.present
        seen += len(present)
        if present.any():
            if (images := bundle.card.images) is not None:
                held += int(present.sum())
                check_memory(path, held, images.channels * images.size[0] ** 2)
            said = bundle.model.predict_proba(batch.views)
            rows = batch.first + np.flatnonzero(present)
            parts.append((batch.raw.to_pandas()[present], batch.views, codes[present], said, rows))
        if progress:
            progress(seen, 0)
    if not parts:
        raise UsboostError(f"{path} has no rows to score")
    labels = np.concatenate([part[2] for part in parts])
    return Scored(
        pd.concat([part[0] for part in parts], ignore_index=True),
        _joined([part[1] for part in parts]),
        labels,
        np.concatenate([part[3] for part in parts]),
        np.concatenate([part[4] for part in parts]),
        seen - len(labels),
    )


def intervals(
    labels: np.ndarray, probabilities: np.ndarray, *, seed: int = 0, draws: int | None = None
) -> dict[str, tuple[float, float, float]]:
    """Each score with its bootstrap percentile interval of 95 %: (score, low, high).

    Rows are drawn with replacement; a sample without some class has no AUC and does not count for it.
    What the interval holds is the chance of these rows, not that of the model's own fit.

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


def _codes(
    column: pa.ChunkedArray, known: Mapping[str, int], label: str, path: Path, first: int
) -> np.ndarray:
    values = plain_column(column, is_csv(path))
    if values.isna().any():
        row = first + int(np.flatnonzero(values.isna())[0]) + 1
        raise UsboostError(f"{path}, row {row}: column {label!r} is empty; fill it or leave out the row")
    texts = values.map(text_of)
    codes = texts.map(known)
    if codes.isna().any():
        k = int(np.flatnonzero(codes.isna())[0])
        raise UsboostError(
            f"{path}, row {first + k + 1}: {label!r} is {texts.iloc[k]!r}, which is none of the model's "
            f"classes {', '.join(known)}"
        )
    return codes.to_numpy(np.int64)


def _joined(parts: list[Views]) -> Views:
    """The rows of all parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    tables: list[Any] = [part["S"] for part in parts]
    table = Table(
        np.concatenate([part.numeric for part in tables]),
        np.concatenate([part.codes for part in tables]),
        tables[0].cardinalities,
        tables[0].names,
    )
    pictures: list[Any] = [part["U"] for part in parts]
    if not isinstance(pictures[0], Images):
        return as_views(table, None)
    return as_views(table, Images(np.concatenate([part.pixels for part in pictures])))
