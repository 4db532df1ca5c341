"""The card of a saved model, ``card.json``: its form, and how it is made of a fit."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from usboost.data.value import canonical
from usboost.datasets.image_files import Aspect
from usboost.datasets.image_store import CardPart
from usboost.datasets.store import EncoderCard
from usboost.evaluation.statistics import mean
from usboost.shards.collective import world
from usboost.table.columns.column import Kind
from usboost.table.columns.encoding import DateParts, Encoding, Part
from usboost.table.columns.formats import Written, plain_form
from usboost.table.columns.texts import texts_to_bytes
from usboost.table.images import ImageColumns
from usboost.table.user_table import UserTable

_Count = Annotated[int, Field(ge=0)]

PlainMargin = Annotated[
    list[Annotated[list[FiniteFloat], Field(min_length=3, max_length=3)]],
    Field(min_length=1),
    BeforeValidator(lambda given: given if not given or isinstance(given[0], list) else [[0.0, *given]]),
    AfterValidator(sorted),
]
"""An `intervals.Margin` in a file; a pair, in files of before, is that of all predictions."""

_Share = Annotated[float, Field(ge=0, le=1)]
_Side = Annotated[int, Field(ge=1, le=4096)]


class Imputed(CardPart):
    """The value for a missing number (None: none may be missing), and whether a column marks where."""

    value: FiniteFloat | None
    indicator: bool


class ImagesEntry(CardPart):
    """The way images are read; see `usboost.table.images.ImageColumns`."""

    columns: Annotated[list[str], Field(min_length=1)]
    size: Annotated[list[_Side], Field(min_length=2, max_length=2)]
    channels: Literal[1, 3]
    aspect: Aspect = "crop"
    # what cards of before say; several columns as one view are not read any more
    pooled: Literal[False] = Field(False, exclude=True)

    @property
    def form(self) -> ImageColumns:
        return ImageColumns(tuple(self.columns), self.size[0], self.channels, self.aspect)


class Dates(CardPart):
    """The parts that a column of dates becomes; see `usboost.table.columns.encoding.DateParts`."""

    reference: str
    parts: Annotated[list[Part], Field(min_length=1)]

    @field_validator("reference")
    @classmethod
    def _a_date(cls, date: str) -> str:
        datetime.fromisoformat(date)
        return date

    @property
    def rule(self) -> DateParts:
        return DateParts(self.reference, tuple(self.parts))


class Card(CardPart):
    """The document in ``card.json``.

    Attributes
    ----------
    model : the name of the model; task : what it predicts.
    classes : the classes' names in the order of its probabilities; none where it predicts a number.
    label_kind : what labels are in the table, and in answers.
    labels : as an estimator was given them, where the classes are called otherwise: with blanks, say.
    temperature : by which probabilities are calibrated, see `usboost.evaluation.calibration`.
    threshold : of two classes, the probability of the second from which it is the answer; None: the more
        probable one is.
    least : of classes, the probability from which one is in a row's set, so that 9 in 10 sets hold the true
        one, see `usboost.evaluation.intervals`; least_by_class : the same for 9 in 10 rows of each class.
    margin : of a number, what is added to a prediction for the ends of an interval that holds 9 in 10 rows,
        see `usboost.evaluation.intervals.margins`.
    floor : of a number, what no prediction is below, see `usboost.evaluation.calibration`.
    label, dropped : columns of the table that it does not read; weight : of these that of rows' weights, ""
        without.
    columns : what each column that it reads holds; images : the columns of images.
    names : of the columns that an estimator was fitted to; none where `read_and_dropped` says it.
    texts_sha256 : of the file that holds what columns of text become.
    imputation, encoders, dates : how columns become views, see `columns.encoding.Encoding`.
    gaps : the share of rows without a value, or image, by column; none of cards of before.
    formats : how numbers and dates that are text are written; missing : further values that count as missing.
    rows, scores : of the training and the validation rows; the scores are of the latter. Where the model was
        then fitted to these, too, they are counted as training rows, and none as validation rows.
    prior : of the training rows, the shares of the classes or the mean, which any model has to beat; none of
        a prepared dataset whose card does not say it.
    history : of the fit's rounds, ``round`` and what was measured of training and validation rows, thinned;
        of those of an average's members also ``member``.
    parameters : what an estimator was given, or what stands for it of a command's options, for another fit.
    seed, table, sha256 : of the fit; the digest is that of the table, "" where it is no single file.
    """

    format: Literal[1] = 1
    kind: Literal["usboost model of a table"] = "usboost model of a table"
    model: str
    task: Literal["classification", "regression"] = "classification"
    classes: list[str]
    label: str
    label_kind: Literal["bool", "int", "float", "str", "bytes"] = "str"
    labels: list[str] = Field(default_factory=list)
    temperature: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    threshold: _Share | None = None
    least: _Share | None = None
    least_by_class: list[_Share] = Field(default_factory=list)
    margin: PlainMargin | None = None
    floor: FiniteFloat | None = None
    columns: dict[str, Kind]
    dropped: list[str]
    weight: str = ""
    images: ImagesEntry | None
    names: list[str] = Field(default_factory=list)
    imputation: dict[str, Imputed]
    encoders: dict[str, EncoderCard]
    dates: dict[str, Dates] = Field(default_factory=dict)
    texts_sha256: str = ""
    gaps: dict[str, _Share] = Field(default_factory=dict)
    formats: dict[str, Written] = Field(default_factory=dict)
    missing: list[str] = Field(default_factory=list)
    rows: dict[str, _Count]
    scores: dict[str, FiniteFloat | None]
    prior: list[FiniteFloat] = Field(default_factory=list)
    history: dict[str, list[FiniteFloat] | list[str]] = Field(default_factory=dict)
    parameters: dict[str, Any] = Field(default_factory=dict)
    seed: int
    table: str
    sha256: str

    @property
    def read_and_dropped(self) -> list[str]:
        """The columns that it reads, those of images, and those that it does not read."""
        return [*self.columns, *(self.images.columns if self.images else ()), *self.dropped]

    @model_validator(mode="after")
    def _fits_its_task(self) -> "Card":
        if (self.task == "classification") != (len(self.classes) >= 2):
            raise ValueError(f"a {self.task} has {len(self.classes)} classes")
        if self.labels and len(set(self.labels)) != len(self.classes):
            raise ValueError("there is not one label for each class")
        list(map({"int": int, "float": float}.get(self.label_kind, str), self.classes))  # can be read
        if self.threshold is not None and len(self.classes) != 2:
            raise ValueError("a threshold is of two classes")
        if self.least_by_class and len(self.least_by_class) != len(self.classes):
            raise ValueError("least_by_class is not one number for each class")
        if len({len(values) for values in self.history.values()}) > 1:
            raise ValueError("the history has not the same rounds throughout")
        return self


OF_PROCESS = frozenset({"callbacks", "images_root", "random_state"})
"""Parameters of an estimator that are not another process's; the card has the seed."""


