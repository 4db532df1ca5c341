"""A person's own table, Parquet or CSV, read strictly: what each column is, and what cannot be used."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from usboost.datasets.prepared.store import CLEAN, LABEL
from usboost.errors import UsboostError

MISSING = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?")
"""What stands for a missing number in a CSV; in its other columns only the empty field does."""

TEXT_LENGTH = 24
"""Mean number of characters above which a column of mostly distinct strings is text."""

LARGEST = 500_000_000
"""Values of a Parquet table above which it is refused: a small file can stand for any number of rows."""

_FEW = 20  # of fewer strings nothing can be said about how often they repeat
INDEX_COLUMN = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class RawTable:
    """A table whose columns are known.

    Attributes
    ----------
    path : the file.
    features : n rows; float64 numbers (NaN is missing) and pandas categories of strings.
    labels : codes int64 of shape (n,) of the `classes`.
    classes : names of the classes, numbers in rising order, else alphabetically.
    split : the split of each row as given, str of shape (n,), or None.
    paths : the picture's path of each row, or None when there is no picture or it is in the file.
    """

    path: Path
    features: pd.DataFrame
    labels: np.ndarray
    classes: list[str]
    split: np.ndarray | None
    paths: list[str] | None


def read_table(
    path: Path,
    *,
    label: str,
    image: str | None = None,
    split_column: str | None = None,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
) -> RawTable:
    """Read a table.

    In a CSV (UTF-8, commas, a header) a column is numeric when every field but those in `MISSING` is a
    number. Booleans, strings and pandas' categories are categories. A column of 20 or more strings is
    refused when more than half of them are distinct and their mean length is over `TEXT_LENGTH` (text), or
    more than nine in ten are distinct (names or identifiers).

    Parameters
    ----------
    path : a ``.parquet`` or ``.csv`` file.
    label, image, split_column : the columns with these roles.
    categorical : columns that are categories whatever they look like, such as postal codes.
    drop : columns to leave out.

    Raises
    ------
    UsboostError
        If the file is missing, damaged or of another kind; two columns have the same name, a column named
        is absent or has two roles, one that is not the label is called ``label`` or ``clean_label``, or
        there are no rows; a column holds text, identifiers, dates, nested or binary values or infinity; a
        label, split or path is missing; or the labels are of one class or are no classes.
    """
    path = Path(path)
    schema = schema_of(path)
    roles = [name for name in (label, image, split_column) if name is not None]
    _check_names(path, schema.names, roles, categorical, drop)
    pictured = image is not None and is_binary(schema.field(image).type)
    left_out = {*drop, *([image] if pictured else [])}
    names = [name for name in schema.names if name not in left_out and not INDEX_COLUMN.fullmatch(name)]
    table = _load(path, names)
    if not table.num_rows:
        raise UsboostError(f"{path} has no rows")

    from_csv = is_csv(path)
    nominal = {*categorical, *_declared(schema)}
    features = {
        name: feature_of(path, name, table[name], from_csv, name in nominal)
        for name in names
        if name not in roles
    }
    codes, classes = _labels(path, label, plain_column(table[label], from_csv))
    split = paths = None
    if split_column is not None:
        split = _splits(path, split_column, plain_column(table[split_column], from_csv))
    if image is not None and not pictured:
        paths = _paths(path, image, table[image], from_csv)
    frame = pd.DataFrame(features, index=pd.RangeIndex(table.num_rows))
    return RawTable(path, frame, codes, classes, split, paths)


def is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def schema_of(path: Path) -> pa.Schema:
    """Names and types of the columns; of a CSV all are strings."""
    if not path.is_file():
        raise UsboostError(f"there is no table {path}")
    try:
        if is_csv(path):
            with path.open(encoding="utf-8-sig", newline="") as file:
                return pa.schema([(name, pa.string()) for name in next(csv.reader(file), [])])
        if path.suffix.lower() in (".parquet", ".pq"):
            return pq.read_schema(path)
    except (UnicodeDecodeError, csv.Error, pa.ArrowException, OSError) as error:
        raise UsboostError(f"{path} is damaged or not what its name says: {error}") from None
    raise UsboostError(f"{path} must be a .parquet or .csv file")


def _declared(schema: pa.Schema) -> list[str]:
    """Columns that were categories in pandas; Parquet itself keeps that for strings only."""
    try:
        columns = (schema.pandas_metadata or {}).get("columns", [])
        return [column["name"] for column in columns if column.get("pandas_type") == "categorical"]
    # a note of pandas' that is damaged tells nothing
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def _check_names(
    path: Path, names: list[str], roles: list[str], categorical: Collection[str], drop: Collection[str]
) -> None:
    if not names:
        raise UsboostError(f"{path} is empty")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsboostError(f"{path} has two columns called {repeated[0]!r}; rename one")
    for name in (*roles, *categorical, *drop):
        if name not in names:
            raise UsboostError(f"{path} has no column {name!r}; its columns are {', '.join(names)}")
    if repeated := [name for name in roles if roles.count(name) > 1 or name in (*categorical, *drop)]:
        raise UsboostError(f"{path}: column {repeated[0]!r} cannot have two roles")
    for name in (LABEL, CLEAN):
        if name in names and name != roles[0] and name not in drop:
            raise UsboostError(f"{path} has a column {name!r} that is not the label; rename or drop it")


def _load(path: Path, names: list[str]) -> pa.Table:
    try:
        if not is_csv(path):
            with pq.ParquetFile(path) as file:
                if file.metadata.num_rows * len(names) > LARGEST:
                    raise UsboostError(
                        f"{path} has {file.metadata.num_rows:,} rows of {len(names)} columns, more than the "
                        f"{LARGEST:,} values that a table may have"
                    )
            table = pq.read_table(path, columns=names)
            # text that is not UTF-8 would be found only when a value is looked at
            table.validate(full=True)
            return table
        return pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=names,
                strings_can_be_null=False,
            ),
        )
    except UsboostError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise UsboostError(f"{path} is damaged or not what its name says: {error}") from None


def kind_of(column: pa.ChunkedArray) -> pa.DataType:
    """The type of the values, whether or not they are coded by a dictionary."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def plain_column(column: pa.ChunkedArray, from_csv: bool) -> pd.Series:
    """Values as pandas holds them, None or NaN where missing; strings without the spaces around them."""
    kind = kind_of(column)
    series = column.cast(kind).to_pandas()
    if not is_text(kind):
        return series
    series = series.str.strip()
    return series.mask(series == "") if from_csv else series


