"""Fit one model to a user's table, with validation rows for early stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.data.views import Views
from usboost.datasets.custom import text_file
from usboost.datasets.custom.encoding import Encoding
from usboost.datasets.custom.own import OwnTable
from usboost.datasets.custom.written import plain_form
from usboost.errors import UsboostError
from usboost.evaluation.calibration import calibrated, tempered
from usboost.evaluation.metrics import best_threshold
from usboost.models.chosen import ChosenClassifier, ChosenRegressor
from usboost.models.refit import for_all_rows
from usboost.multimodal.bundle import Bundle, Card
from usboost.multimodal.history import history_of
from usboost.multimodal.models import Pictures, build
from usboost.multimodal.splits import Rows, hold_out
from usboost.multimodal.task import TASKS, Task


@dataclass(frozen=True)
class Fitted:
    """A bundle, and scores and cost of the fit.

    Attributes
    ----------
    scores : of the validation rows: those of the task, by `names.METRICS_OF`.
    rows : (training, validation).
    best_round : the round, epoch or fit kept; seconds : of the fit.
    pictures_help : whether the validation rows are predicted better with their own pictures than with each
        other's, by more than the standard error; None of a table without pictures.
    losses : log-loss, or RMSE, of the validation rows of each model that was chosen among, if there were
        several.
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
    calibrate: bool = True,
    threshold: Literal["f1"] | float | None = None,
    refit: bool = False,
    device: str = "auto",
) -> Fitted:
    """Fit a model to 85 % of the rows, of each class, and early stop it on the others; see `splits.hold_out`.

    Without pictures the network (U) and the trees (S) both read the whole table.

    Parameters
    ----------
    name, rounds, learners : see `models.build`.
    pictures : how the model reads the table's pictures, if it has any.
    seed : of the split and of the model.
    calibrate : whether probabilities are tempered where that helps on rows that were not fitted to.
    threshold : of two classes, from which probability of the second on it is the answer: "f1" takes the
        one with the best F1 on the validation rows; by default the more probable class is the answer.
    refit : whether the model is fitted again to all rows, as far as the validation rows let it go. Scores,
        temperature, threshold and margin stay those of the first fit, which did not see the validation rows.
    device : of networks, see `usboost.learners.networks.training.pick_device`.

    Raises
    ------
    UsboostError
        If the model is unknown, or cannot be fitted to these rows.
    """
    if threshold is not None and len(table.classes) != 2:
        raise UsboostError(f"a threshold is of two classes; leave --threshold {threshold} out")
    read = (pictures or Pictures()) if table.pictures else False
    views, task = tuple(table.pictures) or ("U",), TASKS[table.task]
    model = build(
        name, pictures=read, image_views=views, seed=seed, rounds=rounds, learners=learners, task=table.task
    )
    devices = [key for key in model.get_params(deep=True) if key.split("__")[-1] == "device"]
    model.set_params(**dict.fromkeys(devices, device))
    train, held = hold_out(rows_of(table), seed)
    check_classes(table, train, held)
    labels, encoding = table.labels[held], table.fit_encoding(train)
    held_views = table.views(encoding, held)
    if callbacks:
        model.set_params(callbacks=list(callbacks))
    started = time.perf_counter()
    model.fit(table.views(encoding, train), table.labels[train], (held_views, labels))
    seconds = time.perf_counter() - started
    predicted = task.predict(model, held_views)
    helps = _pictures_help(model, task, held_views, labels, predicted) if table.pictures else None
    answers: dict[str, Any] = {}
    if table.classes:
        temperature = calibrated(predicted, labels, seed=seed) if calibrate else 1.0
        predicted = tempered(predicted, temperature)
        answers = {"temperature": temperature, "threshold": threshold}
        if threshold == "f1":
            answers["threshold"] = best_threshold(labels, predicted[:, 1])
    else:
        answers["margin"] = list(margin_of(labels - predicted))
    scores = task.score(labels, predicted)
    losses = None
    if isinstance(model, (ChosenClassifier, ChosenRegressor)):
        model, name, losses = model.chosen_, model.chosen_name_, model.losses_
    # of the fit that was scored, also where another to all rows is saved
    answers["prior"] = prior_of(table, train)
    answers["history"] = history_of(model)
    rows, best_round = (len(train), len(held)), model.best_round_
    if refit:
        everything, model = np.sort(np.concatenate([train, held])), for_all_rows(model)
        encoding = table.fit_encoding(everything)
        model.fit(table.views(encoding, everything), table.labels[everything])
        rows = (len(everything), 0)
    card = card_of(table, encoding, model=name, rows=rows, scores=scores, seed=seed, **answers)
    return Fitted(
        Bundle(model, card, encoding.texts),
        scores,
        (len(train), len(held)),
        best_round,
        seconds,
        helps,
        losses,
    )


