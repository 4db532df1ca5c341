"""The rows of a report that are predicted worst, and their images: as they were brought, as the model reads
them, where it looks."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from usboost.data.images import Images
from usboost.data.pooled_images import PooledImages
from usboost.data.progress import Progress
from usboost.evaluation.names import number, number_of_label
from usboost.learners.networks.images.backbones import Backbone
from usboost.models.inspection.inspect import worst_samples
from usboost.models.inspection.occlusion import Occlusion, occlusions
from usboost.multimodal.fit.bundle import Bundle
from usboost.multimodal.predict.predict import Scored
from usboost.reporting.inspection import figures
from usboost.table.images import ImageColumns, ImageReader

SIDE = 256  # pixels of the longer side of an image as it was brought; a larger one is scaled to it

_ASPECTS = {
    "crop": "the largest square in its centre",
    "pad": "all of it on a grey square",
    "stretch": "all of it, stretched to a square",
}


@dataclass(frozen=True)
class Shown:
    """One image of a row on the page; images are data URIs, sizes "width × height".

    Attributes
    ----------
    column : of the table; path : as it has it, None where it holds bytes.
    brought, brought_size : as the table has it; None where the row has none.
    read, read_size : as the model reads it; None where the row has none.
    looked, change : the map of heat, and the changes of probability in it; None without maps.
    """

    column: str
    path: str | None = None
    brought: str | None = None
    brought_size: str | None = None
    read: str | None = None
    read_size: str | None = None
    looked: str | None = None
    change: str | None = None


def images_of(
    bundle: Bundle,
    scored: Scored,
    rows: Sequence[int],
    *,
    occlusion_maps: bool = False,
    progress: Progress | None = None,
) -> dict[int, list[Shown]]:
    """The images of some rows, one for each column of images; empty for a model without any.

    Parameters
    ----------
    occlusion_maps : cover parts of each image and predict again, see `usboost.models.inspection.occlusion`.
    progress : of that, called with (covered images predicted, in all).
    """
    form = bundle.reader.images
    if form is None:
        return {}
    found: dict[tuple[int, str, int], Occlusion] = {}
    if occlusion_maps:
        found = occlusions(bundle.model, scored.views, rows, progress=progress)
    out: dict[int, list[Shown]] = {row: [] for row in rows}
    readers = form.readers(scored.file)
    for reader, (view, k) in zip(readers, _places(form), strict=True):
        images = _column(scored, view, k)
        for row in sorted(out):  # in rising order, which a Parquet file gives in one pass
            heat_of = found.get((row, view, k))
            out[row].append(_shown(reader, images, scored, row, heat_of))
    return out


def about(bundle: Bundle, scored: Scored) -> dict[str, Any] | None:
    """What the page says of all images; None for a model without any.

    Returns
    -------
    side : of the square that is read, in pixels; aspect : what becomes of other proportions, in words;
    grey : whether it is read in grey; network, network_side : what reads it, and the side it scales it to,
    0 where it takes the square as it is; left_out : columns that the model does not read.
    """
    form = bundle.reader.images
    if form is None:
        return None
    backbone = getattr(bundle.model, "backbone", None)
    network, network_side = "", 0
    if isinstance(backbone, Backbone):
        side = backbone.spec(_column(scored, form.names[0], 0))["size"] or form.size
        network, network_side = backbone.name, 0 if side == form.size else side
    left_out = getattr(bundle.model, "left_out_", ())
    return {
        "side": form.size,
        "aspect": _ASPECTS[form.aspect],
        "grey": form.channels == 1,
        "network": network,
        "network_side": network_side,
        "left_out": [
            column for column, (view, _) in zip(form.columns, _places(form), strict=True) if view in left_out
        ],
    }


def _places(form: ImageColumns) -> list[tuple[str, int]]:
    """The view of each column of images, and its place there."""
    if len(form.names) == len(form.columns):
        return [(name, 0) for name in form.names]
    return [(form.names[0], k) for k in range(len(form.columns))]


def _column(scored: Scored, view: str, k: int) -> Images:
    found = scored.views[view]
    column = found.columns[k] if isinstance(found, PooledImages) else found
    assert isinstance(column, Images)  # as a user's tables are read
    return column


def _shown(reader: ImageReader, images: Images, scored: Scored, row: int, found: Occlusion | None) -> Shown:
    cell = scored.frame[reader.column].iloc[row] if reader.needs_cells else None
    path = cell if isinstance(cell, str) else None
    if images.absent is not None and images.absent[row]:
        return Shown(reader.column, path)
    cells = pa.chunked_array([[cell]]) if reader.needs_cells else None
    brought = reader.thumbnail(int(scored.rows[row]), cells, SIDE)
    if brought is None:  # it went away since it was scored
        return Shown(reader.column, path)
    small, (width, height) = brought
    pixels = images.decode(slice(row, row + 1))[0]
    plain = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    looked = change = None
    if found is not None:
        mean = found.heat()
        looked = _uri(figures.overlay(pixels, mean), is_photo=plain.width > SIDE)
        change = f"{_signed(-mean.max())} to {_signed(-mean.min())}"
    return Shown(
        reader.column,
        path,
        brought=_uri(small, is_photo=small.size != (width, height)),
        brought_size=f"{width:,} × {height:,}",
        read=_uri(plain, is_photo=plain.width > SIDE),
        read_size=f"{plain.width:,} × {plain.height:,}",
        looked=looked,
        change=change,
    )


def _uri(image: Image.Image, *, is_photo: bool) -> str:
    """An image within a page: PNG keeps each pixel, a JPEG of one with many is far smaller."""
    kind, encoded = "jpeg" if is_photo else "png", io.BytesIO()
    image.save(encoded, kind.upper(), **({"quality": 85} if is_photo else {}))
    return f"data:image/{kind};base64," + base64.b64encode(encoded.getvalue()).decode()


def _signed(value: float) -> str:
    return f"{value + 0.0:+.3f}".replace("-", "−")


WORST = 12
"""Rows shown."""

_VALUES = 8  # columns shown of each


def worst(
    bundle: Bundle, scored: Scored, occlusion_maps: bool = False, looking: Progress | None = None
) -> list[dict[str, Any]]:
    """Misclassified rows whose true class got the lowest probability, or those of the largest error."""
    found = _classes(bundle, scored) if bundle.card.classes else _numbers(bundle, scored)
    images = images_of(
        bundle, scored, [row for row, _ in found], occlusion_maps=occlusion_maps, progress=looking
    )
    shown = list(bundle.card.columns)[:_VALUES]
    return [
        {
            "number": int(scored.rows[row]) + 1,
            **said,
            "images": images.get(row, []),
            "columns": [(name, value_of(scored.frame[name].iloc[row])) for name in shown],
        }
        for row, said in found
    ]


def _classes(bundle: Bundle, scored: Scored) -> list[tuple[int, dict[str, str]]]:
    answers, names = bundle.codes(scored.predicted), bundle.card.classes
    found = worst_samples(scored.labels, scored.predicted, WORST, answers)
    return [
        (
            int(each.row),
            {
                "truth": names[each.true],
                "p_truth": f"{each.p_true:.3f}",
                "predicted": names[each.predicted],
                "p_predicted": f"{each.p_predicted:.3f}",
            },
        )
        for each in found.itertuples()
    ]


def _numbers(bundle: Bundle, scored: Scored) -> list[tuple[int, dict[str, str]]]:
    errors = scored.predicted - scored.labels
    rows = np.argsort(-np.abs(errors), kind="stable")[:WORST]
    sign = {True: "+", False: "−"}
    return [
        (
            int(row),
            {
                "truth": number_of_label(scored.labels[row]),
                "p_truth": "",
                "predicted": number(scored.predicted[row]),
                "p_predicted": sign[bool(errors[row] >= 0)] + number(abs(errors[row])),
            },
        )
        for row in rows
        if errors[row]
    ]


def value_of(value: Any) -> str:
    """A value of the table, short: of a number that is given in more digits, also as text, six."""
    text = f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)
    if re.fullmatch(r"-?[0-9]+\.[0-9]{5,}(e-?[0-9]+)?", text):
        text = f"{float(text):g}"
    return text if len(text) <= 80 else f"{text[:79]}…"
