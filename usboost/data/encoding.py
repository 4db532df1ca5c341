"""From raw columns to a Table: scaled numbers and category codes, learnt on the training split only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.table import Table
from usboost.data.value import TRUTH, canonical, find
from usboost.errors import UsboostError
from usboost.evaluation.statistics import deviation, mean
from usboost.files.onnx_graph import TableNodes, Value, joined
from usboost.shards.collective import world

SKEWED = 3.0
"""Absolute training skewness above which a numeric column is read through the signed log1p."""

CELL = 1e-4
"""Standard deviations within which rows of different values are hardly told apart."""

CROWDED = 0.01
"""Share of the rows, and `FEW` of them, in one cell besides its most frequent value: they are lost."""

FEW, LOOKED_AT = 5, 20_000
"""Rows that say that a scaling loses values: at least; and at most looked at."""

KNOTS = 1000
"""Places of values that a column read by its ranks has, at most."""

_FARTHEST = 1e15
"""Standard deviations at which a scaled value is cut off. No training row is as far: n rows reach at most √n.
Products of a few such values are finite in float32."""
_ROUNDING = 1e-14  # of a value, by which equal ones may differ after a few operations


@dataclass(frozen=True)
class Numeric:
    """The scaling of one numeric column: (x − mean) / std, of sign(x)·log(1 + |x|) when ``log``.

    Where that would crowd different values into one place, as next to a fill value 1e10, or underflow, x is
    read by its standardised rank instead: ``places[k]`` at ``knots[k]``, straight lines between them.
    """

    name: str
    log: bool
    mean: float
    std: float
    knots: tuple[float, ...] = ()
    places: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.places) or len(self.knots) == 1 or (np.diff(self.knots) <= 0).any():
            raise UsboostError(f"the knots of column {self.name!r} do not rise, each with its place")

    @classmethod
    def fit(cls, name: str, values: np.ndarray) -> "Numeric":
        """Learn the scaling from float64 values of shape (n,)."""
        raw = values
        with np.errstate(over="ignore", invalid="ignore"):
            log = _is_skewed(values)
            values = _signed_log(values) if log else values
            centre, scale = mean(values), deviation(values)
        if not (np.isfinite(centre) and np.isfinite(scale)):
            raise UsboostError(f"column {name!r} holds numbers too large to standardise; rescale it first")
        ends = world().highest(np.array([-values.min(initial=np.inf), values.max(initial=-np.inf)]))
        constant = -ends[0] == ends[1]
        scaling = cls(name, log, centre, 0.0 if constant else scale)
        every = np.concatenate(world().gather(raw[world().sample(len(raw))]))  # a sample on several shards
        if constant or (scale > 0 and not _crowds(scaling, every)):
            return scaling
        distinct, counts = np.unique(every, return_counts=True)
        ends = np.cumsum(counts)
        places = ends - counts / 2 - len(every) / 2  # the middle rank of equal ones, less the mean
        places /= np.sqrt(np.average(np.square(places), weights=counts))
        wanted = np.linspace(1, len(every), KNOTS)
        chosen = np.unique(np.searchsorted(ends, wanted)) if len(distinct) > KNOTS else slice(None)
        return cls(name, False, 0.0, 1.0, tuple(distinct[chosen].tolist()), tuple(places[chosen].tolist()))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Scale float64 values of shape (n,); a column constant in training becomes zeros."""
        if self.std == 0:
            return np.zeros(len(values))
        if self.knots:
            knots, places = np.array(self.knots), np.array(self.places)
            values = np.clip(values, knots[0], knots[-1])
            k = np.clip(np.searchsorted(knots, values, side="right") - 1, 0, len(knots) - 2)
            # np.interp's slopes overflow where knots are subnormal
            return places[k] + (values - knots[k]) / (knots[k + 1] - knots[k]) * (places[k + 1] - places[k])
        values = _signed_log(values) if self.log else values
        with np.errstate(over="ignore"):
            return np.clip((values - self.mean) / self.std, -_FARTHEST, _FARTHEST)

    def to_onnx(self, values: Value) -> Value:
        """Return the scaled values of float64 (n,) in a graph, float32 (n,)."""
        if self.std == 0:
            return (values * 0.0).cast(np.float32)
        if self.knots:
            knots, places = np.array(self.knots), np.array(self.places)
            values = values.Clip(knots[0], knots[-1])
            k = (values.Unsqueeze([1]) >= knots[None, 1:-1]).cast(np.int64).summed(1)
            part = (values - k.picks(knots)) / k.picks(np.diff(knots))
            return (k.picks(places) + part * k.picks(np.diff(places))).cast(np.float32)
        if self.log:
            values = values.Sign() * (1.0 + values.Abs()).Log()
        return ((values - self.mean) / self.std).Clip(-_FARTHEST, _FARTHEST).cast(np.float32)


