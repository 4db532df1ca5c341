"""Views as values of an ONNX graph: what `Table` and `Images` are to models, in a model that is exported."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np

from usboost.files.onnx_graph import Value, joined


@dataclass(frozen=True)
class TableNodes:
    """A table of n rows in a graph.

    Attributes
    ----------
    numeric : float32 (n, p), or None where p is 0; codes : int64 (n, q), or None where q is 0.
    n_numeric : p; cardinalities : of the q columns.
    absent : bool (n,), as of `usboost.data.table.Table`, or None.
    """

    numeric: Value | None
    codes: Value | None
    n_numeric: int
    cardinalities: tuple[int, ...] = ()
    absent: Value | None = None

    @property
    def rows(self) -> Value:
        """Return some value of n rows."""
        value = self.numeric or self.codes
        assert value is not None
        return value

    def filled(self, missing: bool) -> TableNodes:
        """Put 0 in absent rows; with `missing`, a further number says where. See `Table.filled`."""
        numbers = [] if self.numeric is None else [self.numeric.unless(self.absent, np.float32)]
        if missing:
            none = self.rows.each(np.zeros(1, np.float32))
            numbers.append(none if self.absent is None else self.absent.column().cast(np.float32))
        codes = self.codes and self.codes.unless(self.absent, np.int64)
        return TableNodes(side_by_side(numbers), codes, self.n_numeric + missing, self.cardinalities)

    def beside(self, other: TableNodes) -> TableNodes:
        """Join the columns of two tables, numbers first."""
        pairs = ((self.numeric, other.numeric), (self.codes, other.codes))
        numeric, codes = (side_by_side([each for each in pair if each]) for pair in pairs)
        sizes = (*self.cardinalities, *other.cardinalities)
        return TableNodes(numeric, codes, self.n_numeric + other.n_numeric, sizes)

    def matrix(self) -> Value:
        """Return all columns as trees read them, float32 (n, p + q)."""
        codes = self.codes and self.codes.cast(np.float32)
        return joined([each for each in (self.numeric, codes) if each])

    def linear(self, weights: np.ndarray, lookup: np.ndarray, bias: np.ndarray) -> Value:
        """Return x W + Σ_j lookup[code_j] + b, (n, k): `weights` (p, k), a row of `lookup` for each code."""
        parts = [] if self.numeric is None else [self.numeric.cast(weights.dtype) @ weights]
        if self.codes is not None:
            starts = np.cumsum([0, *self.cardinalities])[:-1]
            parts.append((self.codes + starts[None]).picks(lookup).summed(1))
        return reduce(add, parts) + bias[None]

    def affine(self, weights: np.ndarray, bias: np.ndarray, first: int = 0) -> Value:
        """Return the same of weights (p + Σ cardinalities, k) with none for codes below `first`: float64."""
        weights = weights.astype(np.float64)
        cuts = np.cumsum([self.n_numeric, *(size - first for size in self.cardinalities)])
        none = np.zeros((first, weights.shape[1]))
        lookup = [each for a, b in pairwise(cuts) for each in (none, weights[a:b])]
        bias = bias.astype(np.float64)
        return self.linear(weights[: self.n_numeric], np.concatenate([*lookup, none[:0]]), bias)


@dataclass(frozen=True)
class ImageNodes:
    """Images of n rows in a graph, of one size.

    Attributes
    ----------
    pixels : uint8 (n, channels, height, width); absent : bool (n,).
    """

    pixels: Value
    absent: Value
    channels: int
    height: int
    width: int

    @property
    def rows(self) -> Value:
        """Return some value of n rows."""
        return self.absent


ViewNodes = TableNodes | ImageNodes


def side_by_side(columns: list[Value]) -> Value | None:
    """Join values, if there are any."""
    return joined(columns) if columns else None
