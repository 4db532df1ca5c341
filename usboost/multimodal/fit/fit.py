"""Fit a model of the catalogue to a user's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from usboost.boosting.callbacks import Callback
from usboost.datasets.user.user_table import UserTable
from usboost.models.catalogue import catalogue
from usboost.models.class_weights import ClassWeight
from usboost.multimodal.fit.build import ImageOptions, build, on_device
from usboost.multimodal.fit.table_fit import Fitted, TableFit
from usboost.multimodal.fit.unfinished import Keep


def fit(
    table: UserTable,
    name: str,
    *,
    seed: int = 0,
    rounds: int | None = None,
    learners: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    images: ImageOptions | None = None,
    callbacks: Sequence[Callback] | None = None,
    calibrate: bool = True,
    threshold: Literal["f1"] | float | None = None,
    refit: bool | None = None,
    device: str = "auto",
    class_weight: ClassWeight = None,
    fast_predict: bool = False,
    keep: Keep | None = None,
) -> Fitted:
    """Build a model by its name and fit it, see `usboost.multimodal.fit.table_fit.TableFit`.

    Parameters
    ----------
    name, rounds, learners, settings : see `models.build`.
    images : how the model reads the table's images, if it has any.
    seed : of the split and of the model.
    device : of networks, see `usboost.learners.networks.train.pick_device`.
    fast_predict : of an ensemble, keep one model; see `usboost.models.ensembles.ensemble.EnsembleClassifier`.
    callbacks, calibrate, threshold, refit, class_weight, keep : of `TableFit`.

    Raises
    ------
    UsboostError
        If the model is unknown, or cannot be fitted to these rows.
    """
    catalogue.check_options(name, fast_predict=fast_predict)
    model = build(
        name,
        images=(images or ImageOptions()) if table.images else False,
        image_views=tuple(table.images) or ("U",),
        seed=seed,
        rounds=rounds,
        learners=learners,
        settings=settings,
        task=table.task,
    )
    if fast_predict:
        model.set_params(fast_predict=True)
    return TableFit(
        table,
        on_device(model, device),
        name,
        seed=seed,
        callbacks=callbacks or (),
        calibrate=calibrate,
        threshold=threshold,
        refit=refit,
        class_weight=class_weight,
        keep=keep,
    ).run()