@dataclass(frozen=True)
class Categorical:
    """The categories of one column: ``values[k]`` has code k + 1; None stands for missing."""

    name: str
    values: tuple[str | None, ...]

    @classmethod
    def fit(cls, name: str, column: pd.Series) -> "Categorical":
        """Learn the categories: by decreasing frequency, then by value, missing last among equals.

        Where all are truth values, those that mean the same, yes and YES, are one: the most frequent.
        """
        codes, names = _factorise(column)
        counts: dict[str | None, int] = {}
        for value, count in zip(names, np.bincount(codes, minlength=len(names)), strict=True):
            if count:
                counts[value] = counts.get(value, 0) + int(count)
        if world().count > 1:  # how often all shards have each value
            shared, counts = world().listed(list(counts.items())), {}
            for value, count in (pair for own in shared for pair in own):
                counts[value] = counts.get(value, 0) + count
        names = sorted(counts, key=lambda each: (-counts[each], each is None, each or ""))
        spelt = [each for each in names if each is not None]
        if all(each.lower() in TRUTH for each in spelt):
            usual = {TRUTH[each.lower()]: each for each in reversed(spelt)}
            names = [each for each in names if each is None or each in usual.values()]
        return cls(name, tuple(names))

    def __call__(self, column: pd.Series) -> np.ndarray:
        """Return codes of shape (n,); 0 for a value the training split did not hold."""
        codes, names = _factorise(column)
        known = find({value: code for code, value in enumerate(self.values, start=1)}, names)
        return np.array([known.get(value, 0) for value in names], dtype=np.int32)[codes]

    def to_onnx(self, values: Value) -> Value:
        """Return the codes of str (n,) in a graph, int64 (n,).

        Missing is "", and values are written as in `values`: who gives them has to rewrite others.
        """
        codes = {each or "": code for code, each in enumerate(self.values, start=1)}
        given = {"keys_strings": list(codes), "values_int64s": list(codes.values()), "default_int64": 0}
        return values.LabelEncoder(domain="ai.onnx.ml", **given)


