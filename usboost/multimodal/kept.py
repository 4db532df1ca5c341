"""Finished fits of a comparison on disk, so that one which is killed goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd

from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest
from usboost.datasets.custom.own import OwnTable
from usboost.errors import UsboostError, option
from usboost.evaluation.names import RANKING
from usboost.learners.networks.embeddings import picture_digests
from usboost.multimodal.splits import Fold
from usboost.multimodal.table_rows import arrays_of, related_of

FILE = "fits.jsonl"

# what reads rows for a fit, and scores it
_CODE = ("usboost.multimodal.fit_built", "usboost.evaluation.metrics")


class KeptFits:
    """Scores of fits in `FILE` of a folder, one line each, which is on disk before the next fit begins.

    A fit is found by the table's content, the model's parameters and code, and the rows of its fold, so
    other models, more repeats or another order of them make no fit twice.

    Parameters
    ----------
    folder : is made if it is not there; None keeps nothing.

    Raises
    ------
    UsboostError
        If it cannot be written.
    """

    def __init__(self, folder: Path | None, table: OwnTable) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self.found = 0
        self._lock, self._rows = Lock(), dict[str, dict[str, float]]()
        if self.path is None:
            return
        self._table = table_digest(table)
        self._needed = {*RANKING[table.task], "rows_train", "rows_test", "seconds"}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                file.seek(0)
                content = file.read()
                if content and not content.endswith(b"\n"):  # the line that a kill cut short
                    file.write(b"\n")
        except OSError as error:
            raise UsboostError(
                f"{self.path} cannot be written: {error.strerror}; name another {option('out')}"
            ) from None
        for line in content.splitlines():
            self._read(line)

    def _read(self, line: bytes) -> None:
        """Take a line; one that was cut short or changed is a fit to make again."""
        try:
            document = json.loads(line)
            key, row = document["fit"], document["row"]
            found = {str(name): float(value) for name, value in row.items()}
            if found.keys() >= self._needed:
                self._rows[str(key)] = found
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return

    def key(self, model: Any, fold: Fold) -> str:
        """What decides a fit and its scores, "" where nothing is kept."""
        if self.path is None:
            return ""
        rows = hashlib.sha256()
        for part in (fold.train, fold.val, fold.test):
            rows.update(np.asarray(part, dtype=np.int64).tobytes() + b"|")
        decides = [self._table, described(model), code_digest(model, *_CODE), rows.hexdigest()]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def get(self, key: str) -> dict[str, float] | None:
        """The scores of a fit that was finished, or None."""
        row = self._rows.get(key)
        with self._lock:
            self.found += row is not None
        return row

    def add(self, key: str, model: str, row: dict[str, float]) -> None:
        """Write the scores of a fit to disk.

        Raises
        ------
        UsboostError
            If that fails.
        """
        if self.path is None:
            return
        line = json.dumps({"fit": key, "model": model, "row": row}) + "\n"
        try:
            with self._lock, self.path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UsboostError(f"{self.path} cannot be written: {error.strerror}") from None


def table_digest(table: OwnTable) -> str:
    """Of what is read of a table: its columns, labels, weights, groups or times, and pictures."""
    found = hashlib.sha256()
    for name, column in table.features.items():
        found.update(f"{name} {column.dtype.kind} ".encode())
        found.update(pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes())
    found.update((table.text_model or "").encode())
    found.update(json.dumps(table.classes).encode() + table.labels.tobytes())
    found.update(b"" if table.weights is None else table.weights.tobytes())
    for array in arrays_of(related_of(table, np.arange(len(table)))):
        found.update(array.tobytes())
    for name, view in table.pictures.items():
        for column in getattr(view, "columns", (view,)):
            found.update(name.encode() + picture_digests(column).tobytes())
            found.update(b"" if column.absent is None else np.packbits(column.absent).tobytes())
    return found.hexdigest()
