"""Serve a model by MLflow: raw rows in, label and probabilities out. Logged as code, not pickled.

MLflow loads this file by its path, so that its place stays.
"""

import logging
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST
from mlflow.pyfunc import PythonModel, PythonModelContext

from usboost.errors import UsboostError

log = logging.getLogger("usboost.served")


class ServedModel(PythonModel):
    """A model that MLflow serves: the bundle among the logged model's files."""

    def load_context(self, context: PythonModelContext) -> None:
        from usboost.fit.bundle import load

        self.bundle = load(Path(context.artifacts["bundle"]))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return one row per input row: ``label`` and ``p_<class>``, or ``prediction``, ``low`` and ``high``.

        The parameter ``sets`` adds ``set``, see `Bundle.sets`; ``explain``, how many of the first rows are
        explained, adds ``why``, see `with_why`.

        What could not be read or was not in training is logged. Raises `Refused`, which the server answers
        with 400 and the sentence alone, if the rows cannot be predicted.
        """
        try:
            from usboost.fit.explain import with_why

            options = params or {}
            rows = pd.DataFrame(model_input).map(  # MLflow makes an array of each value of "inputs"
                lambda cell: cell.item() if isinstance(cell, np.ndarray) and not cell.ndim else cell
            )
            answers = self.bundle.predict(rows, sets=bool(options.get("sets", False)), tell=log.warning)
            return with_why(self.bundle, rows, answers, int(options.get("explain", 0)))
        except UsboostError as error:
            raise Refused(str(error)) from None
        except Exception as error:
            log.exception("rows that the model cannot predict")
            why = f"the model cannot predict these rows ({type(error).__name__}); the server's log says more"
            raise Refused(why) from None


class Refused(MlflowException, UsboostError):
    """A request that the model cannot answer.

    MLflow's server sends the traceback of any other exception, and of its own the rows besides the message.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, error_code=BAD_REQUEST)
        self.json_kwargs["message"] = sentence


mlflow.models.set_model(ServedModel())
