"""What the values of a raw column are: numbers, categories, classes, paths, and what cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.datasets.custom.source import Source
from usboost.errors import UsboostError

Kind = Literal["number", "category"]

MISSING = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?")
"""What stands for a missing number in a CSV; in its other columns only the empty field does."""

TEXT_LENGTH = 24
"""Mean number of characters above which a column of mostly distinct strings is text."""

_FEW = 20  # too few strings to judge how often they repeat


@dataclass(frozen=True)
class Column:
    """A column of some rows.

    Attributes
    ----------
    source : where the rows are from.
    name : of the column.
    cells : the n values as they were read.
    first : the position of the first of them in the source, for messages.
    """

    source: Source
    name: str
    cells: pa.ChunkedArray
    first: int = 0

    @property
    def type(self) -> pa.DataType:
        """The type of the values, whether or not they are coded by a dictionary."""
        return plain_type(self.cells.type)

    def row(self, k: int) -> str:
        """What the k-th row is called in messages."""
        return f"{self.source}, row {self.first + k + 1}"

    def plain(self) -> pd.Series:
        """Values as pandas holds them, None or NaN where missing; strings without the spaces around them."""
        series = self.cells.cast(self.type).to_pandas()
        if not is_text(self.type):
            return series
        series = series.str.strip()
        return series.mask(series == "") if self.source.as_text else series

    def texts(self) -> pd.Series:
        """Values as classes and categories are called, none of which may be missing.

        Raises
        ------
        UsboostError
            Naming the first row where there is none.
        """
        values = self.plain()
        if values.isna().any():
            row = self.row(int(np.flatnonzero(values.isna())[0]))
            raise UsboostError(f"{row}: column {self.name!r} is empty; fill it or leave out the row")
        return values.map(text_of)

    def numbers(self) -> pd.Series | None:
        """float64 values, NaN where missing, or None when the column holds something else."""
        if self.source.as_text:
            values = self.plain()
            values = values.mask(values.isin(MISSING))
            numbers = pd.to_numeric(values, errors="coerce").astype("float64")
            return numbers if (numbers.notna() == values.notna()).all() else None
        if is_number(self.cells.type) or pa.types.is_null(self.cells.type):
            return self.cells.cast(pa.float64(), safe=False).to_pandas().astype("float64")
        return None

    def feature(self, kind: Kind | None = None) -> pd.Series:
        """What a model may learn from.

        Parameters
        ----------
        kind : what the column is known to hold; by default what it looks like: numbers, or categories
            when any value is none.

        Returns
        -------
        float64 numbers (NaN is missing) or a pandas category of strings.

        Raises
        ------
        UsboostError
            If it holds infinity, something other than the `kind`, or dates, nested or binary values; or
            looks like text, names or identifiers.
        """
        if kind == "number":
            if (numbers := self.numbers()) is None:
                raise UsboostError(
                    f"{self._not_a_number()}: column {self.name!r} held numbers when the model was fitted; "
                    "give numbers"
                )
            return self._finite(numbers)
        usable = is_text(self.type) or is_number(self.type)
        if not (usable or pa.types.is_boolean(self.type) or pa.types.is_null(self.type)):
            raise UsboostError(
                f"{self.source}: column {self.name!r} is of type {self.type}; turn it into numbers or drop it"
            )
        if kind is None and (numbers := self.numbers()) is not None:
            return self._finite(numbers)
        values = self.plain()
        present = values.dropna()
        if kind is None and is_text(self.type):
            self._refuse_text(present)
        names = sorted({text_of(value) for value in present.unique()})
        texts = values.map(text_of, na_action="ignore")
        return pd.Series(pd.Categorical(texts, categories=pd.Index(names, dtype="str")))

    def classes(self) -> tuple[np.ndarray, list[str]]:
        """The column as labels: codes int64 of shape (n,), and the classes' names.

        Raises
        ------
        UsboostError
            If one is missing, they are fractions, all of one class, or nearly all of different ones.
        """
        texts = self.texts()
        numbers = pd.to_numeric(texts, errors="coerce").astype("float64")
        if pa.types.is_floating(self.type) and (numbers % 1 != 0).any():
            raise UsboostError(
                f"{self.source}: the label column {self.name!r} holds fractions, but classes are needed"
            )
        distinct = texts.unique().tolist()
        if len(distinct) == 1:
            raise UsboostError(
                f"{self.source}: the label column {self.name!r} holds one class only, {distinct[0]!r}"
            )
        if len(distinct) > max(2, len(texts) / 2):
            raise UsboostError(
                f"{self.source}: the label column {self.name!r} has {len(distinct)} values in {len(texts)} "
                "rows, but a class needs several rows"
            )
        classes = sorted(distinct, key=float) if numbers.notna().all() else sorted(distinct)
        return texts.map({value: code for code, value in enumerate(classes)}).to_numpy(np.int64), classes

    def codes(self, known: Mapping[str, int]) -> np.ndarray:
        """The column as labels of known classes: their codes, int64 of shape (n,).

        Raises
        ------
        UsboostError
            Naming the first row that has none, or another.
        """
        texts = self.texts()
        codes = texts.map(known)
        if codes.isna().any():
            k = int(np.flatnonzero(codes.isna())[0])
            raise UsboostError(
                f"{self.row(k)}: {self.name!r} is {texts.iloc[k]!r}, which is none of the model's "
                f"classes {', '.join(known)}"
            )
        return codes.to_numpy(np.int64)

    def splits(self) -> np.ndarray:
        """The column as names of splits, str of shape (n,).

        Raises
        ------
        UsboostError
            If one is missing, is none of train, val and test, or one of these is nowhere.
        """
        texts = self.texts().to_numpy()
        found, wanted = set(texts), {"train", "val", "test"}
        if found != wanted:
            extra = sorted(found - wanted) or sorted(wanted - found)
            what = "unknown" if found - wanted else "missing"
            raise UsboostError(
                f"{self.source}: the split column {self.name!r} must hold train, val and test; "
                f"{extra[0]!r} is {what}"
            )
        return texts

    def _finite(self, numbers: pd.Series) -> pd.Series:
        with np.errstate(over="ignore"):
            infinite = np.isinf(numbers.to_numpy().astype(np.float32))
        if infinite.any():
            row = self.row(int(infinite.argmax()))
            raise UsboostError(f"{row}: column {self.name!r} holds infinity or a number too large")
        return numbers

    def _refuse_text(self, present: pd.Series) -> None:
        if len(present) < _FEW:
            return
        distinct, length = present.nunique() / len(present), present.str.len().mean()
        if distinct > 0.5 and length > TEXT_LENGTH:
            raise UsboostError(
                f"{self.source}: column {self.name!r} holds text, which is not supported yet; drop it"
            )
        if distinct > 0.9:
            raise UsboostError(
                f"{self.source}: nearly every row has its own value of column {self.name!r}, a name or "
                "number; drop it"
            )

    def _not_a_number(self) -> str:
        """Where the first field of a CSV's column is that is no number; else the source."""
        if self.source.as_text:
            for k in range(len(self.cells)):
                if Column(self.source, self.name, self.cells.slice(k, 1)).numbers() is None:
                    return f"{self.row(k)}, {self.cells[k].as_py()!r}"
        return str(self.source)


def text_of(value: object) -> str:
    """A value as a class or category is called: 1, 1.0 and "1" are one."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    return str(value)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, whether or not they are coded by a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
