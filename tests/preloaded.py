"""All that the flows import, and what they read once: for a process whose forks are the flows."""

import importlib

from flows.local import runtime

runtime.configure()

import dvc.cli.parser  # noqa: E402
import dvc.repo.reproduce  # noqa: E402, F401
import lightgbm  # noqa: E402, F401
import mlflow.models.display_utils  # noqa: E402
import mlflow.pyfunc.scoring_server  # noqa: E402
import mlflow.store.model_registry.sqlalchemy_store  # noqa: E402
import mlflow.store.tracking.sqlalchemy_workspace_store  # noqa: E402, F401
import prefect.flow_engine  # noqa: E402
import prefect.task_engine  # noqa: E402
import prefect.utilities.visualization  # noqa: E402, F401
import pyarrow.dataset  # noqa: E402, F401
import pydantic.v1  # noqa: E402, F401
import safetensors.torch  # noqa: E402, F401
import torch  # noqa: E402, F401
import torchvision  # noqa: E402, F401
from mlflow.utils.requirements_utils import warn_dependency_requirement_mismatches  # noqa: E402

import usboost.models.persistence  # noqa: E402, F401
from usboost.boosting.code import PACKAGE, closure  # noqa: E402

for _name in ("alembic.command", "anyio._backends._asyncio", "git", "sqlalchemy.dialects.sqlite"):
    importlib.import_module(_name)  # as Prefect and MLflow do, when they need them
warn_dependency_requirement_mismatches(["numpy"])  # looks through all installed packages
_files = (file.relative_to(PACKAGE.parent).with_suffix("") for file in PACKAGE.rglob("*.py"))
closure(".".join(file.parts) for file in _files)
