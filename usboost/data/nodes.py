"""Views as values of an ONNX graph: what `Table` and `Images` are to models, in a model that is exported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np

from usboost.files.onnx_graph import Graph


@dataclass(frozen=True)
class TableNodes:
    """A table of n rows in a graph.

    Attributes
    ----------
    graph : that it is in.
    numeric : name of float32 (n, p), or None where p is 0; codes : of int64 (n, q), or None where q is 0.
    n_numeric : p; cardinalities : of the q columns.
    absent : name of bool (n,), as of `usboost.data.table.Table`, or None.
    """

    graph: Graph
    numeric: str | None
    codes: str | None
    n_numeric: int
    cardinalities: tuple[int, ...] = ()
    absent: str | None = None

    @property
    def rows(self) -> str:
        """Return the name of some value of n rows."""
        return str(self.numeric or self.codes)

    def filled(self, missing: bool) -> TableNodes:
        """Put 0 in absent rows; with `missing`, a further number says where. See `Table.filled`."""
        graph, numbers = self.graph, []
        if self.numeric is not None:
            numbers.append(graph.unless(self.absent, self.numeric, np.float32))
        if missing and self.absent is None:
            numbers.append(graph.rows(self.rows, np.zeros(1, np.float32)))
        elif missing and self.absent is not None:
            numbers.append(graph.column(graph.cast(self.absent, np.float32)))
        codes = None if self.codes is None else graph.unless(self.absent, self.codes, np.int64)
        numeric = graph.joined(*numbers) if numbers else None
        return replace(self, numeric=numeric, codes=codes, n_numeric=self.n_numeric + missing, absent=None)

    def beside(self, other: TableNodes) -> TableNodes:
        """Join the columns of two tables, numbers first."""
        pairs = ((self.numeric, other.numeric), (self.codes, other.codes))
        joined = [[each for each in pair if each is not None] for pair in pairs]
        numeric, codes = (self.graph.joined(*each) if each else None for each in joined)
        count, sizes = self.n_numeric + other.n_numeric, (*self.cardinalities, *other.cardinalities)
        return TableNodes(self.graph, numeric, codes, count, sizes)

    def matrix(self) -> str:
        """Return all columns as trees read them, float32 (n, p + q)."""
        parts = [] if self.numeric is None else [self.numeric]
        parts += [] if self.codes is None else [self.graph.cast(self.codes, np.float32)]
        return self.graph.joined(*parts)

    def looked_up(self, lookup: np.ndarray) -> str | None:
        """Return the sums of rows of (Σ cardinalities, k) by the codes: (n, k); None without codes."""
        if self.codes is None:
            return None
        graph, starts = self.graph, np.cumsum([0, *self.cardinalities])[:-1].astype(np.int64)
        places = graph.Add(self.codes, starts[None])
        return graph.summed(graph.Gather(lookup, places, axis=0), 1)

    def affine(self, weights: np.ndarray, bias: np.ndarray, first: int = 0) -> str:
        """Return x W + b of the numbers and indicators of the codes from `first` on, float64 (n, k)."""
        graph, weights = self.graph, weights.astype(np.float64)
        parts = [] if self.numeric is None else [graph.cast(self.numeric, np.float64)]
        out = [graph.MatMul(part, weights[: self.n_numeric]) for part in parts]
        cuts = np.cumsum([self.n_numeric, *(size - first for size in self.cardinalities)])
        none = np.zeros((first, weights.shape[1]))
        blocks = [np.concatenate([none, weights[a:b]]) for a, b in pairwise(cuts)]
        if blocks and (found := self.looked_up(np.concatenate(blocks))) is not None:
            out.append(found)
        return reduce(graph.Add, [*out, bias.astype(np.float64)[None]])


@dataclass(frozen=True)
class ImageNodes:
    """Images of n rows in a graph, of one size.

    Attributes
    ----------
    pixels : name of uint8 (n, channels, height, width); absent : of bool (n,).
    """

    graph: Graph
    pixels: str
    absent: str
    channels: int
    height: int
    width: int


ViewNodes = TableNodes | ImageNodes
