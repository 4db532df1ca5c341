"""A champion's requests against its training rows: what the flow `monitor` shows and logs."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities import Metric
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tasks import tracking
from tasks.folders import prepared_folder
from tasks.serving.promotion import ALIAS, registered_name
from usboost.datasets import image_store, store
from usboost.datasets.sources import sha256
from usboost.errors import UsboostError
from usboost.fit import drift
from usboost.fit.bundle import raw_rows
from usboost.fit.card import Card


@dataclass(frozen=True)
class Looked:
    """What was compared.

    Attributes
    ----------
    version : of the registered model; run_id : the MLflow run that has the numbers.
    columns : see `usboost.fit.drift.compare`.
    """

    version: ModelVersion
    run_id: str
    columns: pd.DataFrame

    @property
    def drifted(self) -> pd.DataFrame:
        return self.columns[self.columns["drift"] != ""]

    @property
    def reason(self) -> str:
        """What has passed a limit, in words."""
        first = "; ".join(f"{row.column}: {row.drift}" for row in self.drifted.head(3).itertuples())
        return f"{len(self.drifted)} of {len(self.columns)} columns drift ({first})"


def compare(dataset: str, requests: Path, psi: float, share: float) -> Looked:
    """Compare a table of requests with the training rows of a dataset's champion, in an MLflow run.

    Raises `UsboostError` if there is no champion, it was fitted to other data than those prepared here, or
    the table cannot be compared.
    """
    folder = prepared_folder(dataset)
    prepared = store.read_card(folder)
    name, data = registered_name(dataset), tracking.digest(folder)
    version = champion(name, dataset)
    if version.tags.get("data") != data:
        raise UsboostError(
            f"version {version.version} of {name} was fitted to other data than those in {folder}; "
            "bring that back (`dvc checkout` of its commit), or promote a fit of these data"
        )
    card = _card(version)
    images = [] if card.images is None else card.images.columns
    seen = ("train",) if card.rows["val"] else ("train", "val")  # a fit to all rows has no validation rows
    train = raw_rows(card, pd.concat([store.read_frame(folder, split) for split in seen], ignore_index=True))
    without = dict(zip(images, _without(prepared, seen), strict=True))
    tags = tracking.lineage({"prepared": folder})
    tags |= {"dataset": dataset, "registered_model": name, "version": str(version.version)}
    with tracking.tracked_run(f"{name}-monitor", requests.name, tags) as run_id:
        columns = drift.compare(card, train, without, requests, psi=psi, share=share)
        MlflowClient().set_tag(run_id, "requests", f"{requests.name} sha256:{sha256(requests)}")
        _log(run_id, columns, {"psi_limit": psi, "share_limit": share})
    return Looked(version, run_id, columns)


def champion(name: str, dataset: str) -> ModelVersion:
    """The version of a registered model that has the alias. Raises `UsboostError` if there is none."""
    try:
        return MlflowClient().get_model_version_by_alias(name, ALIAS)
    except MlflowException as error:
        raise UsboostError(
            f"MLflow has no {name}@{ALIAS}; run `python -m flows.promote {dataset}` first"
        ) from error


def _card(version: ModelVersion) -> Card:
    uri = f"models:/{version.name}/{version.version}"
    with tempfile.TemporaryDirectory() as kept:
        file = mlflow.artifacts.download_artifacts(f"{uri}/artifacts/bundle/card.json", dst_path=kept)
        return Card.model_validate(json.loads(Path(file).read_text()))


def _without(prepared: Mapping[str, Any], splits: Sequence[str]) -> list[int]:
    """Rows of some splits without an image, for each column of images."""
    about: dict[str, Any] = prepared.get("images") or {}
    columns = zip(*(image_store.parts(split, about) for split in splits), strict=True) if about else ()
    return [
        sum(shard.get("absent", 0) for part in parts for shard in about["splits"][part]["shards"])
        for parts in columns
    ]


def _log(run_id: str, columns: pd.DataFrame, limits: dict[str, float]) -> None:
    now = int(time.time() * 1000)
    values = {"drifted_columns": float((columns["drift"] != "").sum()), "columns": float(len(columns))}
    for row in columns.to_dict("records"):
        for name in ("psi", "ks", "missing", "unseen"):
            values[tracking.key_of(f"{name}/{row['column']}")] = float(row[name])
    metrics = [Metric(key, value, now, 0) for key, value in values.items() if math.isfinite(value)]
    tracking.log_numbers(run_id, metrics, "the drift")
    tracking.log_parameters(run_id, limits)
    with tempfile.TemporaryDirectory() as folder:
        columns.to_csv(Path(folder) / "drift.csv", index=False)
        MlflowClient().log_artifact(run_id, str(Path(folder) / "drift.csv"))
