"""A fitted model with all that it needs to read raw rows: a folder of ``model/`` and ``card.json``, and
``texts.safetensors`` where it reads text.

The command line, the pipeline and Python write and read this one form; it is also what MLflow serves.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pydantic import ValidationError

from usboost.data.encoding import TableEncoder
from usboost.data.views import Views
from usboost.datasets import image_store, store
from usboost.datasets.store import first_fault, read_json
from usboost.errors import UsboostError, warn
from usboost.evaluation.calibration import clip_lower, tempered
from usboost.evaluation.intervals import UNKNOWN, Margin, ends
from usboost.evaluation.task import TASKS, Task
from usboost.files import replacing
from usboost.fit.card import Card, plain_parameters
from usboost.process import OwnSettings
from usboost.table.columns.encoding import NOTHING, Encoding, added
from usboost.table.columns.texts import FILE as TEXTS
from usboost.table.columns.texts import TextParts, read_texts, texts_to_bytes
from usboost.table.notes import Tally, check_paths, notes_of_rows
from usboost.table.prepared import as_file
from usboost.table.rows import RowReader
from usboost.table.source import INDEX_COLUMN, FrameRows, Source
from usboost.table.user_table import UserTable

KIND = "usboost model of a table"
CARD, MODEL = "card.json", "model"


@dataclass(frozen=True)
class Bundle(OwnSettings):
    """A fitted model, its card, and what its columns of text become."""

    model: Any
    card: Card
    texts: Mapping[str, TextParts] = field(default_factory=dict)

    @cached_property
    def encoding(self) -> Encoding:
        """The way columns become views."""
        imputation = {name: rule.model_dump() for name, rule in self.card.imputation.items()}
        encoders = {
            view: TableEncoder.from_dict(encoder.model_dump()) for view, encoder in self.card.encoders.items()
        }
        dates = {name: each.rule for name, each in self.card.dates.items()}
        return Encoding(imputation, encoders, dates, self.texts)

    @cached_property
    def reader(self) -> RowReader:
        """The reader of rows."""
        images = None if self.card.images is None else self.card.images.form
        formats = {name: written.form for name, written in self.card.formats.items()}
        card, missing = self.card, tuple(self.card.missing)
        trained = card.rows.get("train", 0)
        return RowReader(card.columns, self.encoding, images, formats, missing, card.gaps, trained)

    def as_given(self, names: list[str], labels: Mapping[str, Any]) -> "Bundle":
        """Return the same for rows whose columns are these, in their order, and answers that are these
        labels, by class: strings or bytes."""
        names = [] if names == list(self.card.columns) == self.card.read_and_dropped else names
        given = list(labels.values())
        kind = "bytes" if given and all(isinstance(each, bytes) for each in given) else self.card.label_kind
        texts = [each.decode() if isinstance(each, bytes) else str(each) for each in given]
        further = {"labels": texts if texts != self.card.classes else [], "label_kind": kind}
        return replace(self, card=self.card.model_copy(update={"names": names, **further}))

    def fitted_with(self, parameters: Mapping[str, Any]) -> "Bundle":
        """Return the same, that an estimator fitted with these parameters is loaded from."""
        return replace(self, card=self.card.model_copy(update={"parameters": plain_parameters(parameters)}))

    @property
    def task(self) -> Task:
        """The task: what it predicts."""
        return TASKS[self.card.task]

    def predicted(self, views: Views) -> np.ndarray:
        """Return calibrated probabilities of the classes, float64 (n, M), or numbers, float64 (n,)."""
        predicted = self.task.predict(self.model, views)
        card = self.card
        return tempered(predicted, card.temperature) if card.classes else clip_lower(predicted, card.floor)

    def predicted_of(self, table: UserTable, rows: np.ndarray) -> np.ndarray:
        """Return `predicted` of some rows of a table in memory, to the bit as of a file of these rows."""
        size = self.reader.batch()
        parts = [rows[first : first + size] for first in range(0, len(rows), size)]
        return np.concatenate([self.predicted(table.views(self.encoding, part)) for part in parts])

    def codes(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the positions of the classes that are the answers, int64 (n,)."""
        if self.card.threshold is None:
            return probabilities.argmax(axis=1)
        return (probabilities[:, 1] >= self.card.threshold).astype(np.int64)

    def answers(self, predicted: np.ndarray, *, sets: bool | Literal["per-class"] = False) -> pd.DataFrame:
        """Return predictions as a table.

        Parameters
        ----------
        predicted : as `predicted` gives them.
        sets : whether `set_texts` are the last column, ``set``; "per-class" for those per class.

        Returns
        -------
        ``label``, as the table had labels, and ``p_<class>`` for each class; or ``prediction``, ``low`` and
        ``high``, ends of an interval that holds about 9 in 10 rows.
        """
        further = {"set": self.set_texts(predicted, per_class=sets == "per-class")} if sets else {}
        if not self.card.classes:
            low, high = ends(predicted, self.card.margin or UNKNOWN, self.card.floor)
            return pd.DataFrame({"prediction": predicted, "low": low, "high": high})
        frame = pd.DataFrame(predicted, columns=[f"p_{name}" for name in self.card.classes])
        frame.insert(0, "label", self.labels[self.codes(predicted)])
        return frame.assign(**further)

    def sets(self, predicted: np.ndarray, *, per_class: bool = False) -> np.ndarray:
        """Return which classes may be a row's, bool (n, M): of about 9 in 10 rows the true one is among them.

        Those of `Card.least` probability, and the answer.

        Raises `UsboostError` if a number is predicted, or the model was saved without what it takes.

        Parameters
        ----------
        predicted : as `predicted` gives them.
        per_class : whether about 9 in 10 rows of each class are covered, by `Card.least_by_class`.
        """
        if not self.card.classes:
            raise UsboostError("a predicted number has an interval and no set; leave `sets` out")
        least = (self.card.least_by_class or None) if per_class else self.card.least
        if least is None:
            raise UsboostError(f"{self.card.model} was saved without what sets take; fit the model again")
        included = predicted >= np.asarray(least)
        included[np.arange(len(included)), self.codes(predicted)] = True
        return np.asarray(included)

    def set_texts(self, predicted: np.ndarray, *, per_class: bool = False) -> list[str]:
        """Return `sets` as JSON, ``["a", "b"]`` say, with the labels as the table had them."""
        sets = self.sets(predicted, per_class=per_class)
        patterns, place = np.unique(sets, axis=0, return_inverse=True)
        labels = [each.decode() if isinstance(each, bytes) else each for each in self.labels.tolist()]
        texts = [json.dumps([labels[k] for k in np.flatnonzero(row)], ensure_ascii=False) for row in patterns]
        return [texts[k] for k in place.ravel()]

    @property
    def labels(self) -> np.ndarray:
        """The classes as the table had them: str, bytes, bool, int64 or float64 of shape (M,)."""
        names, kind = self.card.classes, self.card.label_kind
        if kind == "bool":
            return np.array([name == "True" for name in names])
        kinds = {"int": int, "float": float}  # int is exact, where float64 is not
        if kind in kinds:
            values = [kinds[kind](name) for name in names]
            return np.array(values, np.uint64 if kind == "int" and max(values) >= 2**63 else None)
        given = self.card.labels or names
        return np.array([each.encode() for each in given] if kind == "bytes" else given, dtype=object)

    def ignored(self, rows: Source, keep: Collection[str] = ()) -> list[str]:
        """Return the columns of rows that the model does not know."""
        known = {*self.reader.needed, *self.card.dropped, self.card.label, *keep}
        return [name for name in rows.names if name not in known and not INDEX_COLUMN.fullmatch(name)]

    def predict(
        self,
        rows: pd.DataFrame | Source,
        *,
        strict: bool = False,
        sets: bool | Literal["per-class"] = False,
        tell: Callable[[str], object] = warn,
    ) -> pd.DataFrame:
        """Return `answers` to raw rows.

        Raises `UsboostError` if there is no row, a column is missing, or no value of one can be read.

        Parameters
        ----------
        rows : the columns that the model was fitted to, in any order; a number may be missing where one was
            in training or the table was a user's own. Images are files' bytes or base64, or missing. Or a
            source of such rows.
        strict : refuse numbers, dates and images that cannot be read, instead of counting them as missing,
            and a column that lacks far more values than in training.
        sets : of `answers`.
        tell : called with each sentence of `usboost.table.notes.notes_of_rows`; by default warnings.
        """
        rows = FrameRows(rows, mixed=True) if isinstance(rows, pd.DataFrame) else rows
        rows.answer_to(self.reader.needed)
        tally = Tally(ignored=self.ignored(rows))
        parts = [self.predicted(batch.views) for batch in self.reader.read(rows, strict=strict, tally=tally)]
        if not parts:
            raise UsboostError("no rows to predict")
        check_paths(rows, tally.paths)
        for each in notes_of_rows(tally):
            tell(each)
        return self.answers(np.concatenate(parts), sets=sets)

    def save(self, folder: Path) -> None:
        """Write the folder, whole or not at all; an earlier bundle of that name is replaced.

        Raises `UsboostError` if it cannot be written, or something other than a bundle is there.
        """
        from usboost.models import persistence

        check_place(folder)
        with replacing(folder) as fresh:
            persistence.save(self.model, fresh / MODEL)
            if self.texts:
                (fresh / TEXTS).write_bytes(texts_to_bytes(self.texts))
            said = {"format", "kind", *self.card.model_dump(exclude_defaults=True)}
            card = {key: value for key, value in self.card.model_dump().items() if key in said}
            text = json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False)
            (fresh / CARD).write_text(text + "\n", encoding="utf-8")


