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
"""Of a coefficient, behind the point."""

TWO_ORDERS = int(PIL.__version__.partition(".")[0]) >= 13
"""Since version 13 Pillow scales heights first where they lose more than twice as many pixels as widths."""

GREY = ((19595, 38470, 7471), 16)
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
    height, width = (_number(graph, pixels, axis) for axis in (1, 2))
    zero, one = graph.constant(0.0, np.float64), graph.constant(1.0, np.float64)
    size = graph.constant(float(form.size), np.float64)
    sides = [(height, zero, height, size, zero), (width, zero, width, size, zero)]
    if form.aspect == "crop":
        side = graph.node("Min", height, width)
        half = graph.constant(2.0, np.float64)
        starts = [graph.node("Div", graph.node("Sub", each, side), half) for each in (height, width)]
        sides = [(each, start, side, size, zero) for each, start in zip((height, width), starts, strict=True)]
    elif form.aspect == "pad":
        most = graph.node("Max", height, width, one)
        sides = []
        for each in (height, width):
            share = graph.node("Div", graph.times(each, size), most)
            scaled = graph.node("Max", graph.node("Round", share), one)
            half = graph.node("Div", graph.node("Sub", size, scaled), graph.constant(2.0, np.float64))
            sides.append((each, zero, each, scaled, graph.node("Floor", half)))
    down, across = (_axis(graph, form.size, *side) for side in sides)
    # one row and one column of zeros more, so that there is a pixel to read in any image
    pads = graph.constant([0, 0, 0, 0, 0, 1, 1, 0], np.int64)
    padded = graph.node("Pad", pixels, pads, graph.constant(0, np.uint8))

    def rows_first() -> str:
        return _scaled(graph, _scaled(graph, padded, across, 2), down, 1)

    if TWO_ORDERS:
        shrinks = graph.node("Greater", down.fewer, zero)
        twice = graph.times(across.fewer, graph.constant(2.0, np.float64))
        tall = graph.node("And", shrinks, graph.node("Greater", down.fewer, twice))
        scaled = graph.either(
            tall, lambda: _scaled(graph, _scaled(graph, padded, down, 1), across, 2), rows_first
        )
    else:
        scaled = rows_first()
    if form.channels == 1:
        shares, bits = GREY
        grey = graph.summed(graph.times(scaled, graph.constant(np.array(shares, np.int32))), 3, keep=True)
        scaled = _rounded(graph, grey, bits)
    inside = graph.node(
        "And",
        *(
            graph.node("Reshape", each.inside, graph.constant(shape, np.int64))
            for each, shape in ((down, [1, form.size, 1, 1]), (across, [1, 1, form.size, 1]))
        ),
    )
    scaled = graph.node("Where", inside, scaled, graph.constant(PADDING, np.int32))
    pixel = graph.node("Equal", graph.times(height, width), zero)
    count = graph.node("Shape", pixels, start=0, end=1)
    absent = graph.node("Expand", pixel, count)
    blank = graph.node("Where", pixel, graph.constant(0, np.int32), scaled)
    square = graph.cast(graph.node("Transpose", blank, perm=[0, 3, 1, 2]), np.uint8)
    return ImageNodes(graph, square, absent, form.channels, form.size, form.size)


def _number(graph: Graph, pixels: str, axis: int) -> str:
    """Return a side of the images, float64 ()."""
    side = graph.node("Squeeze", graph.node("Shape", pixels, start=axis, end=axis + 1))
    return graph.cast(side, np.float64)


def _axis(graph: Graph, size: int, side: str, start: str, length: str, scaled: str, offset: str) -> _Axis:
    """Return how `length` of a side's pixels, from `start`, become `scaled` pixels from `offset` on."""

    def number(value: Any) -> str:
        return graph.constant(value, np.float64)

    def less(value: str, other: str) -> str:
        return str(graph.node("Sub", value, other))

    place = less(number(np.arange(size)), offset)
    inside = graph.node(
        "And", graph.node("GreaterOrEqual", place, number(0)), graph.node("Less", place, scaled)
    )
    scale = graph.node("Div", length, scaled)
    support = graph.node("Max", scale, number(1))
    centre = graph.add(start, graph.times(graph.add(place, number(0.5)), scale))
    ends = []
    for reach in (less(centre, support), graph.add(centre, support)):
        whole = graph.node("Floor", graph.add(reach, number(0.5)))
        ends.append(graph.node("Min", graph.node("Max", whole, number(0)), side))
    first, last = (graph.column(each) for each in ends)
    most = graph.node("ReduceMax", less(last, first), keepdims=0)
    count = graph.cast(graph.node("Max", most, number(1)), np.int64)
    steps = graph.node("Range", graph.constant(0, np.int64), count, graph.constant(1, np.int64))
    taps = graph.add(first, graph.cast(steps, np.float64))
    away = graph.add(less(taps, graph.column(centre)), number(0.5))
    weight = less(number(1), graph.node("Abs", graph.node("Div", away, support)))
    weight = graph.node("Max", weight, number(0))
    weight = graph.node("Where", graph.node("Less", taps, last), weight, number(0))
    total = graph.node("Max", graph.summed(weight, 1, keep=True), number(1e-300))
    share = graph.times(graph.node("Div", weight, total), number(1 << BITS))
    weights = graph.cast(graph.node("Floor", graph.add(share, number(0.5))), np.int32)
    at = graph.cast(graph.node("Min", taps, side), np.int64)
    return _Axis(at, weights, str(inside), less(side, scaled))


def _scaled(graph: Graph, pixels: str, axis: _Axis, at: int) -> str:
    """Scale one axis of pixels (n, height, width, channels), whole numbers: int32."""
    taken = graph.cast(graph.node("Gather", pixels, axis.taps, axis=at), np.int32)
    # (…, size, taps, …)
    further = graph.constant([2, 3] if at == 1 else [2], np.int64)
    weights = graph.node("Unsqueeze", axis.weights, further)
    return _rounded(graph, graph.summed(graph.times(taken, weights), at + 1), BITS)


def _rounded(graph: Graph, values: str, bits: int) -> str:
    """Return int32 values that are not negative over 2 to the `bits`, rounded, at most 255."""
    half = graph.add(values, graph.constant(1 << (bits - 1), np.int32))
    whole = graph.node("Div", half, graph.constant(1 << bits, np.int32))
    return str(graph.node("Min", whole, graph.constant(255, np.int32)))
