"""A fit of any model, weighted, its images tuned on the target before."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from usboost.boosting.checkpoint import identity_of
from usboost.data.images import EncodedImages, Images
from usboost.data.views import Views
from usboost.evaluation.folds import Related
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.statistics import error_of_mean, mean
from usboost.files.arrays import Store, key_of
from usboost.table.spec import SIZE

if TYPE_CHECKING:  # torch is imported where images are tuned alone
    from usboost.learners.networks.finetuning import TuningTarget

Weighted = tuple[Views, np.ndarray, np.ndarray | None]
"""Rows, their labels, and their weights if they have any."""

Judge = Callable[[Any], Any]
"""Builds an unfitted model from the backbone that it reads."""

SURE = 500
"""Training images from which a quick model of the validation rows says how far to tune."""


def fit_weighted(model: Any, train: Weighted, val: Weighted | None, related: Related | None = None) -> None:
    """Fit a model, its images tuned where that is wanted; of weights and of related rows it hears where there
    are some."""
    tune_images(model, train, val)
    more: dict[str, Any] = {} if related is None else dict(related.arguments)
    if train[2] is not None:
        more["sample_weight"] = train[2]
    validation = () if val is None else (val[:2] if val[2] is None else val,)
    model.fit(*train[:2], *validation, **more)


def tune_images(model: Any, train: Weighted, val: Weighted | None) -> None:
    """Give an unfitted model's backbones that are to be tuned weights tuned on these training rows.

    A backbone is to be tuned where it has pretrained weights and its `finetune` is "last" or "all", or "auto"
    and there are as many images as `finetuning.wanted` says; it is frozen then. Where the tuned embeddings do
    not predict the validation rows better than the pretrained ones, beyond the standard error, it is the
    pretrained one. Equal backbones are tuned once.

    A backbone of the size "auto" reads images of `SIZE` pixels or as they are, by whichever a linear model of
    all views predicts the validation rows better; it is tuned after that.

    Embeddings tuned on a row know that row, so what is fitted to them trusts images more than it should. The
    validation rows say how far to go: by all views, to the tuned weights, half way, or not at all.

    Without validation rows, as where a model that has its backbones is fitted to all rows, nothing is done.

    Parameters
    ----------
    train, val : views, labels (int64 codes or float64 numbers, (n,)) and weights, float64 (n,) or None.
    """
    places = _to_tune(model)
    if not places or val is None:
        return
    from usboost.learners.networks import finetuning
    from usboost.learners.networks.train import pick_device

    views, y, weights = val
    if np.asarray(y).dtype.kind != "f" and not (known := np.isin(y, train[1])).all():
        rows = np.flatnonzero(known)  # no model can judge by a class that it does not know
        val = views[rows], np.asarray(y)[rows], None if weights is None else weights[rows]
    targets = []
    for own, labels, own_weights in (train, val):
        images = (each for name in own.names if isinstance(each := own[name], Images | EncodedImages))
        targets.append(finetuning.TuningTarget(tuple(images), np.asarray(labels), own_weights))
    seen, unseen = targets
    given = model.get_params(deep=True)
    devices = (value for path, value in given.items() if path.split("__")[-1] == "device")
    device = pick_device(next(devices, "auto"))
    chosen: dict[str, Any] = {}
    for path in places:
        backbone, key = given[path], repr(given[path])
        if key not in chosen:
            backbone = _sized(backbone, train, val)
            chosen[key] = clone(backbone).set_params(finetune="none")
            if finetuning.wanted(backbone, seen.n_images, device):
                made = finetuning.tuned(backbone, seen, unseen, device)
                if _helps(made, chosen[key], seen, unseen):
                    few = seen.n_images < SURE
                    judge = _judge(model, places, train, few)
                    chosen[key] = _as_far_as_helps(judge, made, chosen[key], train, val, few)
        model.set_params(**{path: chosen[key]})


def images_tuned(model: Any) -> bool:
    """Tell if a model reads images by a network that was tuned for it."""
    return any(isinstance(getattr(part, "pretrained", None), str) for part in model.get_params().values())


def _to_tune(model: Any) -> list[str]:
    """Return the paths of a model's backbones that are to be tuned, or may be.

    Of a model with fits inside each of these tunes for its own rows. Where the time of a fit is limited,
    "auto" would take too long.
    """
    given = model.get_params(deep=True)
    backbones = (path for path in given if path.split("__")[-1] == "backbone")
    paths = [path for path in backbones if hasattr(given[path], "finetune")]
    if getattr(model, "fits_inside", False):
        return []
    limited = any(math.isfinite(each.time_left()) for each in given.get("callbacks") or ())
    for path in paths if limited else ():
        if given[path].finetune == "auto":
            model.set_params(**{path: clone(given[path]).set_params(finetune="none")})
    wanted = ("last", "all") if limited else ("auto", "last", "all")
    return [
        path
        for path in paths
        if given[path].pretrained and (given[path].finetune in wanted or given[path].size == "auto")
    ]


def _sized(backbone: Any, train: Weighted, val: Weighted) -> Any:
    """Return a backbone with the size that validation rows choose, if it is theirs to choose."""
    from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline

    if backbone.size != "auto":
        return backbone
    linear = RidgeBaseline if np.asarray(train[1]).dtype.kind == "f" else LinearBaseline
    sized = [clone(backbone).set_params(size=side) for side in (SIZE, None)]
    frozen = [clone(each).set_params(finetune="none") for each in sized]
    losses = [_judged(linear(train[0].names, backbone=each), train, val) for each in frozen]
    return sized[int(np.argmin([mean(each, val[2]) for each in losses]))]


def _helps(made: Any, frozen: Any, train: "TuningTarget", val: "TuningTarget") -> bool:
    """Tell if a linear model of the images predicts the validation rows better with the tuned embeddings.

    It is fitted once for each tuning; the answer is stored with the weights.
    """
    from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline

    path = Path(made.pretrained)
    store = Store(path.parent)
    known = store.get_json(path.stem, lambda document: bool(document["helps"]))
    if known is not None:
        return known
    seen, unseen = (
        (Views({f"U:{k}": view for k, view in enumerate(each.images)}), each.y, each.weights)
        for each in (train, val)
    )
    linear = RidgeBaseline if train.is_number else LinearBaseline
    losses = [_judged(linear(seen[0].names, backbone=each), seen, unseen) for each in (frozen, made)]
    gains = losses[0] - losses[1]
    helps = bool(mean(gains, val.weights) > error_of_mean(gains, val.weights))
    store.put_json(path.stem, {"helps": helps})
    return helps


def _judge(model: Any, places: Sequence[str], train: Weighted, few: bool) -> Judge:
    """Return what builds a model of all views that says how far to tune, from a backbone.

    It is linear where the model is, or starts from, a linear one, else of few trees: both are quick. Of few
    images it is the model itself, which may trust tuned embeddings more than they do.
    """
    from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
    from usboost.models.baselines.trees import LightGBMBaseline, LightGBMBaselineRegressor

    names, is_number = train[0].names, np.asarray(train[1]).dtype.kind == "f"
    for name, member in (getattr(model, "members", None) or {}).items():  # of an average, its first member
        start = f"members__{name}__"
        inside = [path.removeprefix(start) for path in places if path.startswith(start)]
        return _judge(member, inside, train, few)
    if few:
        own = dict.fromkeys({"callbacks", "checkpoint"} & model.get_params(deep=False).keys())
        return lambda backbone: clone(model).set_params(**own, **dict.fromkeys(places, backbone))
    if isinstance(model, LinearBaseline | RidgeBaseline) or getattr(model, "start", None) is not None:
        linear: Any = RidgeBaseline if is_number else LinearBaseline
        return lambda backbone: linear(names, backbone=backbone)
    few_trees = {"n_trees": 300, "learning_rate": 0.1, "num_leaves": 8, "patience": 20, "components": 64}
    trees: Any = LightGBMBaselineRegressor if is_number else LightGBMBaseline
    return lambda backbone: trees(names, **few_trees, backbone=backbone)


def _as_far_as_helps(judge: Judge, made: Any, frozen: Any, train: Weighted, val: Weighted, few: bool) -> Any:
    """Return the backbone by which a judge predicts the validation rows best: the tuned, the frozen, or
    the one half way between their weights.

    By few images another than the frozen one has to be better by more than the standard error. The judge is
    fitted once for each tuning, table and kind; the answer is stored with the weights.
    """
    from usboost.learners.networks.finetuning import half_way

    path = Path(made.pretrained)
    key = f"{path.stem}-{key_of(identity_of(judge(frozen), (train, val)))[:32]}"
    store, candidates = Store(path.parent), [made, half_way(made, frozen), frozen]
    best = store.get_json(key, lambda document: range(len(candidates)).index(document["best"]))
    if best is None:
        losses = [_judged(judge(each), train, val) for each in candidates]
        risks = [mean(each, val[2]) for each in losses]
        best = int(np.argmin(risks))
        gains = losses[-1] - losses[best]
        if few and mean(gains, val[2]) <= error_of_mean(gains, val[2]):
            best = len(candidates) - 1
        store.put_json(key, {"best": best, "risks": risks})
    return candidates[best]


def _judged(judge: Any, train: Weighted, val: Weighted) -> np.ndarray:
    """Fit a model to the training rows; return the loss of each validation row, float64 (n,)."""
    views, y, weights = val
    judge.fit(train[0], train[1], (views, y) if weights is None else val, train[2])
    if np.asarray(train[1]).dtype.kind == "f":
        return row_losses(y, judge.predict(views))
    return row_losses(np.searchsorted(judge.classes_, y), judge.predict_proba(views))
