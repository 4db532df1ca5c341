"""Boosted feature vectors: a GBM per seed, its features as Parquet, its scores."""

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import flow_page as page
from tasks.fits import models
from tasks.folders import features_folder, prepared_folder
from tasks.machine import locked
from tasks.settings import Settings
from usboost.data.table import CodedTable
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation.statistics import deviation, mean
from usboost.evaluation.task import TASKS
from usboost.files import replacing
from usboost.files.arrays import parts
from usboost.models.methods.boosted_features import BoostedFeatures, save_gbm

ROWS = 32_768


@task(cache_policy=NO_CACHE, task_run_name="{dataset}/features/seed-{seed}")
def fit_features(dataset: str, seed: int, settings: Settings, fingerprint: str) -> None:
    """Make the BFVs of a dataset unless those that are there come from the same.

    It holds the GBM in ``gbm/``, its features in ``<split>.parquet``, its scores alone in ``scores.json``,
    and the `fingerprint` (see `tasks.fits.models.features_fingerprint`). Others that want the same wait.
    """
    folder = features_folder(dataset, seed)
    stored = folder / "fingerprint"
    with locked(folder.with_suffix(".lock"), wait=True):
        if not (stored.is_file() and stored.read_text() == fingerprint):
            with replacing(folder) as fresh:
                scores = _fit(models.features_learner(dataset, seed, settings), dataset, settings, fresh)
                (fresh / stored.name).write_text(fingerprint)
            page.log(f"{dataset}, seed {seed}, the GBM alone: {page.scores_in_words(scores)}")
            rows = [{"split": split, **values} for split, values in scores.items()]
            about = f"The GBM on {dataset} whose features these are"
            page.show_table(page.key("gbm", dataset, "seed", seed), rows, about)


def _fit(learner: BoostedFeatures, dataset: str, settings: Settings, out: Path) -> dict[str, Any]:
    """Write ``gbm/``, ``<split>.parquet`` and ``scores.json``."""
    folder = prepared_folder(dataset)
    task = TASKS[store.task_of(store.read_card(folder))]
    views, y = store.read(folder, "train")
    centre, scale = 0.0, 1.0
    if task.name == "regression":  # the GBM is of targets that are standardised as the network's are
        centre, scale = mean(y), deviation(y)
        y = (y - centre) / scale
    gbm = learner.fit(views["S"], y).gbm_
    save_gbm(gbm, out / "gbm")
    blocks = (gbm.features(views["S"], rows) for rows in parts(len(y), ROWS))
    if settings.features.out_of_fold:
        values = np.empty((len(y), gbm.n_features), dtype=np.float32)
        for rows, block in learner.out_of_fold(views["S"], y, settings.features.folds):
            values[rows] = block
        blocks = (values[rows] for rows in parts(len(y), ROWS))
    write_features(blocks, out / "train.parquet")
    scores = {}
    for split in ("val", "test"):
        views, y = store.read(folder, split)
        blocks = (gbm.features(views["S"], rows) for rows in parts(len(y), ROWS))
        write_features(blocks, out / f"{split}.parquet")
        if task.name == "regression":
            alone = centre + scale * gbm.raw_score(views["S"])[:, 0]
        else:
            alone = gbm.probabilities(views["S"])
        scores[split] = task.score(y, alone)
    (out / "scores.json").write_text(json.dumps(scores))
    return scores


def write_features(blocks: Iterable[np.ndarray], path: Path) -> None:
    """Write blocks of a BFV matrix, float32 (rows, n_features), as one Parquet file.

    A column has as many values as its tree has leaves, so dictionaries shrink it to a few bits a row.
    """
    tables = (pa.table({f"{j}": column for j, column in enumerate(block.T)}) for block in blocks)
    first = next(tables)
    with pq.ParquetWriter(path, first.schema, compression="zstd", write_statistics=False) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def read_features(folder: Path, split: str, rows: int) -> CodedTable:
    """Read the BFVs of one split, of `rows` rows.

    Raises `UsboostError` if the file is missing or damaged, or has another number of rows than the split.
    """
    path = folder / f"{split}.parquet"
    try:
        with pq.ParquetFile(path) as file:
            there, names = file.metadata.num_rows, file.schema_arrow.names
            # column by column: all numbers at once would take many times the memory of their codes
            coded = CodedTable.of(file.read(columns=[name]).column(0).to_numpy() for name in names)
    except FileNotFoundError:
        raise UsboostError(f"{path} is missing; fit again") from None
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise UsboostError(
            f"{path} is damaged or truncated ({error}); remove its folder and fit again"
        ) from error
    if there != rows:
        raise UsboostError(
            f"{path} has {there} rows but the split {split!r} {rows}; remove its folder and fit again"
        )
    if not np.isfinite(coded.values).all():
        raise UsboostError(f"{path} holds values that are not finite; remove its folder and fit again")
    return coded
