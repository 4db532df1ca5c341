"""One fit: read what is prepared, fit, score, log."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tasks import tracking
from tasks.fits import cross_validation, early
from tasks.fits import fit_table as table_fit
from tasks.fits import scores as scores_of
from tasks.fits.features import read_features
from tasks.fits.identity import Planned
from tasks.fits.results import RECORD, ROWS, TRACE
from tasks.folders import features_folder, prepared_folder
from tasks.pages import flow_page as page
from tasks.pages import links, run_page
from tasks.pages.origin import made_by
from usboost.boosting.checkpoint import Checkpoint
from usboost.data.views import Views
from usboost.datasets.prepared import store
from usboost.datasets.prepared.card import is_user_table
from usboost.evaluation.intervals import margin_of
from usboost.models.boosted.earlyboost import EarlyBoostClassifier
from usboost.models.networks.bfv_network import BFV
from usboost.models.networks.gbm_files import load_gbm
from usboost.multimodal.fit.prepared import bundle_of, example_of

SPLITS = ("train", "val", "test")


@contextmanager
def seed_run(planned: Planned, tags: Mapping[str, str], kept: Path) -> Iterator[str]:
    """The MLflow run of one fit, tagged with where its inputs come from, and `tags`; its id.

    If the file `kept` names a run, it is resumed.
    """
    folder = prepared_folder(planned.dataset)
    card = store.read_card(folder)
    given = run_page.tags(planned, card["profile"], tags)
    with tracking.tracked_run(f"usboost-{card['profile']}", planned.name, given, kept) as run_id:
        tracking.log_datasets(run_id, card, folder)
        links.link_run(run_id, f"{planned.dataset}/{planned.model}/seed-{planned.seed}", given)
        yield run_id


def fit(planned: Planned, out: Path, run_id: str, kept: Checkpoint) -> dict[str, Any]:
    """Fit and score inside the MLflow run `run_id`; its record. `out` gets what `tasks.fits.results` reads.

    Rounds are written to the checkpoint `kept` and resumed from it.
    """
    dataset, seed, estimator = planned.dataset, planned.seed, planned.estimator
    if store.read_card(prepared_folder(dataset)).get("folds"):
        record = cross_validation.fit_folds(planned, out, run_id)
        page.say(
            f"{planned.entry.title} on folds of {dataset}, repetition {seed}, {record['fit_seconds']:.1f} s"
        )
        page.say(page.scores_in_words(record["scores"]))
        return record
    if is_user_table(store.read_card(prepared_folder(dataset))):
        return table_fit.fit_table(planned, out, run_id, kept)
    splits = {split: store.read(prepared_folder(dataset), split) for split in SPLITS}
    gbm_scores: dict[str, Any] = {}
    if planned.entry.needs_features:
        splits, gbm_scores = _with_features(dataset, seed, splits)
        estimator.set_params(gbm=load_gbm(features_folder(dataset, seed) / "gbm"))
    tracking.log_estimator(run_id, estimator, dataset=dataset, model=planned.model, seed=seed)
    rows = ", ".join(f"{len(y):,} {split}" for split, (_, y) in splits.items())
    page.say(f"{planned.entry.title} on {dataset}, seed {seed}; rows: {rows}")
    logger = tracking.MLflowCallback(run_id)
    estimator.set_params(callbacks=[page.ShowProgress(planned.name), logger])
    if "checkpoint" in estimator.get_params(deep=False):
        estimator.set_params(checkpoint=kept)
    started = time.perf_counter()
    estimator.fit(*splits["train"], validation=splits["val"])
    fit_seconds = time.perf_counter() - started - logger.seconds + logger.earlier
    predicted = scores_of.predict(planned.task, estimator, splits)
    scores = scores_of.score(planned.task, predicted)
    if isinstance(estimator, EarlyBoostClassifier):
        early.add_scores(estimator, planned.settings, splits, scores)
    page.say(f"best round {estimator.best_round_} of {len(estimator.history_)}, {fit_seconds:.1f} s")
    page.say(page.scores_in_words(scores))
    prepared = store.read_card(prepared_folder(dataset))
    margin = None if prepared["classes"] else margin_of(np.subtract(*predicted["val"]))
    with tempfile.TemporaryDirectory() as folder, tracking.once(run_id, "model_logged") as first:
        if first:
            bundle = bundle_of(
                estimator,
                prepared,
                name=planned.model,
                seed=seed,
                scores=scores["val"],
                margin=margin,
            )
            bundle.save(Path(folder) / "bundle")
            example = example_of(bundle.card, prepared_folder(dataset))
            of = {"dataset": dataset, "model": planned.model, "seed": str(seed)}
            tracking.log_model(run_id, Path(folder) / "bundle", bundle.card, example, planned.name, of)
    with tracking.once(run_id, "scored") as first:
        if first:
            tracking.log_scores(
                run_id,
                scores,
                tracking.datasets(prepared),
                best_round=estimator.best_round_,
                rounds=len(estimator.history_),
                fit_seconds=fit_seconds,
                logging_seconds=logger.seconds,
            )
    if seed == 0:
        from tasks.pages import inspection  # here, because matplotlib takes long to import

        inspection.keep(estimator, dataset, splits["val"], predicted["val"][1], out)
    record = {
        "seed": seed,
        "fingerprint": planned.fingerprint,
        "rounds": len(estimator.history_),
        "best_round": estimator.best_round_,
        "fit_seconds": fit_seconds,
        "scores": scores,
        "made": made_by(run_id),
        **({"margin": margin} if margin else {}),
        **gbm_scores,
    }
    scores_of.test_rows(predicted, seed).to_parquet(out / ROWS, index=False)
    (out / RECORD).write_text(json.dumps(record))
    tracking.history_frame(estimator.history_, seed).to_parquet(out / TRACE, index=False)
    return record


def _with_features(dataset: str, seed: int, splits: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = features_folder(dataset, seed)
    out: dict[str, tuple[Views, Any]] = {}
    for split, (views, y) in splits.items():
        out[split] = (views.with_view(BFV, read_features(folder, split, len(y))), y)
    return out, {"gbm": json.loads((folder / "scores.json").read_text())}
