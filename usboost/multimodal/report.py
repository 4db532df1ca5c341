"""A fitted model's scores and inspection on labelled rows, as one self-contained page."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from PIL import Image

from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.datasets.custom.source import TableFile
from usboost.datasets.files.sampling import stratified_sample
from usboost.datasets.files.sources import sha256
from usboost.errors import UsboostError
from usboost.evaluation.metrics import confusion
from usboost.evaluation.names import METRICS, f1_of, metric_name
from usboost.files import write_atomically
from usboost.learners.base import view_names
from usboost.models import zoo
from usboost.models.inspection import (
    IMPORTANCE_METRICS,
    calibration,
    expected_calibration_error,
    view_contributions,
    view_importance,
    worst_samples,
)
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier
from usboost.multimodal.bundle import Bundle
from usboost.multimodal.scored import Scored, intervals, score_table
from usboost.reporting import inspection_figures as drawn
from usboost.reporting.figures import to_svg

WORST = 12
"""Badly classified rows shown."""

SIDE = 128  # pixels of their pictures
_VALUES = 8  # columns shown of each

SAMPLE = 2000
"""Rows on which views are shuffled and learners measured."""

COLUMNS = 20
"""Columns whose importance is shown."""


def write_report(
    bundle: Bundle,
    table: Path,
    out: Path,
    *,
    label: str | None = None,
    skip_unreadable: bool = False,
    progress: Progress | None = None,
) -> Scored:
    """Score a model on labelled rows and write the page.

    Parameters
    ----------
    label : column of the classes; by default that of the training table.
    out : an ``.html`` file; appears when it is complete.
    skip_unreadable : count pictures that cannot be read as missing, instead of refusing them.
    progress : called with (rows done, rows).

    Returns
    -------
    The rows that were scored.

    Raises
    ------
    UsboostError
        As `score_table`; or if the page cannot be written there.
    """
    table, out = Path(table), Path(out)
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UsboostError(f"{out} must be an .html file")
    label = label or bundle.card.label
    scored = score_table(bundle, table, label, skip_unreadable=skip_unreadable, progress=progress)
    write_atomically(out, render(bundle, scored, table, label).encode())
    return scored


def render(bundle: Bundle, scored: Scored, table: Path, label: str) -> str:
    """The page: HTML that loads nothing from the network and runs no script."""
    card = bundle.card
    environment = Environment(
        loader=PackageLoader("usboost.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = stratified_sample(scored.labels, SAMPLE, 0)
    sample = scored.views[rows]
    bins = calibration(scored.labels, scored.probabilities)
    counts = np.bincount(scored.labels, minlength=len(card.classes))
    return environment.get_template("own.html.j2").render(
        title=f"Predicting {label} with {zoo.title(card.model)}",
        card=card.model_dump(),
        what=zoo.about(card.model),
        n=len(scored),
        table=table.name,
        same=sha256(table) == card.sha256,
        scores=_scores(scored),
        f1=f1_of(card.classes),
        majority=f"{counts.max() / len(scored):.1%}",
        label=label,
        counts=list(zip(card.classes, counts.tolist(), strict=True)),
        without=[
            f"{missing:,} of {len(scored):,} rows have no picture in {column}"
            for column, missing in scored.without.items()
            if missing
        ],
        classes=card.classes,
        confusion=_confusion(scored, card.classes),
        calibration=_drawn(drawn.calibration(bins, "Reliability diagram")),
        calibration_error=f"{expected_calibration_error(bins):.3f}",
        contributions=_contributions(bundle, sample),
        views=_views(bundle, sample, scored.labels[rows]),
        view_metrics=list(map(metric_name, IMPORTANCE_METRICS)),
        columns=_columns(bundle),
        worst=_worst(bundle, scored, table),
    )


def _scores(scored: Scored) -> list[dict[str, str]]:
    found = intervals(scored.labels, scored.probabilities)
    return [
        {
            "name": metric_name(key),
            **{k: _number(v) for k, v in zip(("value", "low", "high"), found[key], strict=True)},
        }
        for key in METRICS
    ]


def _confusion(scored: Scored, classes: Sequence[str]) -> list[dict[str, Any]]:
    counts = confusion(scored.labels, scored.probabilities.argmax(axis=1), len(classes))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return [
        {
            "name": name,
            "code": code,
            "cells": [
                {"count": int(count), "share": f"{share:.4f}", "percent": f"{share:.1%}"}
                for count, share in zip(counts[code], shares[code], strict=True)
            ],
        }
        for code, name in enumerate(classes)
    ]


def _contributions(bundle: Bundle, views: Views) -> str | None:
    """The figure of each learner's contribution, for a boosted model with several."""
    if not isinstance(bundle.model, TwoWeakLearnerClassifier):
        return None
    frame = view_contributions(bundle.model, views)
    if frame["view"].nunique() < 2:
        return None
    learners, form = bundle.model._learners(), bundle.reader.pictures
    pictures = () if form is None else form.names
    titles = {name: learner_title(name, learner, pictures) for name, learner in learners.items()}
    named = frame.assign(view=frame["view"].map(titles))
    return _drawn(drawn.contributions(named, "Contribution of each learner"))


