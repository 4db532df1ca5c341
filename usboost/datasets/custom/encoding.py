"""From a person's columns to the views that models read, as learnt from a model's training rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.encoding import TableEncoder
from usboost.data.views import View, Views
from usboost.errors import UsboostError

SUFFIX = "_missing"
"""Ends the name of the column that is 1 where a number was missing."""

Imputation = Mapping[str, Mapping[str, Any]]
"""For each numeric column the ``value`` that stands for a missing one (None where none may be missing), and
whether an ``indicator`` column marks where."""


@dataclass(frozen=True)
class Encoding:
    """From raw columns to views.

    Attributes
    ----------
    imputation : of the numeric columns.
    encoders : of the completed columns, by the view that reads them.
    """

    imputation: Imputation
    encoders: Mapping[str, TableEncoder]

    @classmethod
    def fit(cls, features: pd.DataFrame, views: Collection[str]) -> Encoding:
        """Learn from the rows that a model is fitted to; each of the views reads all columns.

        Raises
        ------
        UsboostError
            If a column has the name of an indicator.
        """
        imputation = imputation_of(features)
        completed = complete(features, imputation)
        return cls(imputation, dict.fromkeys(views, TableEncoder.fit(completed, list(completed.columns))))

    @property
    def names(self) -> list[str]:
        """The encoded columns, added ones included."""
        return list(dict.fromkeys(name for encoder in self.encoders.values() for name in encoder.names))

    def views(self, features: pd.DataFrame, pictures: Mapping[str, View] | None = None) -> Views:
        """The views of n rows: the pictures, then the tables, of which equal ones are made once.

        Parameters
        ----------
        features : columns as `Column.feature` gives them.
        pictures : views of the pictures by name.

        Raises
        ------
        UsboostError
            If a number is missing that may not be.
        """
        completed = complete(features, self.imputation)
        tables = {encoder: encoder.transform(completed) for encoder in set(self.encoders.values())}
        return Views(
            {**(pictures or {})} | {view: tables[encoder] for view, encoder in self.encoders.items()}
        )


def imputation_of(train: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The median of each numeric column's training rows (0 when all are missing), and an indicator column
    where any is missing."""
    rules = {}
    for name in train:
        if isinstance(train[name].dtype, np.dtype):
            missing = train[name].isna()
            value = 0.0 if missing.all() else float(train[name].median())
            rules[str(name)] = {"value": value, "indicator": bool(missing.any())}
    return rules


def added(imputation: Imputation) -> list[str]:
    """The names of the indicator columns."""
    return [f"{name}{SUFFIX}" for name, rule in imputation.items() if rule["indicator"]]


def complete(features: pd.DataFrame, imputation: Imputation) -> pd.DataFrame:
    """Fill missing numbers of any rows, as in the training rows, and add the indicator columns.

    Parameters
    ----------
    features : columns as `Column.feature` gives them.

    Returns
    -------
    A new frame; numbers are float32, an indicator stands after its column.

    Raises
    ------
    UsboostError
        If a column has the name of an indicator.
    """
    filled: list[pd.Series] = []
    for name in features:
        column, rule = features[name], imputation.get(str(name))
        if rule is not None:
            column = column if rule["value"] is None else column.fillna(rule["value"])
            column = column.astype(np.float32)
        filled.append(column)
        if rule is not None and rule["indicator"]:
            filled.append(features[name].isna().astype(np.float32).rename(f"{name}{SUFFIX}"))
    completed = pd.concat(filled, axis=1)
    if clash := [str(name) for name in completed.columns[completed.columns.duplicated()]]:
        raise UsboostError(
            f"the column {clash[0]!r} has the name of an indicator to be added, which marks where "
            f"{clash[0].removesuffix(SUFFIX)!r} is missing; rename it"
        )
    return completed
