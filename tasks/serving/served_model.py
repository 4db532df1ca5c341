"""The model as MLflow serves it: raw rows in, label and probabilities out. Logged as code, not pickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext


class ServedModel(PythonModel):
    """The bundle among the logged model's files."""

    def load_context(self, context: PythonModelContext) -> None:
        from usboost.multimodal.fit.bundle import load

        self.bundle = load(Path(context.artifacts["bundle"]))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One row per input row: ``label`` and ``p_<class>``."""
        return self.bundle.predict(model_input)


mlflow.models.set_model(ServedModel())