def check_place(folder: Path, *, replace: bool = True) -> None:
    """Refuse to write a bundle where something else is, which would be lost.

    Raises `UsboostError` if `folder` is a file, the present one, holds no bundle, or may not be replaced.

    Parameters
    ----------
    replace : whether an earlier bundle may be replaced.
    """
    folder = Path(folder)
    if not folder.name:
        raise UsboostError(f"{folder} is the folder that this runs in; name one in it, or run elsewhere")
    if not replace and (folder / CARD).exists():
        raise UsboostError(f"{folder} holds a model; replace it with `force`, or give another `out`")
    if folder.is_dir():
        names = {entry.name for entry in folder.iterdir()}
        try:
            document = json.loads((folder / CARD).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            document = None
        ours = isinstance(document, Mapping) and document.get("kind") == KIND
        if names - {TEXTS} != {CARD, MODEL} or not ours:
            raise UsboostError(f"{folder} exists and is not only a model of usboost fit; name another folder")
    elif folder.exists() or folder.is_symlink():
        raise UsboostError(f"{folder} is a file, so no model can be saved there; name another folder")


def load(folder: Path) -> Bundle:
    """Read what `Bundle.save` wrote; nothing in it can run code.

    Raises `UsboostError` if a file is missing, damaged or changed, or the card does not fit the model.
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
    # the card has the columns and classes of its encoders and its model
    of_kind = {name: kind for name, kind in card.columns.items() if kind != "category"}
    if set(card.dates) != {name for name, kind in of_kind.items() if kind == "date"}:
        raise UsboostError(f"{path}: the dates are not the columns of dates; fit the model again")
    encoding, parts = bundle.encoding, bundle.encoding.parts
    numbers = [each for name in of_kind for each in (parts[name].names(name) if name in parts else [name])]
    if sorted(card.imputation) != sorted(numbers):
        raise UsboostError(f"{path}: the imputation is not one of the numeric columns; fit the model again")
    categories = card.columns.keys() - of_kind.keys()
    known = [*categories, *numbers, *added(encoding.imputation)] or [NOTHING]
    if sorted(encoding.names) != sorted(known):
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
    return bundle


IMAGE = "image"
"""The column of images of rows that come from no table with one."""


def bundle_of(
    model: Any,
    prepared: Mapping[str, Any],
    *,
    name: str,
    seed: int,
    scores: Mapping[str, float],
    margin: Margin | None = None,
) -> Bundle:
    """Return a fitted model with what a prepared dataset's card says of its columns.

    No number may be missing.

    A user's own table is no such dataset: a fit to it makes the bundle, see `usboost.fit.table_fit.TableFit`.

    Parameters
    ----------
    model : fitted to the split ``train``.
    prepared : the card, see `usboost.datasets.store.describe`.
    name, seed : of the model.
    scores : of the split ``val``.
    margin : of a predicted number, see `usboost.evaluation.intervals.margins`.
    """
    names = dict.fromkeys(each for view in prepared["views"].values() for each in view)
    kinds = {
        each: "number" if prepared["columns"][each]["kind"] == "continuous" else "category" for each in names
    }
    sources, about, train = prepared["sources"], prepared.get("images"), prepared["splits"]["train"]
    counts = [train.get("classes", {}).get(name, 0) for name in prepared["classes"]]
    # the shares of the classes or the mean; none where the dataset's card does not say
    prior = [count / sum(counts) for count in counts] if sum(counts) else []
    card = {
        "model": name,
        "task": store.task_of(prepared),
        "classes": prepared["classes"],
        "label": store.LABEL,
        "margin": margin,
        "prior": [float(train["label"]["mean"])] if "label" in train else prior,
        **({} if prepared["classes"] else {"label_kind": "float"}),
        "columns": kinds,
        "dropped": [],
        "images": {**about, "columns": [IMAGE]} if about else None,
        "imputation": {
            each: {"value": None, "indicator": False} for each, kind in kinds.items() if kind == "number"
        },
        "encoders": prepared["encoders"],
        "rows": {split: prepared["splits"][split]["rows"] for split in ("train", "val")},
        "scores": {key: value if math.isfinite(value) else None for key, value in scores.items()},
        "seed": seed,
        "table": next(iter(sources)) if len(sources) == 1 else prepared["dataset"],
        "sha256": next(iter(sources.values())) if len(sources) == 1 else "",
    }
    return Bundle(model, Card.model_validate(card))


def raw_rows(card: Card, frame: pd.DataFrame, *images: Sequence[bytes | None]) -> pd.DataFrame:
    """Return rows of a prepared frame as `Bundle.predict` takes them.

    These are float64 numbers, strings or None, dates as ISO 8601, and the images' bytes.

    Parameters
    ----------
    frame : rows of a prepared split.
    images : their images' files, None where a row has none; one sequence for each column of images.
    """
    columns: dict[str, pd.Series] = {}
    for name, kind in card.columns.items():
        column = frame[name]
        if kind == "date":
            zoned = getattr(card.formats.get(name), "zone", None)  # a prepared split has UTC
            column = (column.dt.tz_localize("UTC") if zoned else column).map(
                pd.Timestamp.isoformat, na_action="ignore"
            )
        text = column.astype(object)
        columns[name] = column.astype(np.float64) if kind == "number" else text.where(text.notna(), None)
    for column, files in zip(card.images.columns if card.images else [], images):
        columns[column] = pd.Series(list(files), index=frame.index, dtype=object)
    return pd.DataFrame(columns)


def example_of(card: Card, folder: Path) -> pd.DataFrame:
    """Return two validation rows of a prepared dataset, as a client sends them."""
    rows = store.read_frame(folder, "val").head(2)
    about: dict[str, Any] = store.read_card(folder).get("images", {})
    files = []
    for part in image_store.parts("val", about) if about else []:
        shard = about["splits"][part]["shards"][0]["file"]
        images = pq.read_table(folder / image_store.FOLDER / part / shard, columns=["image"])["image"]
        files.append([as_file(each, about) for each in images.slice(0, len(rows)).to_pylist()])
    return raw_rows(card, rows, *files)
