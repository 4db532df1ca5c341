"""Census rows for benchmarks: CI-A, real where USBOOST_DATA holds it, else generated at the same size."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from tasks import settings as params
from tasks.catalog import DATASETS
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.datasets import store

ROWS_TRAIN, ROWS_TEST = 199_523, 99_762

Sample = tuple[Views, np.ndarray]


def prepared(folder: Path) -> Path:
    """Return the prepared form of CI-A below `folder`, made if it is not there."""
    real = os.environ.get("USBOOST_DATA")
    place = folder / ("ci_a" if real else "ci_a-generated")
    if place.exists():
        return place
    settings, source = params.load().model_copy(update={"profile": "paper"}), DATASETS["ci_a"]
    with tempfile.TemporaryDirectory() as work:
        raw = Path(work) / "raw"
        raw.mkdir(parents=True)
        if real:
            source.obtain(raw, settings, folder)
        else:
            source.write_demo(raw, rows_train=ROWS_TRAIN, rows_test=ROWS_TEST, seed=0)
        place.parent.mkdir(parents=True, exist_ok=True)
        store.write(source.prepare(raw, settings, Path(work), None), place)
    return place


@cache
def split(folder: Path, name: str, rows: int | None = None) -> Sample:
    """Return the first rows of a split, as views U and S and labels."""
    views, y = store.read(prepared(folder), name)
    return views[: rows or len(y)], y[: rows or len(y)]


def dense(table: Table) -> np.ndarray:
    """Return numbers and one-hot categories, float32 (n, d): what scikit-learn and a plain network take."""
    columns = [
        np.eye(size, dtype=np.float32)[table.codes[:, j]] for j, size in enumerate(table.cardinalities)
    ]
    return np.concatenate([table.numeric, *columns], axis=1)


def ordinal(table: Table) -> np.ndarray:
    """Return numbers and codes as numbers, float32 (n, p + q)."""
    return np.ascontiguousarray(table.matrix())
