"""Finished fits of a comparison on disk, so that one which is killed goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd

from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest
from usboost.errors import UsboostError, option
from usboost.evaluation.ranking import RANKING
from usboost.files.arrays import Store, key_of
from usboost.learners.networks.embeddings import image_digests
from usboost.multimodal.fit.splits import Fold, arrays_of, related_of
from usboost.table.user_table import UserTable

FITS = "fits"

# what reads rows for a fit, and scores it
_CODE = ("usboost.multimodal.fit.table_fit", "usboost.evaluation.metrics")


@dataclass(frozen=True)
class Scores:
    """Of one fit: its row of scores, and what it predicted for its test rows; None where nobody kept it."""

    row: dict[str, float]
    predicted: Any = None


class KeptFits:
    """Scores of finished fits in the folder `FITS` of another, each on disk before the next fit begins.

    A fit is found by the table's content, the model's parameters and code, and the rows of its fold, so other
    models, more repeats or another order of them make no fit twice. Raises UsboostError if it cannot be made.

    Parameters
    ----------
    folder : is made if it is not there; None keeps nothing.
    predictions : whether what was predicted for the test rows is kept, too; a fit without it is made again.
    """

    def __init__(self, folder: Path | None, table: UserTable, predictions: bool = False) -> None:
        self._store = None if folder is None else Store(Path(folder) / FITS)
        self._predictions = predictions
        self.found, self._lock = 0, Lock()
        if self._store is None:
            return
        self._table = table_digest(table)
        self._needed = {*RANKING[table.task], "rows_train", "rows_test", "seconds"}
        try:
            self._store.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsboostError(
                f"{self._store.folder} cannot be written: {error.strerror}; name another {option('out')}"
            ) from None

    def key(self, model: Any, fold: Fold) -> str:
        """What decides a fit and its scores, "" where nothing is kept."""
        if self._store is None:
            return ""
        rows = rows_digest((fold.train, fold.val, fold.test))
        return key_of([self._table, described(model), code_digest(model, *_CODE), rows])

    def get(self, key: str) -> Scores | None:
        """What was kept of a fit that was finished, or None."""
        found = None if self._store is None else self._store.get_json(key, self._scores)
        if found is None or (self._predictions and found.predicted is None):
            return None
        with self._lock:
            self.found += 1
        return found

    def add(self, key: str, model: str, found: Scores) -> None:
        """Write what is to be kept of a fit to disk. Raises UsboostError if that fails."""
        if self._store is not None:
            predicted = {"predicted": found.predicted.tolist()} if self._predictions else {}
            self._store.put_json(key, {"model": model, "row": found.row, **predicted})

    def _scores(self, document: Mapping[str, Any]) -> Scores:
        row, kept = self._row(document), document.get("predicted") if self._predictions else None
        predicted = None if kept is None else np.array(kept, dtype=np.float64)
        if predicted is not None and len(predicted) != row["rows_test"]:
            raise UsboostError("its predictions are not those of the test rows")
        return Scores(row, predicted)

    def _row(self, document: Mapping[str, Any]) -> dict[str, float]:
        found = {str(name): float(value) for name, value in document["row"].items()}
        if missing := self._needed - found.keys():
            raise UsboostError(f"it has no {', '.join(sorted(missing))}")
        return found


def rows_digest(parts: Iterable[np.ndarray]) -> str:
    """Of the positions of rows."""
    return hashlib.sha256(
        b"".join(np.asarray(each, dtype=np.int64).tobytes() + b"|" for each in parts)
    ).hexdigest()


def table_digest(table: UserTable) -> str:
    """Of what is read of a table: its columns, labels, weights, groups or times, and images."""
    found = hashlib.sha256()
    for name, column in table.features.items():
        found.update(f"{name} {column.dtype.kind} ".encode())
        found.update(pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes())
    found.update(json.dumps(table.classes).encode() + table.labels.tobytes())
    found.update(b"" if table.weights is None else table.weights.tobytes())
    for array in arrays_of(related_of(table, np.arange(len(table)))):
        found.update(array.tobytes())
    for name, view in table.images.items():
        for column in getattr(view, "columns", (view,)):
            found.update(name.encode() + image_digests(column).tobytes())
            found.update(b"" if column.absent is None else np.packbits(column.absent).tobytes())
    return found.hexdigest()