def learner_title(name: str, learner: Any, pictures: Collection[str]) -> str:
    """What a learner is and what it reads, such as "trees (table and pictures)".

    Parameters
    ----------
    pictures : the views that are pictures.
    """
    parts = {each: " ".join(["pictures", *each.split(":", 1)[1:]]) for each in pictures}
    read = " and ".join(dict.fromkeys(parts.get(view, "table") for view in view_names(name, learner)))
    return f"{_PLURALS.get(learner.kind, learner.kind)} ({read})"


_PLURALS = {"network": "networks", "tree": "trees"}


def _drawn(figure: Figure) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(to_svg(figure).encode()).decode()


def _views(bundle: Bundle, views: Views, labels: np.ndarray) -> list[dict[str, Any]]:
    """Permutation importance of the pictures and of all columns together; empty without pictures."""
    form = bundle.reader.pictures
    if form is None:
        return []
    found = view_importance(bundle.model, views, labels)
    shown = [", ".join(form.columns)] if len(form.names) == 1 else form.columns
    names = {view: f"pictures ({columns})" for view, columns in zip(form.names, shown, strict=True)}
    names["S"] = f"{len(bundle.card.columns)} columns"
    return [
        {
            "name": names[str(view)],
            "losses": [
                (_signed(part.loc[metric, "mean"]), f"± {part.loc[metric, 'std']:.4f}")
                for metric in IMPORTANCE_METRICS
            ],
        }
        for view, part in found.set_index("metric").groupby("view", sort=False)
    ]


def _columns(bundle: Bundle) -> list[dict[str, Any]]:
    """Each column's share of the trees' split gains, largest first; empty without trees."""
    try:
        shares = zip(bundle.model.feature_names_, bundle.model.feature_importances_, strict=True)
    except AttributeError:
        return []
    known, found = set(bundle.encoding.names), dict[str, float]()
    for name, share in shares:
        shown = str(name) if name in known else "pictures (embeddings)"
        found[shown] = found.get(shown, 0.0) + float(share)
    ranked = sorted(found.items(), key=lambda item: -item[1])[:COLUMNS]
    largest = max((share for _, share in ranked), default=0.0) or 1.0
    return [
        {"name": name, "share": f"{share:.1%}", "width": f"{100 * share / largest:.1f}"}
        for name, share in ranked
    ]


def _worst(bundle: Bundle, scored: Scored, table: Path) -> list[dict[str, Any]]:
    """The rows that `worst_samples` finds, with their pictures and values."""
    found = worst_samples(scored.labels, scored.probabilities, WORST)
    pictures = _pictures(bundle, scored, table, found["row"].to_numpy())
    classes, shown = bundle.card.classes, list(bundle.card.columns)[:_VALUES]
    return [
        {
            "number": each.row + 1,
            "truth": classes[each.true],
            "p_truth": f"{each.p_true:.3f}",
            "predicted": classes[each.predicted],
            "p_predicted": f"{each.p_predicted:.3f}",
            "picture": pictures.get(each.row),
            "columns": [(name, _value(scored.frame[name].iloc[each.row])) for name in shown],
        }
        for each in found.itertuples()
    ]


def _pictures(bundle: Bundle, scored: Scored, table: Path, chosen: np.ndarray) -> dict[int, str]:
    """Each row's first picture as data URI, larger than the model sees it."""
    form = bundle.reader.pictures
    if form is None:
        return {}
    out: dict[int, str] = {}
    for reader in replace(form, size=SIDE).readers(TableFile.open(table), skip_unreadable=True):
        # in rising order, which a Parquet file gives in one pass
        for k in sorted(set(map(int, chosen)) - set(out)):
            cells = pa.chunked_array([[scored.frame[reader.column].iloc[k]]]) if reader.needs_cells else None
            pixels, absent = reader.read(k, 1, cells)
            if not absent[0]:
                encoded = io.BytesIO()
                shown = pixels[0, 0] if form.channels == 1 else pixels[0].transpose(1, 2, 0)
                Image.fromarray(shown).save(encoded, "PNG")
                out[k] = "data:image/png;base64," + base64.b64encode(encoded.getvalue()).decode()
    return out


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def _number(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else "–"


def _value(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