def plain_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some parameters that JSON can hold, as it holds them, without those `OF_PROCESS`."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, Mapping):
            return {canonical(key): plain(each) for key, each in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return [plain(each) for each in value]
        if isinstance(value, float) and not math.isfinite(value):
            raise TypeError
        if value is None or isinstance(value, (str, bool, int, float)):
            return value
        raise TypeError

    parameters = {}
    for name in given.keys() - OF_PROCESS:
        with suppress(TypeError):
            parameters[name] = plain(given[name])
    return dict(sorted(parameters.items()))


def card_of(
    table: UserTable,
    encoding: Encoding,
    *,
    model: str,
    rows: tuple[int, int],
    seen: np.ndarray,
    scores: Mapping[str, float],
    seed: int,
    **answers: Any,
) -> Card:
    """Return what a bundle says of a model that was fitted to a table.

    Parameters
    ----------
    encoding : of the table's columns.
    model : its name; rows : (training, validation); scores : of the latter; seed : of the fit.
    seen : positions of the rows that it was fitted to, or stopped by.
    answers : further fields of the card: temperature, threshold, least, least_by_class, margin, floor, prior,
        history.
    """
    form, lacking = table.form, table.features.iloc[seen].isna()
    for view, column in zip(form.names, form.columns) if form else ():
        absent = getattr(table.images[view], "absent", None)
        lacking = lacking.assign(**{column: False if absent is None else absent[seen]})
    counts = world().sum(np.append(lacking.sum().to_numpy(np.float64), len(seen)))
    others = (table.spec.group, table.spec.time, table.spec.weight, table.spec.split)
    card = {
        "model": model,
        "task": table.task,
        "classes": table.classes,
        "label": table.spec.label,
        "label_kind": table.label_kind if table.classes else "float",
        **answers,
        "columns": table.kinds,
        "dropped": [*table.spec.drop, *table.left_out, *filter(None, others)],
        "weight": table.spec.weight or "",
        "images": form
        and {
            "columns": list(form.columns),
            "size": [form.size, form.size],
            "channels": form.channels,
            "aspect": form.aspect,
        },
        "imputation": encoding.imputation,
        "dates": {name: each.to_dict() for name, each in encoding.dates.items()},
        "texts_sha256": hashlib.sha256(texts_to_bytes(encoding.texts)).hexdigest() if encoding.texts else "",
        "gaps": dict(zip(map(str, lacking), counts[:-1] / counts[-1], strict=True)),
        "formats": {name: plain_form(form) for name, form in table.formats.items()},
        "missing": list(table.spec.missing),
        "encoders": {view: encoder.to_dict() for view, encoder in encoding.encoders.items()},
        "rows": {"train": rows[0], "val": rows[1]},
        "scores": {key: value if math.isfinite(value) else None for key, value in scores.items()},
        "seed": seed,
        "table": getattr(getattr(table.file, "path", None), "name", str(table.file)),
        "sha256": table.file.digest(),
    }
    return Card.model_validate(card)


def prior_of(table: UserTable, rows: np.ndarray) -> list[float]:
    """Return the shares of the classes among some rows, or the rows' mean."""
    labels, weights = table.labels[rows], None if table.weights is None else table.weights[rows]
    if not table.classes:
        return [mean(labels, weights)]
    counts = world().sum(np.bincount(labels, weights, minlength=len(table.classes)))
    return (counts / counts.sum()).tolist()
