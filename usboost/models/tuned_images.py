"""Images tuned on the target before a model is fitted, whatever the model is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.base import clone

from usboost.data.images import EncodedImages, Images
from usboost.data.pooled_images import PooledImages
from usboost.data.views import Views
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.weighted import error_of_mean, mean

Weighted = tuple[Views, np.ndarray, np.ndarray | None]

HELD = 0.2
"""Share of the training rows that choose the epoch where there are no validation rows."""


def tune_images(model: Any, train: Weighted, held: Weighted | None) -> None:
    """Give an unfitted model's backbones that are to be tuned weights tuned on these training rows.

    A backbone is to be tuned where its `finetune` is "last" or "all" and it has pretrained weights; it is
    frozen then. Where embeddings of the tuned network do not predict the held-out rows better than those of
    the pretrained one, beyond the standard error, it is the pretrained one. Equal backbones are tuned once.

    Parameters
    ----------
    train, held : views, labels (int64 codes or float64 numbers) and weights; without held-out rows a fifth of
        the training rows chooses the epoch.
    """
    places = _to_tune(model)
    if not places:
        return
    from usboost.learners.networks.images import finetuning
    from usboost.learners.networks.train import pick_device

    train, held = _divided(train) if held is None else (train, held)
    seen, unseen = (
        finetuning.Target(_images(each[0]), np.asarray(each[1]), each[2]) for each in (train, held)
    )
    given = model.get_params(deep=True)
    device = pick_device(
        next((each for path, each in given.items() if path.split("__")[-1] == "device"), "auto")
    )
    found: dict[str, Any] = {}
    for path in places:
        backbone = given[path]
        key = repr(sorted(backbone.get_params().items(), key=str))
        if key not in found:
            found[key] = clone(backbone).set_params(finetune="none")
            if finetuning.wanted(backbone, seen.n_images, device):
                made = finetuning.tuned(backbone, seen, unseen, device)
                found[key] = made if _helps(made, found[key], train, held) else found[key]
        model.set_params(**{path: found[key]})


def _to_tune(model: Any) -> list[str]:
    """The paths of a model's backbones that are to be tuned, or may be.

    Of a model with fits inside each of these tunes for its own rows, where that was asked for: with "auto" it
    would take too long, and so it may where the time of a fit is limited.
    """
    given = model.get_params(deep=True)
    paths = [path for path in given if path.split("__")[-1] == "backbone" and given[path] is not None]
    inside = getattr(model, "fits_inside", False)
    limited = any(math.isfinite(each.time_left()) for each in given.get("callbacks") or ())
    for path in paths if inside or limited else ():
        if given[path].finetune == "auto":
            model.set_params(**{path: clone(given[path]).set_params(finetune="none")})
    if inside:
        return []
    wanted = ("last", "all") if limited else ("auto", "last", "all")
    return [path for path in paths if given[path].finetune in wanted and given[path].pretrained]


def _images(views: Views) -> tuple[Any, ...]:
    found: list[Any] = []
    for name in views.names:
        view = views[name]
        found += view.columns if isinstance(view, PooledImages) else [view]
    return tuple(view for view in found if isinstance(view, Images | EncodedImages))


def _divided(rows: Weighted) -> tuple[Weighted, Weighted]:
    """Training rows, and a fifth of them apart."""
    views, y, weights = rows
    order = np.random.default_rng(0).permutation(len(y))
    cut = max(1, round(HELD * len(y)))

    def part(chosen: np.ndarray) -> Weighted:
        return views[chosen], np.asarray(y)[chosen], None if weights is None else weights[chosen]

    return part(np.sort(order[cut:])), part(np.sort(order[:cut]))


def _helps(made: Any, frozen: Any, train: Weighted, held: Weighted) -> bool:
    """Whether a linear model predicts the held-out rows better with tuned embeddings, beyond noise."""
    from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline

    is_number = np.asarray(train[1]).dtype.kind == "f"
    losses = []
    for backbone in (frozen, made):
        judge = (RidgeBaseline if is_number else LinearBaseline)(train[0].names, backbone=backbone)
        more = {} if train[2] is None else {"sample_weight": train[2]}
        judge.fit(train[0], train[1], held[:2] if held[2] is None else held, **more)
        predicted = judge.predict(held[0]) if is_number else judge.predict_proba(held[0])
        losses.append(row_losses(np.asarray(held[1]), predicted))
    gains = losses[0] - losses[1]
    return mean(gains, held[2]) > error_of_mean(gains, held[2])
