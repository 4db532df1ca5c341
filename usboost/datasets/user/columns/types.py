"""Arrow's types as far as they matter for what a column is."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, whether or not they are coded, and however their strings are held."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return views.get(kind, kind)


def plain_cells(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of the `plain_type`."""
    kind = plain_type(cells.type)
    chunks = []
    for chunk in cells.chunks:
        if pa.types.is_run_end_encoded(chunk.type):
            chunk = pc.run_end_decode(chunk)
        if pa.types.is_dictionary(chunk.type) and chunk.type.value_type != kind:
            chunk = pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind))
        chunks.append(chunk if chunk.type == kind else chunk.cast(kind))
    return pa.chunked_array(chunks, kind)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def is_date(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def is_usable(kind: pa.DataType) -> bool:
    """Whether a model can read values of the type."""
    known = is_text(kind) or is_number(kind) or is_date(kind)
    return known or any(
        check(kind)
        for check in (pa.types.is_boolean, pa.types.is_null, pa.types.is_duration, pa.types.is_time)
    )
