"""Images tuned on the target before a model is fitted, whatever the model is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from usboost.boosting.checkpoint import identity_of
from usboost.data.images import EncodedImages, Images
from usboost.data.pooled_images import PooledImages
from usboost.data.views import Views
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.weighted import error_of_mean, mean
from usboost.files.arrays import Store, key_of

if TYPE_CHECKING:  # torch is imported where images are tuned alone
    from usboost.learners.networks.images.finetuning import Target

Weighted = tuple[Views, np.ndarray, np.ndarray | None]


def tune_images(model: Any, train: Weighted, held: Weighted | None) -> None:
    """Give an unfitted model's backbones that are to be tuned weights tuned on these training rows.

    A backbone is to be tuned where it has pretrained weights and its `finetune` is "last" or "all", or "auto"
    and there are as many images as `finetuning.wanted` says; it is frozen then. Where the tuned embeddings do
    not predict the held-out rows better than the pretrained ones, beyond the standard error, it is the
    pretrained one. Equal backbones are tuned once.

    Embeddings tuned on a row know that row, so what is fitted to them trusts images more than it should. The
    held-out rows say how far to go: by all views, to the tuned weights, half the way to them, or not at all.

    Without held-out rows, as where a model that has its backbones is fitted to all rows, nothing is done.

    Parameters
    ----------
    train, held : views, labels (int64 codes or float64 numbers, (n,)) and weights, float64 (n,) or None.
    """
    places = _to_tune(model)
    if not places or held is None:
        return
    from usboost.learners.networks.images import finetuning
    from usboost.learners.networks.train import pick_device

    held = _known(held, train)
    seen, unseen = (finetuning.Target(*_of_images(each)) for each in (train, held))
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
                if _helps(made, found[key], seen, unseen):
                    found[key] = _as_far_as_it_helps(model, made, found[key], train, held)
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


def _as_far_as_it_helps(model: Any, made: Any, frozen: Any, train: Weighted, held: Weighted) -> Any:
    """The backbone by which a quick model of all views predicts the held-out rows best: the tuned one, the
    frozen one, or the one half way between their weights.

    It is asked once for each tuning, table and judge; the answer is kept beside the weights.
    """
    from usboost.learners.networks.images.finetuning import half_way

    judge, path = _judge(model, train), Path(made.pretrained)
    key = f"{path.stem}-{key_of(identity_of(judge, (train, held)))[:32]}"
    store, found = Store(path.parent), [made, half_way(made, frozen), frozen]
    best = store.get_json(key, lambda document: range(len(found)).index(document["best"]))
    if best is None:
        risks = [mean(_judged(clone(judge).set_params(backbone=b), train, held), held[2]) for b in found]
        best = int(np.argmin(risks))
        store.put_json(key, {"best": best, "risks": risks})
    return found[best]


def _judge(model: Any, train: Weighted) -> Any:
    """A linear model of all views for one that is, or starts from, a linear model; few trees for another."""
    from usboost.models.baselines.estimators import LightGBMBaseline, LightGBMBaselineRegressor
    from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline

    views, y, _ = train
    is_number = np.asarray(y).dtype.kind == "f"
    if isinstance(model, LinearBaseline | RidgeBaseline) or getattr(model, "start", None) is not None:
        return (RidgeBaseline if is_number else LinearBaseline)(views.names)
    trees = LightGBMBaselineRegressor if is_number else LightGBMBaseline
    return trees(views.names, n_trees=300, learning_rate=0.1, num_leaves=8, patience=20, components=64)


def _losses(backbone: Any, train: Target, held: Target) -> np.ndarray:
    """Of a linear model on what a backbone makes of the images, for each held-out row, float64 (n,)."""
    from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline

    seen, unseen = (
        (Views({f"U:{k}": view for k, view in enumerate(each.images)}), each.y, each.weights)
        for each in (train, held)
    )
    judge = RidgeBaseline if train.is_number else LinearBaseline
    return _judged(judge(seen[0].names, backbone=backbone), seen, unseen)


def _judged(judge: Any, train: Weighted, held: Weighted) -> np.ndarray:
    """Of a model fitted to the training rows, the loss of each held-out row, float64 (n,)."""
    views, y, weights = held
    judge.fit(train[0], train[1], (views, y) if weights is None else held, train[2])
    if np.asarray(train[1]).dtype.kind == "f":
        return row_losses(y, judge.predict(views))
    return row_losses(np.searchsorted(judge.classes_, y), judge.predict_proba(views))