@dataclass(frozen=True)
class TableEncoder:
    """The encoder of one view's columns, fitted on the training split; in a fit on shards, on all of them.

    Attributes
    ----------
    numeric : scaling of each numeric column.
    categorical : categories of each categorical column.

    Notes
    -----
    Nominal values are named by `usboost.data.value.canonical` and found by `usboost.data.value.find`: 1,
    1.0, "1" and "1.0" are one category.
    """

    numeric: tuple[Numeric, ...]
    categorical: tuple[Categorical, ...]

    @classmethod
    def fit(
        cls, frame: pd.DataFrame, columns: Sequence[str], *, categorical: Sequence[str] | None = None
    ) -> "TableEncoder":
        """Learn the encoding of some columns from the training split.

        Nominal are those that `categorical` names, by default the ones that are not numbers (strings, pandas
        categories, booleans). Raises UsboostError if there is no row, or as `transform`.
        """
        if not world().sum(len(frame)):
            raise UsboostError("an encoder needs at least one training row")
        if categorical is None:
            kinds = {name: _column(frame, name).dtype for name in columns}
            is_number, is_truth = pd.api.types.is_numeric_dtype, pd.api.types.is_bool_dtype
            categorical = [name for name, kind in kinds.items() if not is_number(kind) or is_truth(kind)]
        nominal = set(categorical)
        return cls(
            tuple(Numeric.fit(name, _numbers(frame, name)) for name in columns if name not in nominal),
            tuple(Categorical.fit(name, _column(frame, name)) for name in columns if name in nominal),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in the order of the encoded table: numeric ones first."""
        return tuple(c.name for c in self.numeric) + tuple(c.name for c in self.categorical)

    def transform(self, frame: pd.DataFrame) -> Table:
        """Encode the n rows of any split: float32 ``numeric`` (n, p) and int32 ``codes`` (n, q).

        Raises UsboostError if a column is missing, or a numeric one holds NaN, infinity or text.
        """
        numeric = np.empty((len(frame), len(self.numeric)), dtype=np.float32)
        for j, scale in enumerate(self.numeric):
            numeric[:, j] = scale(_numbers(frame, scale.name))
        codes = np.empty((len(frame), len(self.categorical)), dtype=np.int32)
        for j, categories in enumerate(self.categorical):
            codes[:, j] = categories(_column(frame, categories.name))
        sizes = tuple(len(categories.values) + 1 for categories in self.categorical)
        return Table(numeric, codes, sizes, self.names)

    def to_onnx(self, columns: Mapping[str, Value]) -> TableNodes:
        """Return the table of completed columns in a graph: float64 and str (n,) by name."""
        numeric, codes = (
            joined([each.to_onnx(columns[each.name]).Unsqueeze([1]) for each in encoders])
            for encoders in (self.numeric, self.categorical)
        )
        sizes = tuple(len(each.values) + 1 for each in self.categorical)
        return TableNodes(numeric, codes, len(self.numeric), sizes)

    def to_dict(self) -> dict[str, Any]:
        """Describe the encoder as JSON; `from_dict` makes an equal one."""
        return {
            "kind": "table",
            "numeric": [
                {"name": c.name, "log": c.log, "mean": c.mean, "std": c.std}
                | ({"knots": list(c.knots), "places": list(c.places)} if c.knots else {})
                for c in self.numeric
            ],
            "categorical": [{"name": c.name, "values": list(c.values)} for c in self.categorical],
        }

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> "TableEncoder":
        """Make the encoder that `to_dict` described. Raises UsboostError if it is none of a table."""
        try:
            numeric = (
                Numeric(
                    *(str(c["name"]), bool(c["log"]), float(c["mean"]), float(c["std"])),
                    *(tuple(map(float, c.get(each, ()))) for each in ("knots", "places")),
                )
                for c in spec["numeric"]
            )
            categorical = (Categorical(str(c["name"]), tuple(c["values"])) for c in spec["categorical"])
            return cls(tuple(numeric), tuple(categorical))
        except (KeyError, TypeError, ValueError) as error:
            raise UsboostError(f"this is not the description of a table encoder: {error!r}") from error


def _is_skewed(values: np.ndarray) -> bool:
    """Tell whether the skewness of all shards' values is above `SKEWED`, by its unbiased estimate."""
    n = world().sum(len(values))
    if n <= 2:
        return False
    if world().count == 1:
        return bool(abs(pd.Series(values).skew()) > SKEWED)
    centred = values - mean(values)
    second, third = world().sum(np.array([np.square(centred).sum(), (centred**3).sum()])) / n
    return bool(second > 0 and abs(third / second**1.5) * np.sqrt(n * (n - 1)) / (n - 2) > SKEWED)


def _crowds(scale: Numeric, values: np.ndarray) -> bool:
    """Return whether a scaling puts many rows whose values differ into one `CELL`.

    A cell in which one value is most, such as 0, loses nothing of it; nor is a rounding error a difference.
    """
    if len(values) > LOOKED_AT:
        values = values[np.linspace(0, len(values) - 1, LOOKED_AT).astype(int)]
    values = np.sort(values)
    size = np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    starts = np.flatnonzero(np.append(True, np.diff(values) > _ROUNDING * size))  # of different values
    rows = np.diff(starts, append=len(values))
    cells = np.rint(scale(values[starts]) / CELL)
    first = np.flatnonzero(np.append(True, cells[1:] != cells[:-1]))
    lost = np.add.reduceat(rows, first) - np.maximum.reduceat(rows, first)
    return bool(lost.max() >= max(FEW, CROWDED * len(values)))


def _signed_log(values: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.log1p(np.abs(values))


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame.columns:
        raise UsboostError(f"column {name!r} is missing; the data have {', '.join(map(str, frame.columns))}")
    return frame[name]


def _numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    """Take a numeric column as finite float64 of shape (n,)."""
    column = _column(frame, name)
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise UsboostError(f"column {name!r} is numeric but holds something that is not a number") from None
    if bad := int(len(values) - np.isfinite(values).sum()):
        raise UsboostError(
            f"numeric column {name!r} holds {bad} missing or infinite values of {len(values)}; "
            "fill or drop them first"
        )
    return values


def _factorise(column: pd.Series) -> tuple[np.ndarray, list[str | None]]:
    """Find the position of each row's value in a list of nominal values that ends with None: missing."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        # The dictionary is mapped, not the rows; −1 is pandas' code of a missing value.
        codes, values = column.cat.codes.to_numpy(), column.cat.categories
    else:
        try:
            codes, values = pd.factorize(column, use_na_sentinel=True)
        except TypeError:
            raise UsboostError(f"column {column.name!r} holds lists or records, not categories") from None
    names: list[str | None] = [canonical(value) for value in values]
    return np.where(codes < 0, len(names), codes).astype(np.intp), [*names, None]
