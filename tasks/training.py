"""The steps of training: read what is prepared, fit one seed, score it, write the results."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import cross_validation, curves, early, inspection, links, page, run_page, table_fit, tracking
from tasks import scores as scores_of
from tasks.features import features_folder, read_features
from tasks.folders import CURVES, checkpoints_folder, prepared_folder
from tasks.identity import Planned, plan
from tasks.origin import made_by
from tasks.settings import Settings
from usboost.boosting.callbacks import ShowRounds
from usboost.boosting.checkpoint import Checkpoint
from usboost.data.views import Views
from usboost.datasets.prepared import store
from usboost.datasets.prepared.card import is_own
from usboost.files import replacing
from usboost.models.bfv_network import BFV
from usboost.models.earlyboost import EarlyBoostClassifier
from usboost.models.gbm_files import load_gbm
from usboost.multimodal.fit_built import margin_of
from usboost.multimodal.prepared import bundle_of, example_of

SPLITS = ("train", "val", "test")


@task(cache_policy=NO_CACHE, task_run_name="{dataset}-{model}-seed{seed}")
def fit_seed(dataset: str, model: str, seed: int, settings: Settings, out: Path) -> dict[str, Any]:
    """Fit one model with one seed inside its MLflow run; leaves ``seed-<n>.json`` and its trace in `out`.

    Raises
    ------
    UsboostError
        If data or parameters do not allow it; the MLflow run is then FAILED.
    """
    planned = plan(dataset, model, seed, settings)
    kept = checkpoint(planned)
    try:
        with seed_run(planned, kept=kept.folder / "mlflow.json") as run_id:
            return fit(planned, out, run_id, kept)
    except BaseException:
        if not kept.began():
            kept.clear()
        raise


def checkpoint(planned: Planned) -> Checkpoint:
    """Where the rounds of a fit are kept until its results are written.

    A checkpoint of other data, parameters or code is not used.
    """
    folder = checkpoints_folder(planned.dataset, planned.model) / f"seed-{planned.seed}"
    kept = Checkpoint(folder, planned.identity)
    if kept.of_another_fit():
        print(f"{kept.folder} is of other data, parameters or code; starting again", file=sys.stderr)
        tracking.supersede_kept(kept.folder / "mlflow.json")
        kept.clear()
    return kept


@contextmanager
def seed_run(
    planned: Planned, tags: Mapping[str, str] | None = None, kept: Path | None = None
) -> Iterator[str]:
    """The MLflow run of one fit, tagged with where its inputs come from (and `tags`); its id.

    If the file `kept` names a run, it is resumed.
    """
    folder = prepared_folder(planned.dataset)
    card = store.read_card(folder)
    given = run_page.tags(planned, card["profile"], tags or {})
    with tracking.tracked_run(f"usboost-{card['profile']}", planned.name, given, kept) as run_id:
        tracking.log_datasets(run_id, card, folder)
        links.link_run(run_id, f"{planned.dataset}/{planned.model}/seed-{planned.seed}", given)
        yield run_id


def fit(planned: Planned, out: Path, run_id: str, kept: Checkpoint | None = None) -> dict[str, Any]:
    """Fit and score inside the MLflow run `run_id`; leaves ``seed-<n>.json`` and its trace in `out`.

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
    if is_own(store.read_card(prepared_folder(dataset))):
        return table_fit.fit_table(planned, out, run_id, kept)
    splits = {split: store.read(prepared_folder(dataset), split) for split in SPLITS}
    gbm_scores: dict[str, Any] = {}
    if planned.entry.needs_features:
        splits, gbm_scores = _with_features(dataset, seed, splits)
        estimator.set_params(gbm=load_gbm(features_folder(dataset) / f"seed-{seed}" / "gbm"))
    tracking.log_estimator(run_id, estimator, dataset=dataset, model=planned.model, seed=seed)
    rows = ", ".join(f"{len(y):,} {split}" for split, (_, y) in splits.items())
    page.say(f"{planned.entry.title} on {dataset}, seed {seed}; rows: {rows}")
    logger = tracking.MLflowCallback(run_id)
    estimator.set_params(callbacks=[ShowRounds(planned.name), page.ShowProgress(planned.name), logger])
    if kept is not None and "checkpoint" in estimator.get_params(deep=False):
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
        inspection.keep(estimator, dataset, splits["val"], predicted["val"][1], run_id, out)
    record = {
        "seed": seed,
        "rounds": len(estimator.history_),
        "best_round": estimator.best_round_,
        "fit_seconds": fit_seconds,
        "scores": scores,
        "made": made_by(run_id),
        **({"margin": margin} if margin else {}),
        **gbm_scores,
    }
    scores_of.test_rows(predicted, seed).to_parquet(out / f"rows-{seed}.parquet", index=False)
    (out / f"seed-{seed}.json").write_text(json.dumps(record))
    tracking.history_frame(estimator.history_, seed).to_parquet(out / f"seed-{seed}.parquet", index=False)
    return record


def _with_features(dataset: str, seed: int, splits: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = features_folder(dataset) / f"seed-{seed}"
    out: dict[str, tuple[Views, Any]] = {}
    for split, (views, y) in splits.items():
        out[split] = (views.with_view(BFV, read_features(folder, split, len(y))), y)
    return out, {"gbm": json.loads((folder / "scores.json").read_text())}


@task(cache_policy=NO_CACHE, task_run_name="{dataset}-{model}-results")
def write_results(
    dataset: str, model: str, seeds: list[int], settings: Settings, partial: Path, folder: Path
) -> Path:
    """Gather the seeds' records, traces and test rows into files of the cell.

    These are ``scores.json``, ``trace.parquet`` and, of fits that have test rows of their own,
    ``rows.parquet`` (see `tasks.scores.test_rows`).
    A summary for DVC goes to `CURVES`.
    """
    records = [json.loads((partial / f"seed-{seed}.json").read_text()) for seed in seeds]
    traces = [pd.read_parquet(partial / f"seed-{seed}.parquet") for seed in seeds]
    profile = store.read_card(prepared_folder(dataset))["profile"]
    document = {"dataset": dataset, "model": model, "profile": profile, "seeds": records}
    with replacing(folder) as fresh:
        (fresh / "scores.json").write_text(json.dumps(document, indent=1) + "\n")
        trace = pd.concat(traces, ignore_index=True)
        trace.to_parquet(fresh / "trace.parquet", index=False)
        if rows := sorted(partial.glob("rows-*.parquet")):
            pd.concat(map(pd.read_parquet, rows)).to_parquet(fresh / "rows.parquet", index=False)
        if (partial / inspection.FOLDER).is_dir():
            shutil.copytree(partial / inspection.FOLDER, fresh / inspection.FOLDER)
    curves.write(CURVES, f"{dataset}/{model}", settings.model(model).kind, records, trace)
    for seed in seeds:
        Checkpoint(checkpoints_folder(dataset, model) / f"seed-{seed}").clear()
    return folder
