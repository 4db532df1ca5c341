"""One fit: read what is prepared, fit, score, log."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tasks import tracking
from tasks.fits import cross_validation, early
from tasks.fits import scores as scores_of
from tasks.fits.features import read_features
from tasks.fits.identity import Planned
from tasks.fits.results import RECORD, ROWS, TRACE
from tasks.folders import features_folder, prepared_folder
from tasks.pages import flow_page as page
from tasks.pages import links
from usboost.boosting.checkpoint import Checkpoint
from usboost.data.views import Views
from usboost.datasets import store
from usboost.datasets.store import is_user_table
from usboost.evaluation.intervals import margin_of
from usboost.fit.bundle import Bundle, bundle_of, example_of
from usboost.fit.table_fit import TableFit
from usboost.models.methods.bfv_network import BFV
from usboost.models.methods.boosted_features import load_gbm
from usboost.models.methods.earlyboost import EarlyBoostClassifier
from usboost.table.prepared import SPLITS, read_prepared


@contextmanager
def seed_run(planned: Planned, tags: Mapping[str, str], kept: Path) -> Iterator[str]:
    """The MLflow run of one fit, tagged with where its inputs come from, and `tags`; its id.

    If the file `kept` names a run, it is resumed.
    """
    folder = prepared_folder(planned.dataset)
    card = store.read_card(folder)
    given = links.tags(planned, card["profile"], tags)
    with tracking.tracked_run(f"usboost-{card['profile']}", planned.name, given, kept) as run_id:
        tracking.log_datasets(run_id, card, folder)
        links.link_run(run_id, f"{planned.dataset}/{planned.model}/seed-{planned.seed}", given)
        yield run_id


def fit(planned: Planned, out: Path, run_id: str, kept: Checkpoint) -> dict[str, Any]:
    """Fit and score inside the MLflow run `run_id`; its record. `out` gets what `tasks.fits.results` reads.

    Rounds are written to the checkpoint `kept` and resumed from it.
    """
    card = store.read_card(prepared_folder(planned.dataset))
    if card.get("folds"):
        return _fit_folds(planned, out, run_id)
    if is_user_table(card):
        return _fit_table(planned, out, run_id, kept)
    return _fit_splits(planned, out, run_id, kept, card)


def _fit_folds(planned: Planned, out: Path, run_id: str) -> dict[str, Any]:
    found = cross_validation.fit_folds(planned, run_id)
    rounds, scores = found.rounds, found.scores
    tracking.log_scores(run_id, scores, rounds=rounds, fit_seconds=found.seconds, folds=len(found.folds))
    record = _record(planned, run_id, rounds, rounds, found.seconds, scores)
    _write(out, record, found.trace)
    tracking.log_folds(run_id, found.trace, found.folds)
    what = f"{planned.entry.title} on folds of {planned.dataset}, repetition {planned.seed}"
    page.say(f"{what}, {found.seconds:.1f} s")
    page.say(page.scores_in_words(scores))
    return record


def _fit_splits(
    planned: Planned, out: Path, run_id: str, kept: Checkpoint, card: dict[str, Any]
) -> dict[str, Any]:
    dataset, seed, estimator = planned.dataset, planned.seed, planned.estimator
    splits = {split: store.read(prepared_folder(dataset), split) for split in SPLITS}
    gbm_scores: dict[str, Any] = {}
    if planned.entry.needs_features:
        splits, gbm_scores = _with_features(dataset, seed, splits)
        estimator.set_params(gbm=load_gbm(features_folder(dataset, seed) / "gbm"))
    logger = _begin(planned, run_id, {split: len(y) for split, (_, y) in splits.items()})
    estimator.set_params(callbacks=[page.ShowProgress(planned.name), logger])
    if "checkpoint" in estimator.get_params(deep=False):
        estimator.set_params(checkpoint=kept)
    started = time.perf_counter()
    estimator.fit(*splits["train"], validation=splits["val"])
    seconds = time.perf_counter() - started - logger.seconds + logger.earlier
    predicted = scores_of.predict(planned.task, estimator, splits)
    scores = scores_of.score(planned.task, predicted)
    if isinstance(estimator, EarlyBoostClassifier):
        early.add_scores(estimator, planned.settings, splits, scores)
    margin = None if card["classes"] else margin_of(np.subtract(*predicted["val"]))
    fitted = _Fitted(estimator, estimator.best_round_, seconds, *splits["val"], predicted, scores, margin)

    def bundle() -> Bundle:
        return bundle_of(estimator, card, name=planned.model, seed=seed, scores=scores["val"], margin=margin)

    return _finish(planned, out, run_id, logger, fitted, bundle, gbm_scores)


def _fit_table(planned: Planned, out: Path, run_id: str, kept: Checkpoint) -> dict[str, Any]:
    """A fit to a user's table: that of `usboost fit`, watched, and scored on the test rows.

    What is logged as the model, and scored on the test rows, is the bundle that `usboost fit` saves, fitted
    to training and validation rows. Its rounds, the validation scores and the inspection are of the fit
    before, which saw no validation row. Rounds of both are written to the checkpoint `kept` and resumed from
    it.
    """
    table = read_prepared(prepared_folder(planned.dataset))
    test = np.flatnonzero(table.split == "test")
    rows = {split: int(np.count_nonzero(table.split == split)) for split in SPLITS}
    logger = _begin(planned, run_id, rows)
    fit = TableFit(
        table,
        planned.estimator,
        planned.model,
        seed=planned.seed,
        callbacks=[page.ShowProgress(planned.name), logger],
        callbacks_of_all=(),
        keep=_Kept(kept),
    ).run()
    first, bundle = fit.first, fit.bundle
    predicted = {
        "val": (first.labels, first.predicted),
        "test": (table.labels[test], bundle.predicted_of(table, test)),
    }
    scores = scores_of.score(planned.task, predicted)
    seconds, margin = fit.seconds - logger.seconds + logger.earlier, bundle.card.margin
    fitted = _Fitted(
        first.model, fit.best_round, seconds, first.views, first.labels, predicted, scores, margin
    )
    return _finish(planned, out, run_id, logger, fitted, lambda: bundle, {})


class _Kept:
    """The rounds of the first fit in a checkpoint, those of the fit to all rows in a folder in it."""

    def __init__(self, kept: Checkpoint) -> None:
        self._places = [kept, Checkpoint(kept.folder / "all-rows", kept.identity)]

    def keep(self, model: Any, *samples: tuple[Any, ...]) -> None:
        """See `usboost.fit.record.Keep`."""
        place = self._places.pop(0)
        if "checkpoint" in model.get_params(deep=False):
            model.set_params(checkpoint=place)


@dataclass(frozen=True)
class _Fitted:
    """A fitted model, what its fit took, and what it predicts.

    Attributes
    ----------
    views, labels : of the validation rows.
    predicted, scores : by split, "val" and "test".
    margin : what is added to a predicted number for the ends of its interval.
    """

    model: Any
    best_round: int
    seconds: float
    views: Views
    labels: np.ndarray
    predicted: dict[str, Any]
    scores: scores_of.Scores
    margin: Sequence[float] | None


def _begin(planned: Planned, run_id: str, rows: Mapping[str, int]) -> tracking.MLflowCallback:
    """Log what is to be fitted, and say it, with the number of rows of each split; what logs the rounds."""
    of = {"dataset": planned.dataset, "model": planned.model, "seed": planned.seed}
    tracking.log_estimator(run_id, planned.estimator, **of)
    counts = ", ".join(f"{n:,} {split}" for split, n in rows.items())
    page.say(f"{planned.entry.title} on {planned.dataset}, seed {planned.seed}; rows: {counts}")
    return tracking.MLflowCallback(run_id)


def _finish(
    planned: Planned,
    out: Path,
    run_id: str,
    logger: tracking.MLflowCallback,
    fitted: _Fitted,
    bundle_of_it: Callable[[], Bundle],
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Log the model and its scores, once each, and write what the report reads; the record, with `more`."""
    folder, scores, rounds = prepared_folder(planned.dataset), fitted.scores, len(fitted.model.history_)
    page.say(f"best round {fitted.best_round} of {rounds}, {fitted.seconds:.1f} s")
    page.say(page.scores_in_words(scores))
    with tempfile.TemporaryDirectory() as place, tracking.once(run_id, "model_logged") as first:
        if first:
            bundle = bundle_of_it()
            bundle.save(Path(place) / "bundle")
            example = example_of(bundle.card, folder)
            of = {"dataset": planned.dataset, "model": planned.model, "seed": str(planned.seed)}
            tracking.log_model(run_id, Path(place) / "bundle", bundle.card, example, planned.name, of)
    with tracking.once(run_id, "scored") as first:
        if first:
            tracking.log_scores(
                run_id,
                scores,
                tracking.datasets(store.read_card(folder)),
                best_round=fitted.best_round,
                rounds=rounds,
                fit_seconds=fitted.seconds,
                logging_seconds=logger.seconds,
            )
    if planned.seed == 0:
        from tasks.pages import inspection  # here, because matplotlib takes long to import

        held = fitted.views, fitted.labels
        inspection.keep(fitted.model, planned.dataset, held, fitted.predicted["val"][1], out)
    record = _record(planned, run_id, rounds, fitted.best_round, fitted.seconds, scores)
    record |= {**({"margin": fitted.margin} if fitted.margin else {}), **more}
    scores_of.test_rows(fitted.predicted, planned.seed).to_parquet(out / ROWS, index=False)
    _write(out, record, tracking.history_frame(fitted.model.history_, planned.seed))
    return record


def _record(
    planned: Planned, run_id: str, rounds: int, best_round: int, seconds: float, scores: scores_of.Scores
) -> dict[str, Any]:
    return {
        "seed": planned.seed,
        "fingerprint": planned.fingerprint,
        "rounds": rounds,
        "best_round": best_round,
        "fit_seconds": seconds,
        "scores": scores,
        "made": tracking.made_by(run_id),
    }


def _write(out: Path, record: Mapping[str, Any], trace: pd.DataFrame) -> None:
    (out / RECORD).write_text(json.dumps(record))
    trace.to_parquet(out / TRACE, index=False)


def _with_features(dataset: str, seed: int, splits: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = features_folder(dataset, seed)
    out: dict[str, tuple[Views, Any]] = {}
    for split, (views, y) in splits.items():
        out[split] = (views.with_view(BFV, read_features(folder, split, len(y))), y)
    return out, {"gbm": json.loads((folder / "scores.json").read_text())}