COVERED = 0.9
"""Share of rows that an interval of a predicted number is to hold."""


def margin_of(residuals: np.ndarray) -> tuple[float, float]:
    """What to add to predictions for the ends of an interval that holds `COVERED` of new rows.

    Quantiles of the residuals of rows that were not fitted to, with the finite-sample correction of split
    conformal prediction; as the same rows stopped the fit, new rows may be held a little less often.

    Parameters
    ----------
    residuals : true minus predicted, float64 (n,).
    """
    n, tail = len(residuals), (1 - COVERED) / 2
    ranked = np.sort(residuals)
    k = int(np.floor(tail * (n + 1)))
    return float(ranked[max(k - 1, 0)]), float(ranked[min(n - k, n - 1)])


def prior_of(table: OwnTable, train: np.ndarray) -> list[float]:
    """The shares of the classes among some rows, or the rows' mean."""
    labels = table.labels[train]
    if not table.classes:
        return [float(labels.mean())]
    found: list[float] = (np.bincount(labels, minlength=len(table.classes)) / len(labels)).tolist()
    return found


def rows_of(table: OwnTable) -> Rows:
    """What decides how a table's rows may be divided."""
    codes = table.labels if table.classes else None
    return Rows(len(table), codes, table.groups, table.times, table.split)


def check_classes(table: OwnTable, train: np.ndarray, *others: np.ndarray) -> None:
    """Refuse a split in which some class is not among the rows that are fitted to.

    Raises
    ------
    UsboostError
        Naming it.
    """
    if not table.classes:
        return
    seen = np.bincount(table.labels[train], minlength=len(table.classes)) > 0
    if not seen.all():
        name = table.classes[int(seen.argmin())]
        raise UsboostError(
            f"{table.file}: class {name!r} is not among the rows that are fitted to, as they are divided; "
            f"divide them in another way, or leave the class out with --missing {name!r}"
        )


def _pictures_help(model: Any, task: Task, views: Views, labels: np.ndarray, given: np.ndarray) -> bool:
    """Whether rows are predicted better with their own pictures than with those of others."""
    cycle = np.random.default_rng(0).permutation(len(labels))
    order = np.empty_like(cycle)
    order[cycle] = np.roll(cycle, 1)  # no row keeps its own
    for name in views.names:
        if name != "S":
            views = views.with_view(name, views[name][order])
    gains = task.losses(labels, task.predict(model, views)) - task.losses(labels, given)
    return bool(gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)))


def card_of(
    table: OwnTable,
    encoding: Encoding,
    *,
    model: str,
    rows: tuple[int, int],
    scores: Mapping[str, float],
    seed: int,
    **answers: Any,
) -> Card:
    """What a bundle says of a model that was fitted to a table.

    Parameters
    ----------
    encoding : of the table's columns.
    model : its name; rows : (training, validation); scores : of the latter; seed : of the fit.
    answers : further fields of the card: temperature, threshold, margin, prior, history.
    """
    others = (table.roles.group, table.roles.time, table.roles.weight, table.roles.split)
    card = {
        "model": model,
        "task": table.task,
        "classes": table.classes,
        "label": table.roles.label,
        "label_kind": table.label_kind if table.classes else "float",
        **answers,
        "columns": table.kinds,
        "dropped": [*table.roles.dropped, *table.left_out, *filter(None, others)],
        "images": _pictures(table),
        "imputation": encoding.imputation,
        "dates": {name: each.to_dict() for name, each in encoding.dates.items()},
        "texts_sha256": text_file.digest_of(encoding.texts),
        "formats": {name: plain_form(form) for name, form in table.formats.items()},
        "missing": list(table.roles.missing),
        "encoders": {view: encoder.to_dict() for view, encoder in encoding.encoders.items()},
        "rows": {"train": rows[0], "val": rows[1]},
        "scores": {key: value if math.isfinite(value) else None for key, value in scores.items()},
        "seed": seed,
        "table": getattr(getattr(table.file, "path", None), "name", str(table.file)),
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
