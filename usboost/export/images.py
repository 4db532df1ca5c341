"""The images of rows in an ONNX graph: decoded pixels of any size become a square as by `image_files.sized`.

It is Pillow's filter, to the bit: coefficients are whole numbers of 2⁻²², and what one axis of pixels becomes
is rounded before the other is scaled.
"""

from collections.abc import Callable

import numpy as np
import PIL

from usboost.datasets.image_files import PADDING
from usboost.files.onnx_graph import Graph, ImageNodes, Value, joined
from usboost.table.images import ImageColumns

BITS = 22  # bits behind the point of a coefficient

TWO_ORDERS = int(PIL.__version__.partition(".")[0]) >= 13
"""Since version 13 Pillow scales heights first where they lose more than twice as many pixels as widths."""

GREY = np.array((19595, 38470, 7471), np.int32)
"""By what red, green and blue are multiplied to be grey, in units of 2⁻¹⁶."""


def image_input(graph: Graph, form: ImageColumns, column: str) -> ImageNodes:
    """Add a column of images as an input, uint8 (n, height, width, 3): n decoded images of one size.

    Those of height or width 0 are missing.
    """
    pixels = graph.input(column, np.uint8, [f"{column} height", f"{column} width", 3])
    zero, size = graph.constant(0.0), graph.constant(float(form.size))
    shapes = [pixels.Shape(start=axis, end=axis + 1).Squeeze() for axis in (1, 2)]
    sides = height, width = [each.cast(np.float64) for each in shapes]
    start, length, scaled, offset = [zero, zero], sides, [size, size], [zero, zero]
    if form.aspect == "crop":
        length = [height.Min(width)] * 2
        start = [(side - own) / 2.0 for side, own in zip(sides, length)]
    elif form.aspect == "pad":
        scaled = [(side * size / height.Max(width, 1.0)).Round().Max(1.0) for side in sides]
        offset = [(size - own) // 2.0 for own in scaled]
    down, across = map(_axis, (1, 2), [form.size] * 2, sides, start, length, scaled, offset)
    (scale_down, is_of_row, fewer_rows), (scale_across, is_of_column, fewer_columns) = down, across
    # one row and one column of zeros more, so that there is a pixel to read in any image
    padded = pixels.Pad([0, 0, 0, 0, 0, 1, 1, 0], np.uint8(0))
    # one of the two orders is given no rows
    is_tall = (fewer_rows > 0.0) & (fewer_rows > fewer_columns * 2.0)
    count = pixels.Shape(start=0, end=1) * is_tall.cast(np.int64) * int(TWO_ORDERS)
    tall, others = padded.Slice([0], count, [0]), padded.Slice(count, [np.iinfo(np.int64).max], [0])
    resized = joined([scale_across(scale_down(tall)), scale_down(scale_across(others))], axis=0)
    if form.channels == 1:
        resized = _rounded((resized * GREY).summed(3, keep=True), 16)
    inside = is_of_row.Unsqueeze([1, 2]) & is_of_column.Unsqueeze([1])
    none = (height * width).Equal(0.0)
    resized = none.Where(np.int32(0), inside.Where(resized, np.int32(PADDING)))
    square = resized.Transpose(perm=[0, 3, 1, 2]).cast(np.uint8)
    absent = none.Expand(pixels.Shape(start=0, end=1))
    return ImageNodes(square, absent, form.channels, form.size, form.size)


def _axis(
    at: int, size: int, side: Value, start: Value, length: Value, scaled: Value, offset: Value
) -> tuple[Callable[[Value], Value], Value, Value]:
    """Return what scales an axis of images: `length` of its pixels, from `start`, become `scaled` of `size`,
    from `offset` on. Then which of these are no padding, bool (size,), and how many pixels the side loses."""
    scale, place = length / scaled, np.arange(float(size)) - offset
    support = scale.Max(1.0)
    centre = (start + (place + 0.5) * scale).Unsqueeze([1])
    first, last = ((end + 0.5).Floor().Max(0.0).Min(side) for end in (centre - support, centre + support))
    most = (last - first).ReduceMax(keepdims=0).Max(1.0).cast(np.int64)
    taps = first + side.graph.node("Range", 0, most, 1).cast(np.float64)
    away = ((taps - centre + 0.5) / support).Abs()
    weights = (taps < last).Where((1.0 - away).Max(0.0), 0.0)
    shares = weights / weights.summed(1, keep=True).Max(1e-300)
    whole = (shares * float(1 << BITS) + 0.5).Floor().cast(np.int32)

    def scale_axis(pixels: Value) -> Value:  # (n, height, width, channels)
        read = pixels.Gather(taps.Min(side).cast(np.int64), axis=at).cast(np.int32)
        return _rounded((read * whole.Unsqueeze([2, 3] if at == 1 else [2])).summed(at + 1), BITS)

    return scale_axis, (place >= 0.0) & (place < scaled), side - scaled


def _rounded(values: Value, bits: int) -> Value:
    """Return int32 values that are not negative over 2 to the `bits`, rounded, at most 255."""
    return ((values + np.int32(1 << (bits - 1))) / np.int32(1 << bits)).Min(np.int32(255))
