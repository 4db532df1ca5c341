"""Dates as numbers: which parts of a date differ among the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

Part = Literal["year", "month", "weekday", "yearday", "hour", "days"]

PARTS: tuple[Part, ...] = get_args(Part)
"""``weekday`` counts from Monday, 0; ``yearday`` from 1; ``days``, with fractions, from the reference."""


@dataclass(frozen=True)
class DateParts:
    """What a column of dates becomes.

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
    def fit(cls, dates: pd.Series) -> DateParts:
        """Learn from the datetime64 of the training rows."""
        present = dates.dropna()
        reference = present.min() if len(present) else pd.Timestamp(1970, 1, 1)
        every = cls(reference.isoformat(), PARTS)
        found = every.expand("", present).values()
        varying = tuple(part for part, values in zip(PARTS, found, strict=True) if values.nunique() > 1)
        return cls(every.reference, varying or ("days",))

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"reference": self.reference, "parts": list(self.parts)}

    def names(self, column: str) -> list[str]:
        """What the parts of a column are called."""
        return [f"{column}_{part}" for part in self.parts]

    def expand(self, column: str, dates: pd.Series) -> dict[str, pd.Series]:
        """float64 numbers by name, NaN where the date is missing.

        Parameters
        ----------
        dates : datetime64 of n rows.
        """
        of = dates.dt
        numbers = {
            "year": lambda: of.year,
            "month": lambda: of.month,
            "weekday": lambda: of.day_of_week,
            "yearday": lambda: of.day_of_year,
            "hour": lambda: of.hour,
            "days": lambda: days_since(dates, pd.Timestamp(self.reference)),
        }
        return {
            name: numbers[part]().astype(np.float64)
            for part, name in zip(self.parts, self.names(column), strict=True)
        }


def dates_of(train: pd.DataFrame) -> dict[str, DateParts]:
    """What the columns of dates become, by name."""
    return {str(name): DateParts.fit(train[name]) for name in train if is_date(train[name])}


def is_date(column: pd.Series) -> bool:
    """Whether it holds datetime64."""
    return getattr(column.dtype, "kind", "") == "M"


def days_since(dates: pd.Series, reference: pd.Timestamp) -> pd.Series:
    """float64 days with fractions, NaN where the date is missing."""
    return (dates - reference) / pd.Timedelta(days=1)
