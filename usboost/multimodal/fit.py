"""Fit one model to a user's table, with validation rows for early stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.data.views import Views
from usboost.datasets.custom.encoding import Encoding
from usboost.datasets.custom.own import OwnTable
from usboost.datasets.custom.written import plain_form
from usboost.datasets.files.sampling import stratified_parts
from usboost.evaluation.metrics import score
from usboost.models.base import ViewsClassifier
from usboost.models.chosen import ChosenClassifier
from usboost.multimodal.bundle import Bundle, Card
from usboost.multimodal.models import Pictures, build

SHARES = (0.85, 0.15)
"""Shares of training and validation rows."""


@dataclass(frozen=True)
class Fitted:
    """A bundle, and scores and cost of the fit.

    Attributes
    ----------
    scores : of the validation rows: f1, accuracy, log_loss, auc.
    rows : (training, validation).
    best_round : the round, epoch or fit kept; seconds : of the fit.
    pictures_help : whether the validation rows are predicted better with their own pictures than with each
        other's, by more than the standard error; None of a table without pictures.
    losses : log-loss of the validation rows of each model that was chosen among, if there were several.
    """

    bundle: Bundle
    scores: dict[str, float]
    rows: tuple[int, int]
    best_round: int
    seconds: float
    pictures_help: bool | None = None
    losses: dict[str, float] | None = None


def fit(
    table: OwnTable,
    name: str,
    *,
    seed: int = 0,
    rounds: int | None = None,
    learners: Mapping[str, str] | None = None,
    pictures: Pictures | None = None,
    callbacks: Sequence[Callback] | None = None,
) -> Fitted:
    """Fit a model to 85 % of the rows of each class and early stop it on the others.

    Without pictures the network (U) and the trees (S) both read the whole table.

    Parameters
    ----------
    name, rounds, learners : see `models.build`.
    pictures : how the model reads the table's pictures, if it has any.
    seed : of the split and of the model.

    Raises
    ------
    UsboostError
        If the model is unknown, or cannot be fitted to these rows.
    """
    read = (pictures or Pictures()) if table.pictures else False
    views = tuple(table.pictures) or ("U",)
    model = build(name, pictures=read, image_views=views, seed=seed, rounds=rounds, learners=learners)
    train, held = stratified_parts(table.labels, SHARES, seed)
    encoding = table.fit_encoding(train)
    held_views = table.views(encoding, held)
    if callbacks:
        model.set_params(callbacks=list(callbacks))
    started = time.perf_counter()
    model.fit(table.views(encoding, train), table.labels[train], (held_views, table.labels[held]))
    seconds = time.perf_counter() - started
    probabilities = model.predict_proba(held_views)
    scores = score(table.labels[held], probabilities)
    helps = _pictures_help(model, held_views, table.labels[held], probabilities) if table.pictures else None
    rows = (len(train), len(held))
    losses = None
    if isinstance(model, ChosenClassifier):
        model, name, losses = model.chosen_, model.chosen_name_, model.losses_
    card = card_of(table, encoding, model=name, rows=rows, scores=scores, seed=seed)
    return Fitted(Bundle(model, card), scores, rows, model.best_round_, seconds, helps, losses)


def _pictures_help(model: ViewsClassifier, views: Views, codes: np.ndarray, given: np.ndarray) -> bool:
    """Whether rows are predicted better with their own pictures than with those of others."""
    cycle = np.random.default_rng(0).permutation(len(codes))
    order = np.empty_like(cycle)
    order[cycle] = np.roll(cycle, 1)  # no row keeps its own
    for name in views.names:
        if name != "S":
            views = views.with_view(name, views[name][order])
    rows = np.arange(len(codes))
    losses = [-np.log(np.maximum(p[rows, codes], 1e-12)) for p in (model.predict_proba(views), given)]
    gains = losses[0] - losses[1]
    return bool(gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)))


def card_of(
    table: OwnTable,
    encoding: Encoding,
    *,
    model: str,
    rows: tuple[int, int],
    scores: Mapping[str, float],
    seed: int,
) -> Card:
    """What a bundle says of a model that was fitted to a table.

    Parameters
    ----------
    encoding : of the table's columns.
    model : its name; rows : (training, validation); scores : of the latter; seed : of the fit.
    """
    card = {
        "model": model,
        "classes": table.classes,
        "label": table.roles.label,
        "columns": table.kinds,
        "dropped": [*table.roles.dropped, *table.left_out],
        "images": _pictures(table),
        "imputation": encoding.imputation,
        "dates": {name: each.to_dict() for name, each in encoding.dates.items()},
        "formats": {name: plain_form(form) for name, form in table.formats.items()},
        "missing": list(table.roles.missing),
        "encoders": {view: encoder.to_dict() for view, encoder in encoding.encoders.items()},
        "rows": {"train": rows[0], "val": rows[1]},
        "scores": {key: value if math.isfinite(value) else None for key, value in scores.items()},
        "seed": seed,
        "table": table.file.path.name,
        "sha256": table.file.digest(),
    }
    return Card.model_validate(card)


def _pictures(table: OwnTable) -> dict[str, Any] | None:
    form = table.form
    if form is None:
        return None
    return {
        "columns": list(form.columns),
        "size": [form.size, form.size],
        "channels": form.channels,
        "aspect": form.aspect,
        "pooled": form.pooled,
    }
