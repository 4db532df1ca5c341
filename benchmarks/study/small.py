"""What docs/results.md says of scikit-learn's bundled tables: five folds of each, nothing tuned.

``python -m benchmarks.study.small``; a few minutes on one core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from usboost.datasets.custom.own import OwnTable
from usboost.datasets.custom.table import read_own
from usboost.multimodal import results
from usboost.multimodal.compare import compare
from usboost.multimodal.models import build

TABLES = {"breast_cancer": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes}
MODELS = ("best", "linear_trees", "crossed", "lgbm", "forest", "prior")
LINEAR = {"classification": "logistic", "regression": "ridge"}


def models_of(table: OwnTable) -> dict[str, Callable[[int], Any]]:
    """By name, each to be built with a seed."""

    def of(name: str) -> Callable[[int], Any]:
        return lambda seed: build(name, pictures=False, seed=seed, task=table.task)

    return {name: of(name) for name in (*MODELS, LINEAR[table.task])}


if __name__ == "__main__":
    for name, load in TABLES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.parquet"
            load(as_frame=True).frame.to_parquet(path)
            table = read_own(path, label="target")
        by = "log_loss" if table.classes else "rmse"
        print(results.markdown(compare(table, models_of(table), by=by), name), flush=True)
