"""A champion's requests against its training rows: what the flow `monitor` shows and logs."""

import tempfile
from math import isfinite
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities.model_registry import ModelVersion
from mlflow.tracking import MlflowClient

from tasks import tracking
from tasks.folders import prepared_folder
from tasks.pages import mlflow_pages
from tasks.serving.logged_model import ALIAS, champion, registered_name
from usboost.datasets import image_store, store
from usboost.datasets.sources import sha256
from usboost.errors import UsboostError
from usboost.fit import drift
from usboost.fit.bundle import raw_rows
from usboost.fit.card import Card


def compare(dataset: str, requests: Path, psi: float, share: float) -> tuple[ModelVersion, str, pd.DataFrame]:
    """Compare a table of requests with the training rows of a dataset's champion, in an MLflow run.

    Returns the version, the run's id, and what `usboost.fit.drift.compare` does.

    Raises `UsboostError` if there is no champion, it was fitted to other data than those prepared here, or
    the table cannot be compared.
    """
    folder = prepared_folder(dataset)
    prepared = store.read_card(folder)
    name, version = registered_name(dataset), champion(dataset)
    if version is None:
        raise UsboostError(f"MLflow has no {name}@{ALIAS}; run `python -m flows.promote {dataset}` first")
    if version.tags.get("data") != mlflow_pages.digest(folder):
        raise UsboostError(
            f"version {version.version} of {name} was fitted to other data than those in {folder}; "
            "bring that back (`dvc checkout` of its commit), or promote a fit of these data"
        )
    with tempfile.TemporaryDirectory() as folder_:
        uri = f"models:/{version.name}/{version.version}/artifacts/bundle/card.json"
        file = mlflow.artifacts.download_artifacts(uri, dst_path=folder_)
        card = Card.model_validate_json(Path(file).read_bytes())
    images = [] if card.images is None else card.images.columns
    seen = ("train",) if card.rows["val"] else ("train", "val")  # a fit to all rows has no validation rows
    train = raw_rows(card, pd.concat([store.read_frame(folder, split) for split in seen], ignore_index=True))
    about: dict[str, Any] = prepared.get("images") or {}
    columns_of = zip(*(image_store.parts(split, about) for split in seen), strict=True) if about else ()
    without = {  # rows without an image
        image: sum(shard.get("absent", 0) for part in parts for shard in about["splits"][part]["shards"])
        for image, parts in zip(images, columns_of, strict=True)
    }
    tags = mlflow_pages.lineage({"prepared": folder})
    tags |= {"dataset": dataset, "registered_model": name, "version": str(version.version)}
    with tracking.tracked_run(f"{name}-monitor", requests.name, tags) as run_id:
        columns = drift.compare(card, train, without, requests, psi=psi, share=share)
        MlflowClient().set_tag(run_id, "requests", f"{requests.name} sha256:{sha256(requests)}")
        values = {"drifted_columns": float((columns["drift"] != "").sum()), "columns": float(len(columns))}
        for row in columns.to_dict("records"):
            for key in ("psi", "ks", "missing", "unseen"):
                values[mlflow_pages.key_of(f"{key}/{row['column']}")] = float(row[key])
        tracking.log_metrics(run_id, (), **{key: each for key, each in values.items() if isfinite(each)})
        tracking.log_parameters(run_id, {"psi_limit": psi, "share_limit": share})
        MlflowClient().log_text(run_id, columns.to_csv(index=False), "drift.csv")
    return version, run_id, columns
