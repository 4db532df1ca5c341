"""What a report says of which columns and images matter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.data.views import Views
from usboost.datasets.sampling import stratified_sample
from usboost.evaluation.calibration import tempered
from usboost.evaluation.names import LOWER_IS_BETTER, metric_name, number
from usboost.learners.base import view_names
from usboost.models.inspection.inspect import view_contributions
from usboost.models.inspection.permutation import Together, permutation_importance, predictor
from usboost.models.methods.weak_learners import BoostedWeakLearners
from usboost.multimodal.fit.bundle import Bundle
from usboost.multimodal.predict.predict import Scored
from usboost.reporting.inspection import figures as drawn
from usboost.reporting.inspection.figures import as_uri
from usboost.table.columns.encoding import SUFFIX

COLUMNS = 20
"""Columns that are shuffled, and those whose gain is shown."""


@dataclass(frozen=True)
class Effort:
    """How much is spent on shuffling: rows, and shuffles of each column."""

    rows: int
    repeats: int


WITHOUT_IMAGES, EMBEDDED, TRAINED = Effort(2000, 5), Effort(500, 3), Effort(100, 2)
"""Where each shuffle predicts from columns, from kept embeddings, or runs a network that was trained."""

_METRICS = {"classification": ("accuracy", "log_loss"), "regression": ("rmse", "r2")}


def effort(bundle: Bundle) -> Effort:
    """What shuffling may cost for a model."""
    if bundle.reader.images is None:
        return WITHOUT_IMAGES
    backbone = getattr(bundle.model, "backbone", None)
    return TRAINED if backbone is not None and not backbone.is_frozen else EMBEDDED


def sample(scored: Scored, bundle: Bundle) -> np.ndarray:
    """Positions of the rows on which columns are shuffled and learners measured."""
    most = effort(bundle).rows
    if bundle.card.classes:
        return np.asarray(stratified_sample(scored.labels, most, 0))
    n = len(scored)
    return np.sort(np.random.default_rng(0).choice(n, min(n, most), replace=False))


def permutation(bundle: Bundle, views: Views, labels: np.ndarray) -> dict[str, Any]:
    """Permutation importance of images, of all columns together, and of single ones.

    Returns
    -------
    columns : the scores, and their changes in words; rows : each a name, and its cells by score, a change
    and its spread; what matters most first among the columns. left_out : columns that were not shuffled; n,
    repeats : rows, and shuffles of each.
    """
    single, left_out = _single(bundle)
    groups, spent = [*_whole(bundle), *single], effort(bundle)
    metrics = _METRICS[bundle.card.task]

    def score(predicted: np.ndarray) -> dict[str, float]:
        classes = bool(bundle.card.classes)
        return bundle.task.score(
            labels, tempered(predicted, bundle.card.temperature) if classes else predicted
        )

    found = permutation_importance(
        predictor(bundle.model, views, lambda seen: bundle.task.predict(bundle.model, seen)),
        score,
        groups,
        metrics,
        len(labels),
        n_repeats=spent.repeats,
        seed=0,
    )
    m = len(metrics)  # by place, as a column may have any name
    parts = [found.iloc[k : k + m].set_index("metric") for k in range(0, len(found), m)]
    rows: list[dict[str, Any]] = [
        {
            "name": group.name,
            "size": float(part.loc[metrics[-1], "mean"]),
            "cells": {
                key: (_signed(part.loc[key, "mean"]), f"± {number(part.loc[key, 'std'])}") for key in metrics
            },
        }
        for group, part in zip(groups, parts, strict=True)
    ]
    whole, columns = rows[: len(groups) - len(single)], rows[len(groups) - len(single) :]
    return {
        "columns": {
            key: f"{'increase' if key in LOWER_IS_BETTER else 'decrease'} in {metric_name(key)}"
            for key in metrics
        },
        "rows": [*whole, *sorted(columns, key=lambda row: -row["size"])],
        "left_out": left_out,
        "n": len(labels),
        "repeats": spent.repeats,
    }


def _whole(bundle: Bundle) -> list[Together]:
    """Each view of images, and beside them all columns together."""
    form, columns = bundle.reader.images, bundle.card.columns
    if form is None:
        return []
    shown = [", ".join(form.columns)] if len(form.names) == 1 else form.columns
    found = [Together(f"images ({names})", (view,)) for view, names in zip(form.names, shown, strict=True)]
    return (
        [*found, Together(f"all {len(columns)} columns", tuple(bundle.card.encoders))] if columns else found
    )


def _single(bundle: Bundle) -> tuple[list[Together], int]:
    """Columns as the table has them, those of the largest gain if there are many; how many are left out."""
    encoded = {name: _encoded(bundle, name) for name in bundle.card.columns}
    if len(encoded) > COLUMNS:
        gained = _gains(bundle)
        size = {name: sum(gained.get(each, 0.0) for each in of) for name, of in encoded.items()}
        chosen = set(sorted(encoded, key=lambda name: -size[name])[:COLUMNS])
        encoded = {name: of for name, of in encoded.items() if name in chosen}
    views = bundle.card.encoders
    found = [Together(name, columns=dict.fromkeys(views, of)) for name, of in encoded.items()]
    return found, len(bundle.card.columns) - len(found)


def _encoded(bundle: Bundle, name: str) -> frozenset[str]:
    """The columns of the views that a column of the table becomes."""
    several: dict[str, Any] = {**bundle.encoding.dates, **bundle.texts}
    parts = several[name].names(name) if name in several else [name]
    return frozenset({*parts, *(f"{part}{SUFFIX}" for part in parts)} & set(bundle.encoding.names))


def _gains(bundle: Bundle) -> dict[str, float]:
    """Each encoded column's share of the trees' split gains, images as one; empty without trees."""
    try:
        shares = zip(bundle.model.feature_names_, bundle.model.feature_importances_, strict=True)
    except AttributeError:
        return {}
    known, found = set(bundle.encoding.names), dict[str, float]()
    for name, share in shares:
        plain = str(name) if name in known else str(name).split("__", 1)[-1]
        shown = plain if plain in known else IMAGES
        found[shown] = found.get(shown, 0.0) + float(share)
    return found


IMAGES = "images (embeddings)"


def gains(bundle: Bundle) -> list[dict[str, Any]]:
    """`_gains` with those of a text together, largest first, at most `COLUMNS` of them."""
    texts = {each: f"{name} (text)" for name, text in bundle.texts.items() for each in text.names(name)}
    found: dict[str, float] = {}
    for name, share in _gains(bundle).items():
        shown = texts.get(name, name)
        found[shown] = found.get(shown, 0.0) + share
    ranked = sorted(found.items(), key=lambda item: -item[1])[:COLUMNS]
    largest = max((share for _, share in ranked), default=0.0) or 1.0
    return [
        {"name": name, "share": f"{share:.1%}", "width": f"{100 * share / largest:.1f}"}
        for name, share in ranked
    ]


def contributions(bundle: Bundle, views: Views) -> str | None:
    """The figure of each learner's contribution, for a boosted model with several."""
    if not isinstance(bundle.model, BoostedWeakLearners):
        return None
    frame = view_contributions(bundle.model, views)
    if frame["view"].nunique() < 2:
        return None
    learners, form = bundle.model._learners(), bundle.reader.images
    images = () if form is None else form.names
    titles = {name: learner_title(name, learner, images) for name, learner in learners.items()}
    if bundle.model.start_ is not None:
        start = "logistic regression" if bundle.card.classes else "ridge regression"
        titles["start"] = f"start: {start} ({_what(bundle.model.start_.views, images)})"
    named = frame.assign(view=frame["view"].map(titles))
    return as_uri(drawn.contributions(named, "Contribution of each learner"))


def learner_title(name: str, learner: Any, images: Collection[str]) -> str:
    """What a learner is and what it reads, such as "trees (table and images)".

    `images`: the views that are images.
    """
    return f"{_PLURALS.get(learner.kind, learner.kind)} ({_what(view_names(name, learner), images)})"


def _what(views: Sequence[str], images: Collection[str]) -> str:
    parts = {each: " ".join(["images", *each.split(":", 1)[1:]]) for each in images}
    return " and ".join(dict.fromkeys(parts.get(view, "table") for view in views))


_PLURALS = {"network": "networks", "tree": "trees"}


def _signed(value: float) -> str:
    return ("−" if value < 0 else "+") + number(abs(value))
