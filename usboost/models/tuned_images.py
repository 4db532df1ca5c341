"""Images tuned on the target before a model is fitted, whatever the model is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from usboost.data.images import EncodedImages, Images
from usboost.data.pooled_images import PooledImages
from usboost.data.views import Views
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.weighted import error_of_mean, mean
from usboost.files.arrays import Store

if TYPE_CHECKING:  # torch is imported where images are tuned alone
    from usboost.learners.networks.images.finetuning import Target

Weighted = tuple[Views, np.ndarray, np.ndarray | None]


def tune_images(model: Any, train: Weighted, held: Weighted | None) -> None:
    """Give an unfitted model's backbones that are to be tuned weights tuned on these training rows.

    A backbone is to be tuned where it has pretrained weights and its `finetune` is "last" or "all", or "auto"
    and there are as many images as `finetuning.wanted` says; it is frozen then. Where the tuned embeddings do
    not predict the held-out rows better than the pretrained ones, beyond the standard error, it is the
    pretrained one. Equal backbones are tuned once. Without held-out rows, as where a model that has its
    backbones is fitted to all rows, nothing is done.

    Parameters
    ----------
    train, held : views, labels (int64 codes or float64 numbers, (n,)) and weights, float64 (n,) or None.
    """
    places = _to_tune(model)
    if not places or held is None:
        return
    from usboost.learners.networks.images import finetuning
    from usboost.learners.networks.train import pick_device

    seen, unseen = (finetuning.Target(*_of_images(each)) for each in (train, _known(held, train)))
    given = model.get_params(deep=True)
    devices = (value for path, value in given.items() if path.split("__")[-1] == "device")
    device = pick_device(next(devices, "auto"))
    found: dict[str, Any] = {}
    for path in places:
        backbone, key = given[path], repr(given[path])
        if key not in found:
            found[key] = clone(backbone).set_params(finetune="none")
            if finetuning.wanted(backbone, seen.n_images, device):
                made = finetuning.tuned(backbone, seen, unseen, device)
                found[key] = made if _helps(made, found[key], seen, unseen) else found[key]
        model.set_params(**{path: found[key]})


def images_tuned(model: Any) -> bool:
    """Whether a model reads images by a network that was tuned for it."""
    return any(isinstance(getattr(part, "pretrained", None), str) for part in model.get_params().values())


def _to_tune(model: Any) -> list[str]:
    """The paths of a model's backbones that are to be tuned, or may be.

    Of a model with fits inside each of these tunes for its own rows. Where the time of a fit is limited,
    "auto" would take too long.
    """
    given = model.get_params(deep=True)
    paths = [path for path in given if path.split("__")[-1] == "backbone" and given[path] is not None]
    if getattr(model, "fits_inside", False):
        return []
    limited = any(math.isfinite(each.time_left()) for each in given.get("callbacks") or ())
    for path in paths if limited else ():
        if given[path].finetune == "auto":
            model.set_params(**{path: clone(given[path]).set_params(finetune="none")})
    wanted = ("last", "all") if limited else ("auto", "last", "all")
    return [path for path in paths if given[path].finetune in wanted and given[path].pretrained]


def _known(held: Weighted, train: Weighted) -> Weighted:
    """The held-out rows without those of a class that the training rows lack."""
    views, y, weights = held
    if np.asarray(y).dtype.kind == "f" or (known := np.isin(y, train[1])).all():
        return held
    rows = np.flatnonzero(known)
    return views[rows], np.asarray(y)[rows], None if weights is None else weights[rows]


def _of_images(rows: Weighted) -> tuple[tuple[Any, ...], np.ndarray, np.ndarray | None]:
    """The views of images, labels and weights of some rows."""
    views, y, weights = rows
    found: list[Any] = []
    for name in views.names:
        view = views[name]
        found += view.columns if isinstance(view, PooledImages) else [view]
    return tuple(view for view in found if isinstance(view, Images | EncodedImages)), np.asarray(y), weights


def _helps(made: Any, frozen: Any, train: Target, held: Target) -> bool:
    """Whether a linear model of the images predicts the held-out rows better with the tuned embeddings.

    It is asked once for each tuning; the answer is kept beside its weights.
    """
    path = Path(made.pretrained)
    store = Store(path.parent)
    kept = store.get_json(path.stem, lambda document: bool(document["helps"]))
    if kept is not None:
        return kept
    losses = [_losses(backbone, train, held) for backbone in (frozen, made)]
    gains = losses[0] - losses[1]
    helps = bool(mean(gains, held.weights) > error_of_mean(gains, held.weights))
    store.put_json(path.stem, {"helps": helps})
    return helps


def _losses(backbone: Any, train: Target, held: Target) -> np.ndarray:
    """Of a linear model on what a backbone makes of the images, for each held-out row, float64 (n,)."""
    from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline

    seen, unseen = (Views({f"U:{k}": view for k, view in enumerate(each.images)}) for each in (train, held))
    judge = (RidgeBaseline if train.is_number else LinearBaseline)(seen.names, backbone=backbone)
    weighted = () if held.weights is None else (held.weights,)
    judge.fit(seen, train.y, (unseen, held.y, *weighted), train.weights)
    if train.is_number:
        return row_losses(held.y, judge.predict(unseen))
    return row_losses(np.searchsorted(judge.classes_, held.y), judge.predict_proba(unseen))
