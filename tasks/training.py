"""The steps of training: read what is prepared, fit one seed, score it, write the results."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import cross_validation, early, tracking
from tasks.features import features_folder, read_features
from tasks.folders import prepared_folder
from usboost import metrics, models
from usboost.boosted_features import BFV
from usboost.callbacks import Progress
from usboost.datasets import store
from usboost.earlyboost import EarlyBoostClassifier
from usboost.files import replacing
from usboost.persistence import load_gbm, save
from usboost.settings import Settings
from usboost.views import Views

SPLITS = ("train", "val", "test")


@task(cache_policy=NO_CACHE, task_run_name="{dataset}-{model}-seed{seed}")
def fit_seed(dataset: str, model: str, seed: int, settings: Settings, out: Path) -> dict[str, Any]:
    """Fit one model with one seed inside its MLflow run; leaves ``seed-<n>.json`` and its trace in `out`.

    Raises
    ------
    UsboostError
        If data or parameters do not allow it; the MLflow run is then FAILED.
    """
    inputs = {"prepared": prepared_folder(dataset)}
    if model == "bfv_dnn":
        inputs["features"] = features_folder(dataset)
    tags = tracking.lineage(f"train@{dataset}-{model}", inputs)
    profile = store.read_card(prepared_folder(dataset))["profile"]
    tags |= {"dataset": dataset, "model": model, "seed": str(seed), "profile": profile}
    with tracking.tracked_run(f"usboost-{profile}", f"{dataset} {model} seed {seed}", tags) as run_id:
        record = _fit(dataset, model, seed, settings, out, run_id)
    return record


def _fit(dataset: str, model: str, seed: int, settings: Settings, out: Path, run_id: str) -> dict[str, Any]:
    if store.read_card(prepared_folder(dataset)).get("folds"):
        return cross_validation.fit_folds(dataset, model, seed, settings, out, run_id)
    splits = {split: store.read(prepared_folder(dataset), split) for split in SPLITS}
    gbm_scores: dict[str, Any] = {}
    if model == "bfv_dnn":
        splits, gbm_scores = _with_features(dataset, seed, splits)
        estimator = models.build(
            model, dataset, settings, seed, gbm=load_gbm(features_folder(dataset) / f"seed-{seed}" / "gbm")
        )
    else:
        estimator = models.build(model, dataset, settings, seed)
    tracking.log_estimator(run_id, estimator, dataset=dataset, model=model, seed=seed)
    logger = tracking.MLflowCallback(run_id)
    estimator.set_params(callbacks=[Progress(f"{dataset} {model} seed {seed}"), logger])
    started = time.perf_counter()
    estimator.fit(*splits["train"], validation=splits["val"])
    fit_seconds = time.perf_counter() - started - logger.seconds
    scores = {
        split: metrics.score(y, estimator.predict_proba(views))
        for split, (views, y) in splits.items()
        if split != "train"
    }
    if isinstance(estimator, EarlyBoostClassifier):
        early.add_scores(estimator, settings, splits, scores)
    tracking.log_scores(
        run_id,
        scores,
        best_round=estimator.best_round_,
        rounds=len(estimator.history_),
        fit_seconds=fit_seconds,
        logging_seconds=logger.seconds,
    )
    with tempfile.TemporaryDirectory() as folder:
        save(estimator, Path(folder) / "model")
        card = store.read_card(prepared_folder(dataset))
        tracking.log_model(run_id, Path(folder) / "model", card, _example(dataset, card))
    record = {
        "seed": seed,
        "rounds": len(estimator.history_),
        "best_round": estimator.best_round_,
        "fit_seconds": fit_seconds,
        "scores": scores,
        **gbm_scores,
    }
    (out / f"seed-{seed}.json").write_text(json.dumps(record))
    tracking.history_frame(estimator.history_, seed).to_parquet(out / f"seed-{seed}.parquet", index=False)
    return record


def _example(dataset: str, card: dict[str, Any]) -> pd.DataFrame:
    """Two raw validation rows, as a client sends them."""
    rows = store.read_frame(prepared_folder(dataset), "val").head(2)
    if "images" not in card:
        return tracking.raw_rows(rows, card)
    shard = card["images"]["splits"]["val"]["shards"][0]["file"]
    table = pq.read_table(prepared_folder(dataset) / "images" / "val" / shard, columns=["image"])
    return tracking.raw_rows(rows, card, table["image"].slice(0, len(rows)).to_pylist())


def _with_features(dataset: str, seed: int, splits: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = features_folder(dataset) / f"seed-{seed}"
    out: dict[str, tuple[Views, Any]] = {}
    for split, (views, y) in splits.items():
        out[split] = (views.with_view(BFV, read_features(folder, split, len(y))), y)
    return out, {"gbm": json.loads((folder / "scores.json").read_text())}


@task(cache_policy=NO_CACHE)
def write_results(dataset: str, model: str, seeds: list[int], partial: Path, folder: Path) -> Path:
    """Gather the seeds' records and traces into ``scores.json`` and ``trace.parquet`` of the cell."""
    records = [json.loads((partial / f"seed-{seed}.json").read_text()) for seed in seeds]
    traces = [pd.read_parquet(partial / f"seed-{seed}.parquet") for seed in seeds]
    profile = store.read_card(prepared_folder(dataset))["profile"]
    document = {"dataset": dataset, "model": model, "profile": profile, "seeds": records}
    with replacing(folder) as fresh:
        (fresh / "scores.json").write_text(json.dumps(document, indent=1) + "\n")
        pd.concat(traces, ignore_index=True).to_parquet(fresh / "trace.parquet", index=False)
    return folder
