"""Views as values of an ONNX graph: what `Table` and `Images` are to models, in a model that is exported."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
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
        numeric = self.numeric and self.numeric.unless(self.absent, np.float32)
        codes = self.codes and self.codes.unless(self.absent, np.int64)
        if missing:
            none = self.rows.each(np.zeros(1, np.float32))
            numeric = joined([numeric, self.absent.Unsqueeze([1]).cast(np.float32) if self.absent else none])
        return TableNodes(numeric, codes, self.n_numeric + missing, self.cardinalities)

    def beside(self, other: TableNodes) -> TableNodes:
        """Join the columns of two tables, numbers first."""
        numeric, codes = joined([self.numeric, other.numeric]), joined([self.codes, other.codes])
        sizes = self.cardinalities + other.cardinalities
        return TableNodes(numeric, codes, self.n_numeric + other.n_numeric, sizes)

    def matrix(self) -> Value:
        """Return all columns as trees read them, float32 (n, p + q)."""
        found: Value = joined([self.numeric, self.codes and self.codes.cast(np.float32)])
        return found

    def linear(self, weights: np.ndarray, bias: np.ndarray, first: int = 0) -> Value:
        """Return x W + b of numbers and one-hot codes, (n, k), as the dtype of `weights` (p + Σ sizes, k).

        Codes below `first` have no weights. With m weights (m, p + Σ sizes, k) it is (m, n, k).
        """
        numbers, lookup = np.split(weights, [self.n_numeric], axis=-2)
        parts = [] if self.numeric is None else [self.numeric.cast(weights.dtype) @ numbers]
        if self.codes is not None:
            starts = np.cumsum([0, *self.cardinalities[:-1]])
            none = np.repeat(starts - first * np.arange(len(starts)), first)
            taken = self.codes.graph.node(
                "Gather", np.insert(lookup, none, 0, axis=-2), self.codes + starts[None], axis=-2
            )
            parts.append(taken.summed(-2))
        return reduce(add, parts) + bias[..., None, :]


@dataclass(frozen=True)
class ImageNodes:
    """Images of one size in a graph: uint8 `pixels` (n, channels, height, width), bool `absent` (n,)."""

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
