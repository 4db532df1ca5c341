"""Records of evaluated fits, and the rounds of a fit that is not finished, so that what is killed resumes.

`Records` keeps what is finished, by the one key of a fit (`Records.key`); `UnfinishedFit` keeps rounds.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import pandas as pd

from usboost.boosting.checkpoint import Checkpoint, described, identity_of
from usboost.boosting.code import code_digest
from usboost.errors import UsboostError
from usboost.evaluation.folds import Fold
from usboost.evaluation.ranking import RANKING
from usboost.files.arrays import Store, key_of
from usboost.fit.evaluate import related_of
from usboost.shards.collective import world
from usboost.table.user_table import UserTable

FITS = "fits"

# what reads rows for a fit, and scores it
_CODE = ("usboost.fit.evaluate", "usboost.evaluation.metrics")


@dataclass(frozen=True)
class Record:
    """The result of a finished fit: its row of scores, seconds, and predictions of the rows that judge it.

    The latter are None where nobody keeps them. Of classes, `wrong` says which rows were answered wrongly.
    """

    row: dict[str, float]
    predicted: np.ndarray | None = None
    wrong: np.ndarray | None = None


class Records:
    """The records of finished fits in the folder `FITS` of another, each on disk before the next fit begins.

    A fit is found by its key, so other models, more repeats or another order of them make no fit twice.
    Raises UsboostError if the folder cannot be made.

    Parameters
    ----------
    folder : is made if it is not there; None keeps nothing.
    predictions : whether these are stored, too; a fit without them is made again.

    Attributes
    ----------
    cached : how many finished fits were read.
    """

    def __init__(self, folder: Path | None, table: UserTable, predictions: bool = False) -> None:
        self._store = None if folder is None else Store(Path(folder) / FITS)
        self._predictions, self.cached, self._lock = predictions, 0, Lock()
        if self._store is None:
            return
        self._table = table_digest(table)
        self._needed = {*RANKING[table.task], "rows_train", "rows_test", "seconds"}
        try:
            self._store.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsboostError(
                f"{self._store.folder} cannot be written: {error.strerror}; name another `out`"
            ) from None

    def key(self, model: Any, fold: Fold) -> str:
        """Return the key of a fit: data, parameters, rows and the code that runs; "" if nothing is stored."""
        if self._store is None:
            return ""
        rows = rows_digest((fold.train, fold.val, fold.test))
        return key_of([self._table, described(model), code_digest(model, *_CODE), rows])

    def get(self, key: str) -> Record | None:
        """Return the record of a finished fit, or None."""
        record = None if self._store is None else self._store.get_json(key, self._read)
        if record is None or (self._predictions and record.predicted is None):
            return None
        with self._lock:
            self.cached += 1
        return record

    def add(self, key: str, model: str, record: Record) -> None:
        """Write a record, under the model's name, to disk. Raises UsboostError if that fails."""
        document: dict[str, Any] = {"model": model, "row": record.row}
        if self._predictions and record.predicted is not None:
            document["predicted"] = record.predicted.tolist()
        if record.wrong is not None:
            document["wrong"] = np.flatnonzero(record.wrong).tolist()
        if self._store is not None:
            self._store.put_json(key, document)

    def _read(self, document: Mapping[str, Any]) -> Record:
        row = {str(name): float(value) for name, value in document["row"].items()}
        if missing := self._needed - row.keys():
            raise UsboostError(f"it has no {', '.join(sorted(missing))}")
        stored = document.get("predicted") if self._predictions else None
        predicted = None if stored is None else np.array(stored, dtype=np.float64)
        if predicted is not None and len(predicted) != row["rows_test"]:
            raise UsboostError("its predictions are not those of the test rows")
        at, tested = document.get("wrong"), np.arange(int(row["rows_test"]))
        return Record(row, predicted, None if at is None else np.isin(tested, at))


def rows_digest(parts: Iterable[np.ndarray]) -> str:
    """Return a digest of the positions of rows."""
    digest = hashlib.sha256()
    for each in parts:
        digest.update(np.asarray(each, dtype=np.int64).tobytes() + b"|")
    return digest.hexdigest()


def table_digest(table: UserTable) -> str:
    """Return a digest of what is read of a table: columns, labels, weights, groups or times, and images."""
    digest = hashlib.sha256()
    for name, column in table.features.items():
        digest.update(f"{name} {table.kinds[str(name)]} ".encode())
        digest.update(pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes())
    digest.update(json.dumps(table.classes).encode() + table.labels.tobytes())
    digest.update(b"" if table.weights is None else table.weights.tobytes())
    related = related_of(table, np.arange(len(table)))
    for array in () if related is None else related.arrays:
        digest.update(array.tobytes())
    for name, view in table.images.items():
        digest.update(name.encode() + view.digests().tobytes())
        digest.update(b"" if view.absent is None else np.packbits(view.absent).tobytes())
    return digest.hexdigest()


class Keep(Protocol):
    """A place where a fit keeps its rounds."""

    def keep(self, model: Any, *samples: tuple[Any, ...]) -> None:
        """Let a model that can keep its rounds keep them, and go on from those that are there.

        `samples`: (views, y, weights or None) of the training and, if there are any, the validation rows.
        """


_FIT = re.compile(r"[0-9a-f]{16}")


@contextmanager
def unfinished(folder: Path, note: Callable[[str], None]) -> "Iterator[UnfinishedFit]":
    """Give a folder for the rounds of a fit, which goes when the block succeeds and else stays.

    Raises UsboostError if something other than a folder is there.

    Parameters
    ----------
    folder : next to the model's. Files in it that are not ours are left as they are.
    note : called with what a user should know.
    """
    if folder.exists() and not folder.is_dir():
        raise UsboostError(f"{folder} is no folder, where a fit keeps its rounds; remove it, or change `out`")
    fit = UnfinishedFit(folder, note)
    try:
        yield fit
    except BaseException as error:
        fit.remove(began=False)
        if isinstance(error, KeyboardInterrupt) and folder.exists():
            note(f"finished rounds are kept in {folder}; the same command goes on from there")
        raise
    fit.remove(began=True)


class UnfinishedFit:
    """A folder of fits, each in a folder that is named by what decides it: parameters, data and code."""

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self.folder, self._note = folder, note
        self._before = {each.name for each in self._fits()}

    def keep(self, model: Any, *samples: tuple[Any, ...]) -> None:
        """See `Keep.keep`."""
        if "checkpoint" not in model.get_params(deep=False):
            return
        identity = identity_of(model, samples)
        name = key_of(identity)[:16]
        if name in self._before:
            self._note(f"an earlier run of this fit did not end; it goes on from what is in {self.folder}")
        elif self._before:
            self._note(
                f"{self.folder} holds a fit that did not end, of other parameters, data or code; this one "
                "starts anew, and removes it when it has ended"
            )
        self._before = set()  # noted once
        model.set_params(checkpoint=Checkpoint(self.folder / name, identity))

    def remove(self, *, began: bool) -> None:
        """Remove the fits; those of which something is finished only if `began`."""
        if world().number:
            return
        for each in self._fits():
            if began or not any(file.is_file() and file.name != "identity.json" for file in each.rglob("*")):
                shutil.rmtree(each, ignore_errors=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _fits(self) -> list[Path]:
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        return [each for each in folders if _FIT.fullmatch(each.name) and each.is_dir()]
