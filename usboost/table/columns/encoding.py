"""From a user's columns to the views that models read, as learnt from a model's training rows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from usboost.data.encoding import TableEncoder
from usboost.data.views import View, Views
from usboost.errors import UsboostError
from usboost.evaluation.statistics import median
from usboost.files.onnx_graph import TableNodes, Value
from usboost.shards.collective import world
from usboost.table.columns.texts import TextParts, holds_text

Part = Literal["year", "month", "weekday", "yearday", "hour", "days"]

PARTS: tuple[Part, ...] = get_args(Part)
"""``weekday`` counts from Monday, 0; ``yearday`` from 1; ``days``, with fractions, from the reference."""


@dataclass(frozen=True)
class DateParts:
    """The numbers that a column of dates becomes.

    Attributes
    ----------
    reference : the first date of the training rows, in UTC, as ISO 8601.
    parts : those of `PARTS` that are not the same in all training rows; ``days`` where all are.
    """

    reference: str
    parts: tuple[Part, ...]

    filled = None
    """Stands for each part of a date that is missing; None: the median."""

    @classmethod
    def fit(cls, dates: pd.Series) -> "DateParts":
        """Learn from the datetime64 of the training rows."""
        present = dates.dropna()
        own = present.to_numpy()
        firsts = np.concatenate(world().gather(np.sort(own)[:1].view(np.int64))).view(own.dtype)
        reference = pd.Timestamp(firsts.min() if len(firsts) else 0)
        every = cls(reference.isoformat(), PARTS)
        values = np.array(list(every.expand("", present).values()))
        low, high = -values.min(axis=1, initial=np.inf), values.max(axis=1, initial=-np.inf)
        varies = -world().highest(low) < world().highest(high)
        varying = tuple(part for part, each in zip(PARTS, varies, strict=True) if each)
        return cls(every.reference, varying or ("days",))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {"reference": self.reference, "parts": list(self.parts)}

    def names(self, column: str) -> list[str]:
        """Return the names of the parts of a column."""
        return [f"{column}_{part}" for part in self.parts]

    def expand(self, column: str, dates: pd.Series) -> dict[str, pd.Series]:
        """Return float64 numbers by name, NaN where the date is missing. `dates`: datetime64 of n rows."""
        of = dates.dt
        numbers = {
            "year": lambda: of.year,
            "month": lambda: of.month,
            "weekday": lambda: of.day_of_week,
            "yearday": lambda: of.day_of_year,
            "hour": lambda: of.hour,
            "days": lambda: (dates - pd.Timestamp(self.reference)) / pd.Timedelta(days=1),
        }
        return {
            name: numbers[part]().astype(np.float64)
            for part, name in zip(self.parts, self.names(column), strict=True)
        }

    def to_onnx(self, column: str, seconds: Value) -> dict[str, Value]:
        """Return the same of seconds since 1970 in a graph, float64 (n,), NaN where the date is missing."""
        day = seconds // 86_400.0
        # the civil calendar, by years that begin in March: a leap day is the last of its year
        era, of_era = (day + 719_468.0) // 146_097.0, (day + 719_468.0) % 146_097.0
        year = (of_era - of_era // 1_460.0 + of_era // 36_524.0 - of_era // 146_096.0) // 365.0
        of_year = of_era - (year * 365.0 + year // 4.0 - year // 100.0)
        month = (of_year * 5.0 + 2.0) // 153.0  # from March, 0
        late = (month >= 10.0).cast(np.float64)
        civil = era * 400.0 + year + late
        # the 1st of January comes so many days after that of 1970
        past = civil - 1.0
        january = past * 365.0 + past // 4.0 - past // 100.0 + past // 400.0 - 719_162.0
        values = {
            "year": civil,
            "month": month + 3.0 - late * 12.0,
            "weekday": (day + 3.0) % 7.0,
            "yearday": day - january + 1.0,
            "hour": seconds % 86_400.0 // 3_600.0,
            "days": (seconds - pd.Timestamp(self.reference, tz="UTC").timestamp()) / 86_400.0,
        }
        return {name: values[part] for part, name in zip(self.parts, self.names(column), strict=True)}


def holds_dates(column: pd.Series) -> bool:
    """Return whether a column holds datetime64."""
    return getattr(column.dtype, "kind", "") == "M"


SUFFIX = "_missing"
"""Ends the name of the column that is 1 where a number was missing."""

NOTHING = "nothing"
"""The name of a column of 0, the only one besides images alone."""

Imputation = Mapping[str, Mapping[str, Any]]
"""For each numeric column the ``value`` that stands for a missing one (None where none may be missing), and
whether an ``indicator`` column marks where."""


Parts = Mapping[str, DateParts | TextParts]
"""The rules of columns that become several numbers, by column."""


@dataclass(frozen=True)
class Encoding:
    """From raw columns to views.

    Attributes
    ----------
    imputation : of the numeric columns, parts of dates and texts included.
    encoders : of the completed columns, by the view that reads them.
    dates, texts : what columns of dates and of text become.
    unseen : of each text the scores of the rows that it learnt from, by their index in the table;
        these rows have them in place of what new rows have.
    """

    imputation: Imputation
    encoders: Mapping[str, TableEncoder]
    dates: Mapping[str, DateParts] = field(default_factory=dict)
    texts: Mapping[str, TextParts] = field(default_factory=dict)
    unseen: Mapping[str, pd.DataFrame] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def fit(
        cls,
        features: pd.DataFrame,
        views: Collection[str],
        targets: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> "Encoding":
        """Learn from the rows that a model is fitted to; each of the views reads all columns.

        A missing number becomes the median of its column (0 when all are missing, and of texts), and has an
        indicator column where any is missing; of the parts of a date or text, the first has it. Raises
        UsboostError if a column has the name of one that is added. `targets`: of texts, see
        `TextParts.with_scores`; by default these have no scores.
        """
        dates = {str(name): DateParts.fit(features[name]) for name in features if holds_dates(features[name])}
        texts = {str(name): TextParts.fit(features[name]) for name in features if holds_text(features[name])}
        unseen = {}
        for name, each in texts.items():
            if targets is not None and each.ngrams:
                texts[name], own = each.with_scores(features[name], *targets)
                names = texts[name].names(name)[each.width :]
                unseen[name] = pd.DataFrame(own, features.index, names).dropna()
        parts: Parts = {**dates, **texts}
        expanded = _expand(features, parts, unseen)
        further = {name for column, each in parts.items() for name in each.names(column)[1:]}
        filled = {name: each.filled for column, each in parts.items() for name in each.names(column)}
        imputation = {}
        for name, column in expanded.items():
            if not isinstance(column.dtype, np.dtype):
                continue
            missing, value = column.isna(), filled.get(str(name))
            given, lacking = world().highest(np.array([not missing.all(), missing.any()]))
            if value is None:
                value = median(column[~missing].to_numpy()) if given else 0.0
            imputation[str(name)] = {"value": value, "indicator": bool(lacking) and name not in further}
        completed = cls(imputation, {}, dates, texts, unseen).complete(features)
        encoder = TableEncoder.fit(completed, list(completed.columns))
        return cls(imputation, dict.fromkeys(views, encoder), dates, texts, unseen)

    @property
    def parts(self) -> Parts:
        """Return the rules of columns that become several numbers."""
        return {**self.dates, **self.texts}

    @property
    def names(self) -> list[str]:
        """Return the encoded columns, added ones included."""
        return list(dict.fromkeys(name for encoder in self.encoders.values() for name in encoder.names))

    def complete(self, features: pd.DataFrame) -> pd.DataFrame:
        """Fill missing numbers of any rows, as in the training rows, and add the parts of dates and texts and
        the indicator columns: the columns that the encoders read.

        Raises UsboostError if a column has the name of one that is added. `features`: columns as
        `Column.feature` gives them.

        Returns
        -------
        A new frame; numbers are float64, parts of texts and indicators float32; an indicator stands after its
        column.
        """
        expanded = _expand(features, self.parts, self.unseen)
        filled: list[pd.Series] = []
        for name in expanded:
            column, rule = expanded[name], self.imputation.get(str(name))
            if rule is not None:
                column = column if rule["value"] is None else column.fillna(rule["value"])
                if column.dtype != np.float32:  # where 20230105 and 20230106 are one: encoders centre first
                    column = column.astype(np.float64)
            filled.append(column)
            if rule is not None and rule["indicator"]:
                filled.append(expanded[name].isna().astype(np.float32).rename(f"{name}{SUFFIX}"))
        if not filled:
            return pd.DataFrame({NOTHING: np.zeros(len(features))}, index=features.index)
        return _joined(filled)

    def to_onnx(self, columns: Mapping[str, Value]) -> dict[str, TableNodes]:
        """Return the views of raw columns in a graph.

        Raises UsboostError, naming the column, if one is of texts. `columns`: float64 (n,) numbers, and dates
        as seconds since 1970, NaN where missing, and str (n,) categories, "" where missing.
        """
        if texts := [*self.texts]:
            raise UsboostError(f"column {texts[0]!r} is text, which has no ONNX form; fit a model without it")
        completed = {name: value for name, value in columns.items() if name not in self.dates}
        for name, rule in self.dates.items():
            completed |= rule.to_onnx(name, columns[name])
        for name, filled in self.imputation.items():
            value = completed[name]
            if filled["value"] is not None:
                completed[name] = value.IsNaN().Where(filled["value"], value)
            if filled["indicator"]:
                completed[f"{name}{SUFFIX}"] = value.IsNaN().cast(np.float64)
        tables = {encoder: encoder.to_onnx(completed) for encoder in set(self.encoders.values())}
        return {view: tables[encoder] for view, encoder in self.encoders.items()}

    def views(self, features: pd.DataFrame, images: Mapping[str, View] | None = None) -> Views:
        """Return the views of n rows: the images, then the tables, of which equal ones are made once.

        Raises UsboostError if a number is missing that may not be. `features`: columns as `Column.feature`
        gives them. `images`: views of the images by name.
        """
        completed = self.complete(features)
        tables = {encoder: encoder.transform(completed) for encoder in set(self.encoders.values())}
        return Views({**(images or {})} | {view: tables[encoder] for view, encoder in self.encoders.items()})


def added(imputation: Imputation) -> list[str]:
    """Return the names of the indicator columns."""
    return [f"{name}{SUFFIX}" for name, rule in imputation.items() if rule["indicator"]]


def _expand(features: pd.DataFrame, parts: Parts, unseen: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put the parts of dates and texts in place of these; see `Encoding`."""
    if not parts:
        return features
    columns: list[pd.Series] = []
    for name in features:
        rule, column = parts.get(str(name)), features[name]
        if rule is None:
            columns.append(column)
        else:
            made = rule.expand(str(name), column)
            if str(name) in unseen:
                own = unseen[str(name)].reindex(features.index)
                made |= {each: own[each].fillna(made[each]) for each in own}
            columns += [part.rename(each) for each, part in made.items()]
    return _joined(columns)


def _joined(columns: list[pd.Series]) -> pd.DataFrame:
    joined = pd.concat(columns, axis=1)
    if clash := [str(name) for name in joined.columns[joined.columns.duplicated()]]:
        if clash[0].endswith(SUFFIX):
            why = f"an indicator to be added, which marks where {clash[0].removesuffix(SUFFIX)!r} is missing"
        elif "__text_" in clash[0]:
            why = f"a component of the text {clash[0].rpartition('__text_')[0]!r} to be added"
        else:
            why = f"a part of the date {clash[0].rpartition('_')[0]!r} to be added"
        raise UsboostError(f"the column {clash[0]!r} has the name of {why}; rename it")
    return joined