def feature_of(path: Path, name: str, column: pa.ChunkedArray, from_csv: bool, nominal: bool) -> pd.Series:
    """A column as float64 numbers or a category of strings."""
    kind = kind_of(column)
    if not (is_text(kind) or _is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise UsboostError(f"{path}: column {name!r} is of type {kind}; turn it into numbers or drop it")
    if not nominal and (numbers := parse_numbers(column, from_csv)) is not None:
        with np.errstate(over="ignore"):
            infinite = np.isinf(numbers.to_numpy().astype(np.float32))
        if infinite.any():
            row = int(infinite.argmax()) + 1
            raise UsboostError(f"{path}, row {row}: column {name!r} holds infinity or a number too large")
        return numbers
    values = plain_column(column, from_csv)
    present = values.dropna()
    if is_text(kind) and not nominal and len(present) >= _FEW:
        distinct, length = present.nunique() / len(present), present.str.len().mean()
        if distinct > 0.5 and length > TEXT_LENGTH:
            raise UsboostError(f"{path}: column {name!r} holds text, which is not supported yet; drop it")
        if distinct > 0.9:
            raise UsboostError(
                f"{path}: nearly every row has its own value of column {name!r}, a name or number; drop it"
            )
    names = sorted({text_of(value) for value in present.unique()})
    texts = values.map(text_of, na_action="ignore")
    return pd.Series(pd.Categorical(texts, categories=pd.Index(names, dtype="str")))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def parse_numbers(column: pa.ChunkedArray, from_csv: bool) -> pd.Series | None:
    """float64 values, NaN where missing, or None when the column is a category."""
    if from_csv:
        values = plain_column(column, from_csv)
        values = values.mask(values.isin(MISSING))
        numbers = pd.to_numeric(values, errors="coerce").astype("float64")
        return numbers if (numbers.notna() == values.notna()).all() else None
    if _is_number(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.float64(), safe=False).to_pandas().astype("float64")
    return None


def _labels(path: Path, name: str, values: pd.Series) -> tuple[np.ndarray, list[str]]:
    _refuse_missing(path, name, values)
    texts = values.map(text_of)
    numbers = pd.to_numeric(texts, errors="coerce").astype("float64")
    if pd.api.types.is_float_dtype(values.dtype) and (numbers % 1 != 0).any():
        raise UsboostError(f"{path}: the label column {name!r} holds fractions, but classes are needed")
    distinct = texts.unique().tolist()
    if len(distinct) == 1:
        raise UsboostError(f"{path}: the label column {name!r} holds one class only, {distinct[0]!r}")
    if len(distinct) > max(2, len(texts) / 2):
        raise UsboostError(
            f"{path}: the label column {name!r} has {len(distinct)} values in {len(texts)} rows, but a class "
            "needs several rows"
        )
    classes = sorted(distinct, key=float) if numbers.notna().all() else sorted(distinct)
    return texts.map({value: code for code, value in enumerate(classes)}).to_numpy(np.int64), classes


def _splits(path: Path, name: str, values: pd.Series) -> np.ndarray:
    _refuse_missing(path, name, values)
    texts = values.map(text_of).to_numpy()
    found, wanted = set(texts), {"train", "val", "test"}
    if found != wanted:
        extra = sorted(found - wanted) or sorted(wanted - found)
        what = "unknown" if found - wanted else "missing"
        raise UsboostError(
            f"{path}: the split column {name!r} must hold train, val and test; {extra[0]!r} is {what}"
        )
    return texts


def _paths(path: Path, name: str, column: pa.ChunkedArray, from_csv: bool) -> list[str]:
    if not is_text(kind_of(column)):
        raise UsboostError(f"{path}: the image column {name!r} must hold paths or bytes, not {column.type}")
    values = plain_column(column, from_csv)
    _refuse_missing(path, name, values)
    return values.tolist()


def _refuse_missing(path: Path, name: str, values: pd.Series) -> None:
    if values.isna().any():
        row = int(np.flatnonzero(values.isna())[0]) + 1
        raise UsboostError(f"{path}, row {row}: column {name!r} is empty; fill it or leave out the row")


def text_of(value: object) -> str:
    """A value as a class or category is called: 1, 1.0 and "1" are one."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    return str(value)


def is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
