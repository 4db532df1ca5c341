"""The model as MLflow serves it: raw rows in, label and probabilities out. Logged as code, not pickled."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext


class ServedModel(PythonModel):
    """Encodes raw columns with the training split's encoders and asks the fitted classifier."""

    def load_context(self, context: PythonModelContext) -> None:
        from usboost.data.encoding import TableEncoder
        from usboost.errors import UsboostError
        from usboost.models.persistence import load

        path = Path(context.artifacts["card"])
        try:
            card = json.loads(path.read_text())
            self.classes = [str(name) for name in card["classes"]]
            self.images = card.get("images")
            self.encoders = {view: TableEncoder.from_dict(spec) for view, spec in card["encoders"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsboostError(f"{path} is not a card of a model: {error!r}") from error
        self.model = load(Path(context.artifacts["model"]))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """One row per input row: ``label`` and ``p_<class>``."""
        from usboost.data.views import Views

        views = {name: encoder.transform(model_input) for name, encoder in self.encoders.items()}
        if self.images:
            views[self.images["view"]] = self._pictures(model_input)
        probabilities = self.model.predict_proba(Views(views))
        out = pd.DataFrame(probabilities, columns=[f"p_{name}" for name in self.classes])
        out.insert(0, "label", [self.classes[code] for code in probabilities.argmax(axis=1)])
        return out

    def _pictures(self, rows: pd.DataFrame) -> Any:
        """The column ``image``, any picture file as bytes or base64, as the model was trained on it."""
        from usboost.data.images import Images
        from usboost.datasets.files.image_sources import load

        decoded = [
            load(
                base64.b64decode(cell) if isinstance(cell, str) else bytes(cell),
                size=self.images["size"][0],
                channels=self.images["channels"],
            )
            for cell in rows["image"]
        ]
        return Images(np.stack(decoded))


mlflow.models.set_model(ServedModel())
