"""The images of rows in an ONNX graph: decoded pixels of any size become a square as by `image_files.sized`.

It is Pillow's filter, to the bit: coefficients are whole numbers of 2⁻²², and what one axis of pixels becomes
is rounded before the other is scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL

from usboost.data.nodes import ImageNodes
from usboost.datasets.image_files import PADDING
from usboost.files.onnx_graph import Graph
from usboost.table.images import ImageColumns

BITS = 22
"""Bits behind the point of a coefficient."""

TWO_ORDERS = int(PIL.__version__.partition(".")[0]) >= 13
"""Since version 13 Pillow scales heights first where they lose more than twice as many pixels as widths."""

GREY = np.array((19595, 38470, 7471), np.int32)
"""By what red, green and blue are multiplied to be grey, in units of 2⁻¹⁶."""


@dataclass(frozen=True)
class _Axis:
    """Height or width: which pixels of the image each of `size` pixels is made of.

    Names: `taps`, int64 (size, k), are their positions; `weights`, int32 (size, k), what they count;
    `inside`, bool (size,), which are no padding; `fewer`, float64 (), how many pixels the side loses.
    """

    taps: str
    weights: str
    inside: str
    fewer: str


def image_input(graph: Graph, form: ImageColumns, column: str) -> ImageNodes:
    """Add a column of images as an input, uint8 (n, height, width, 3): n decoded images of one size.

    Those of height or width 0 are missing.
    """
    pixels = graph.input(column, np.uint8, [f"{column} height", f"{column} width", 3])
    shapes = [graph.Squeeze(graph.Shape(pixels, start=axis, end=axis + 1)) for axis in (1, 2)]
    sides = height, width = [graph.cast(each, np.float64) for each in shapes]
    start, length, scaled, offset = [0.0, 0.0], sides, [float(form.size)] * 2, [0.0, 0.0]
    if form.aspect == "crop":
        length = [graph.Min(*sides)] * 2
        start = [graph.Div(graph.Sub(*both), 2.0) for both in zip(sides, length, strict=True)]
    elif form.aspect == "pad":
        most = graph.Max(*sides, 1.0)
        shares = [graph.Div(graph.Mul(side, float(form.size)), most) for side in sides]
        scaled = [graph.Max(graph.Round(share), 1.0) for share in shares]
        offset = [graph.Floor(graph.Div(graph.Sub(float(form.size), each), 2.0)) for each in scaled]
    parts = zip(sides, start, length, scaled, offset, strict=True)
    down, across = (_axis(graph, form.size, *part) for part in parts)
    # one row and one column of zeros more, so that there is a pixel to read in any image
    padded = graph.Pad(pixels, [0, 0, 0, 0, 0, 1, 1, 0], np.uint8(0))

    def rows_first() -> str:
        return _scaled(graph, _scaled(graph, padded, across, 2), down, 1)

    def columns_first() -> str:
        return _scaled(graph, _scaled(graph, padded, down, 1), across, 2)

    found = rows_first() if not TWO_ORDERS else ""
    if TWO_ORDERS:
        more = graph.Greater(down.fewer, graph.Mul(across.fewer, 2.0))
        found = graph.either(graph.And(graph.Greater(down.fewer, 0.0), more), columns_first, rows_first)
    if form.channels == 1:
        found = _rounded(graph, graph.summed(graph.Mul(found, GREY), 3, keep=True), 16)
    inside = graph.And(graph.Unsqueeze(down.inside, [1, 2]), graph.Unsqueeze(across.inside, [1]))
    none = graph.Equal(graph.Mul(height, width), 0.0)
    found = graph.Where(none, np.int32(0), graph.Where(inside, found, np.int32(PADDING)))
    square = graph.cast(graph.Transpose(found, perm=[0, 3, 1, 2]), np.uint8)
    absent = graph.Expand(none, graph.Shape(pixels, start=0, end=1))
    return ImageNodes(graph, square, absent, form.channels, form.size, form.size)


def _axis(
    graph: Graph,
    size: int,
    side: str,
    start: Any,
    length: str,
    scaled: Any,
    offset: Any,
) -> _Axis:
    """Return how `length` of a side's pixels, from `start`, become `scaled` pixels from `offset` on."""
    place = graph.Sub(np.arange(float(size)), offset)
    inside = graph.And(graph.GreaterOrEqual(place, 0.0), graph.Less(place, scaled))
    scale = graph.Div(length, scaled)
    support = graph.Max(scale, 1.0)
    centre = graph.column(graph.Add(start, graph.Mul(graph.Add(place, 0.5), scale)))
    ends = [graph.Floor(graph.Add(reach(centre, support), 0.5)) for reach in (graph.Sub, graph.Add)]
    first, last = (graph.Min(graph.Max(end, 0.0), side) for end in ends)
    most = graph.Max(graph.ReduceMax(graph.Sub(last, first), keepdims=0), 1.0)
    taps = graph.Add(first, graph.cast(graph.Range(0, graph.cast(most, np.int64), 1), np.float64))
    away = graph.Abs(graph.Div(graph.Add(graph.Sub(taps, centre), 0.5), support))
    weight = graph.Where(graph.Less(taps, last), graph.Max(graph.Sub(1.0, away), 0.0), 0.0)
    share = graph.Div(weight, graph.Max(graph.summed(weight, 1, keep=True), 1e-300))
    whole = graph.Floor(graph.Add(graph.Mul(share, float(1 << BITS)), 0.5))
    at = graph.cast(graph.Min(taps, side), np.int64)
    return _Axis(at, graph.cast(whole, np.int32), inside, graph.Sub(side, scaled))


def _scaled(graph: Graph, pixels: str, axis: _Axis, at: int) -> str:
    """Scale one axis of pixels (n, height, width, channels), whole numbers: int32."""
    taken = graph.cast(graph.Gather(pixels, axis.taps, axis=at), np.int32)
    weights = graph.Unsqueeze(axis.weights, [2, 3] if at == 1 else [2])
    return _rounded(graph, graph.summed(graph.Mul(taken, weights), at + 1), BITS)


def _rounded(graph: Graph, values: str, bits: int) -> str:
    """Return int32 values that are not negative over 2 to the `bits`, rounded, at most 255."""
    whole = graph.Div(graph.Add(values, np.int32(1 << (bits - 1))), np.int32(1 << bits))
    found: str = graph.Min(whole, np.int32(255))
    return found
