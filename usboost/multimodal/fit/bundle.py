"""A fitted model with all that it needs to read raw rows: a folder of ``model/`` and ``card.json``, and
``texts.safetensors`` where it reads text.

The command line, the pipeline and Python write and read this one form; it is also what MLflow serves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from usboost.data.encoding import TableEncoder
from usboost.data.views import Views
from usboost.datasets.store import first_fault, read_json
from usboost.errors import UsboostError, option, warn
from usboost.evaluation.calibration import clip_lower, tempered
from usboost.evaluation.task import TASKS, Task
from usboost.files import replacing
from usboost.multimodal.fit.card import Card
from usboost.table.columns.encoding import Encoding, added
from usboost.table.columns.texts import FILE as TEXTS
from usboost.table.columns.texts import TextParts, read_texts, texts_to_bytes
from usboost.table.notes import Tally, notes_of_rows
from usboost.table.rows import RowReader
from usboost.table.source import INDEX_COLUMN, FrameRows, Source
from usboost.table.user_table import UserTable

KIND = "usboost model of a table"
CARD, MODEL = "card.json", "model"


@dataclass(frozen=True)
class Bundle:
    """A fitted model, its card, and what its columns of text become."""

    model: Any
    card: Card
    texts: Mapping[str, TextParts] = field(default_factory=dict)

    @cached_property
    def encoding(self) -> Encoding:
        """How columns become views."""
        imputation = {name: rule.model_dump() for name, rule in self.card.imputation.items()}
        encoders = {
            view: TableEncoder.from_dict(encoder.model_dump()) for view, encoder in self.card.encoders.items()
        }
        dates = {name: each.rule for name, each in self.card.dates.items()}
        return Encoding(imputation, encoders, dates, self.texts)

    @cached_property
    def reader(self) -> RowReader:
        """How rows are read."""
        images = None if self.card.images is None else self.card.images.form
        formats = {name: written.form for name, written in self.card.formats.items()}
        return RowReader(self.card.columns, self.encoding, images, formats, tuple(self.card.missing))

    def of_columns(self, names: list[str]) -> Bundle:
        """The same for rows whose columns are these, in their order; the card has them if it cannot tell."""
        names = [] if names == self.card.read_and_dropped else names
        return replace(self, card=self.card.model_copy(update={"names": names}))

    @property
    def task(self) -> Task:
        """What it predicts."""
        return TASKS[self.card.task]

    def predicted(self, views: Views) -> np.ndarray:
        """Calibrated probabilities of the classes, float64 (n, M), or numbers, float64 (n,)."""
        found = self.task.predict(self.model, views)
        return (
            tempered(found, self.card.temperature)
            if self.card.classes
            else clip_lower(found, self.card.floor)
        )

    def predicted_of(self, table: UserTable, rows: np.ndarray) -> np.ndarray:
        """`predicted` of some rows of a table in memory, to the bit as of a file of these rows."""
        size = self.reader.batch()
        parts = [rows[first : first + size] for first in range(0, len(rows), size)]
        return np.concatenate([self.predicted(table.views(self.encoding, part)) for part in parts])

    def codes(self, probabilities: np.ndarray) -> np.ndarray:
        """The positions of the classes that are the answers, int64 (n,)."""
        if self.card.threshold is None:
            return probabilities.argmax(axis=1)
        return (probabilities[:, 1] >= self.card.threshold).astype(np.int64)

    def answers(self, predicted: np.ndarray, *, sets: bool = False) -> pd.DataFrame:
        """Predictions as a table.

        Parameters
        ----------
        predicted : as `predicted` gives them.
        sets : whether `set_texts` are the last column, ``set``.

        Returns
        -------
        ``label``, as the table had labels, and ``p_<class>`` for each class; or ``prediction``, ``low`` and
        ``high``, ends of an interval that holds about 9 in 10 rows.
        """
        further = {"set": self.set_texts(predicted)} if sets else {}
        if not self.card.classes:
            low, high = self.card.margin or (np.nan, np.nan)
            ends = {"low": clip_lower(predicted + low, self.card.floor), "high": predicted + high}
            return pd.DataFrame({"prediction": predicted, **ends})
        found = pd.DataFrame(predicted, columns=[f"p_{name}" for name in self.card.classes])
        found.insert(0, "label", self.labels[self.codes(predicted)])
        return found.assign(**further)

    def sets(self, predicted: np.ndarray) -> np.ndarray:
        """Which classes may be a row's, bool (n, M): of about 9 in 10 rows the true one is among them.

        Those of `Card.least` probability, and the answer.

        Parameters
        ----------
        predicted : as `predicted` gives them.

        Raises
        ------
        UsboostError
            If a number is predicted, or the model was saved without what it takes.
        """
        if not self.card.classes:
            raise UsboostError(f"a predicted number has an interval and no set; leave {option('sets')} out")
        if self.card.least is None:
            raise UsboostError(f"{self.card.model} was saved without what sets take; fit the model again")
        found = predicted >= self.card.least
        found[np.arange(len(found)), self.codes(predicted)] = True
        return np.asarray(found)

    def set_texts(self, predicted: np.ndarray) -> list[str]:
        """`sets` as JSON, ``["a", "b"]`` say, with the labels as the table had them."""
        patterns, place = np.unique(self.sets(predicted), axis=0, return_inverse=True)
        labels = self.labels.tolist()
        texts = [
            json.dumps([labels[k] for k in np.flatnonzero(each)], ensure_ascii=False) for each in patterns
        ]
        return [texts[k] for k in place.ravel()]

    @property
    def labels(self) -> np.ndarray:
        """The classes as the table had them: str, bool, int64 or float64 of shape (M,)."""
        names = self.card.classes
        if self.card.label_kind == "bool":
            return np.array([name == "True" for name in names])
        kinds = {"int": int, "float": float}  # int is exact, where float64 is not
        if self.card.label_kind in kinds:
            return np.array([kinds[self.card.label_kind](name) for name in names])
        return np.array(names, dtype=object)

    def ignored(self, rows: Source, keep: Collection[str] = ()) -> list[str]:
        """The columns of rows that the model does not know."""
        known = {*self.reader.needed, *self.card.dropped, self.card.label, *keep}
        return [name for name in rows.names if name not in known and not INDEX_COLUMN.fullmatch(name)]

    def predict(
        self,
        rows: pd.DataFrame,
        *,
        strict: bool = False,
        sets: bool = False,
        tell: Callable[[str], object] = warn,
    ) -> pd.DataFrame:
        """`answers` to raw rows.

        Parameters
        ----------
        rows : the columns that the model was fitted to, in any order; a number may be missing where one was
            in training or the table was a user's own. Images are files' bytes or base64, or missing.
        strict : refuse numbers, dates and images that cannot be read, instead of counting them as missing.
        sets : of `answers`.
        tell : called with each sentence of `usboost.table.notes.notes_of_rows`; by default they are
            warnings.

        Raises
        ------
        UsboostError
            If there is no row, a column is missing, or no value of one can be read.
        """
        return self.answer(FrameRows(rows, mixed=True), strict=strict, sets=sets, tell=tell)

    def answer(
        self,
        rows: Source,
        *,
        strict: bool = False,
        sets: bool = False,
        tell: Callable[[str], object] = warn,
    ) -> pd.DataFrame:
        """`answers` to the rows of any source; as `predict`."""
        parts: list[np.ndarray] = []
        tally = Tally(ignored=self.ignored(rows))
        for batch in self.reader.read(rows, strict=strict, tally=tally):
            parts.append(self.predicted(batch.views))
        if not parts:
            raise UsboostError("no rows to predict")
        for each in notes_of_rows(tally):
            tell(each)
        return self.answers(np.concatenate(parts), sets=sets)

    def save(self, folder: Path) -> None:
        """Write the folder, whole or not at all; an earlier bundle of that name is replaced.

        Raises
        ------
        UsboostError
            If it cannot be written, or something other than a bundle is there.
        """
        from usboost.models import persistence

        check_place(folder)
        with replacing(folder) as fresh:
            persistence.save(self.model, fresh / MODEL)
            if self.texts:
                (fresh / TEXTS).write_bytes(texts_to_bytes(self.texts))
            text = json.dumps(self.card.model_dump(), indent=1, ensure_ascii=False, allow_nan=False)
            (fresh / CARD).write_text(text + "\n", encoding="utf-8")


def check_place(folder: Path, *, replace: bool = True) -> None:
    """Refuse to write a bundle where something else is, which would be lost.

    Parameters
    ----------
    replace : whether an earlier bundle may be replaced.

    Raises
    ------
    UsboostError
        If `folder` is a file, or a folder that holds anything but a bundle, or one that may not be replaced.
    """
    folder = Path(folder)
    if not replace and (folder / CARD).exists():
        raise UsboostError(
            f"{folder} holds a model; replace it with {option('force')}, or give another {option('out')}"
        )
    if folder.is_dir():
        found = {entry.name for entry in folder.iterdir()}
        if found - {TEXTS} != {CARD, MODEL} or _kind(folder / CARD) != KIND:
            raise UsboostError(
                f"{folder} exists and is not, or not only, a model saved by usboost fit; name another folder"
            )
    elif folder.exists() or folder.is_symlink():
        raise UsboostError(f"{folder} is a file, so no model can be saved there; name another folder")


def _kind(path: Path) -> Any:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document.get("kind") if isinstance(document, Mapping) else None


def load(folder: Path) -> Bundle:
    """Read what `Bundle.save` wrote; nothing in it can run code.

    Raises
    ------
    UsboostError
        If a file is missing, damaged or changed, or the card does not fit the model.
    """
    path = Path(folder) / CARD
    missing = f"{folder} is no model that usboost fit saved: {path} is missing"
    try:
        card = Card.model_validate(read_json(path, missing, "fit the model"))
    except ValidationError as error:
        raise UsboostError(f"{path}: {first_fault(error)}; fit the model again") from None
    # torch, which a refused card does not need
    from usboost.models import persistence

    columns = [name for name, kind in card.columns.items() if kind == "text"]
    texts = read_texts(Path(folder), columns, card.texts_sha256)
    bundle = Bundle(persistence.load(Path(folder) / MODEL), card, texts)
    _check(bundle, path)
    return bundle


def _check(bundle: Bundle, path: Path) -> None:
    """Check that the card has the columns and classes of its encoders and its model."""
    card = bundle.card
    of_kind = {name: kind for name, kind in card.columns.items() if kind != "category"}
    if set(card.dates) != {name for name, kind in of_kind.items() if kind == "date"}:
        raise UsboostError(f"{path}: the dates are not the columns of dates; fit the model again")
    parts = bundle.encoding.parts
    numbers = [each for name in of_kind for each in (parts[name].names(name) if name in parts else [name])]
    if sorted(card.imputation) != sorted(numbers):
        raise UsboostError(f"{path}: the imputation is not one of the numeric columns; fit the model again")
    encoding = bundle.encoding
    categories = card.columns.keys() - of_kind.keys()
    if sorted(encoding.names) != sorted([*categories, *numbers, *added(encoding.imputation)]):
        raise UsboostError(f"{path}: the encoder is not one of the columns; fit the model again")
    images = [] if card.images is None else card.images.form.names
    if both := [name for name in images if name in card.encoders]:
        raise UsboostError(f"{path}: the view {both[0]} is both images and a table; fit the model again")
    if len(card.classes) != len(set(card.classes)):
        raise UsboostError(f"{path}: two classes have the same name; fit the model again")
    if card.task == "regression":
        if hasattr(bundle.model, "classes_") or not hasattr(bundle.model, "predict"):
            raise UsboostError(f"{path}: its model predicts classes, not a number; fit the model again")
    elif list(getattr(bundle.model, "classes_", ())) != list(range(len(card.classes))):
        raise UsboostError(f"{path}: its classes are not those of the model; fit the model again")
    if card.prior and len(card.prior) != max(1, len(card.classes)):
        raise UsboostError(f"{path}: the prior is not one number for each class; fit the model again")
