"""The model as MLflow serves it: raw rows in, label and probabilities out. Logged as code, not pickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext


class ServedModel(PythonModel):
    """Encodes raw columns with the training split's encoders and asks the fitted classifier."""

    def load_context(self, context: PythonModelContext) -> None:
        from usboost.datasets.encoding import TableEncoder
        from usboost.persistence import load

        card = json.loads(Path(context.artifacts["card"]).read_text())
        self.classes = card["classes"]
        self.encoders = {view: TableEncoder.from_dict(spec) for view, spec in card["encoders"].items()}
        self.model = load(Path(context.artifacts["model"]))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One row per input row: ``label`` and ``p_<class>``."""
        from usboost.views import Views

        views = Views({name: encoder.transform(model_input) for name, encoder in self.encoders.items()})
        probabilities = self.model.predict_proba(views)
        out = pd.DataFrame(probabilities, columns=[f"p_{name}" for name in self.classes])
        out.insert(0, "label", [self.classes[code] for code in probabilities.argmax(axis=1)])
        return out


mlflow.models.set_model(ServedModel())
