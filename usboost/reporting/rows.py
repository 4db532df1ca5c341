"""A fit's predictions of its test rows, as the training flow leaves them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from usboost.errors import UsboostError


def read_rows(results: Path, dataset: str, model: str, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """A fit's test rows, labels (n,) and probabilities (n, M), or numbers (n,); None if they were not kept.

    Raises
    ------
    UsboostError
        If the file cannot be read.
    """
    path = Path(results) / dataset / model / "rows.parquet"
    if not path.is_file():
        return None
    try:
        frame = pd.read_parquet(path)
        rows = frame[frame["seed"] == seed]
        if "prediction" in frame:
            numbers = rows["label"].to_numpy(np.float64), rows["prediction"].to_numpy(np.float64)
            return numbers if len(rows) and all(np.isfinite(each).all() for each in numbers) else None
        names = [f"p_{k}" for k in range(len(frame.columns) - 2)]
        labels, probabilities = rows["label"].to_numpy(np.int64), rows[names].to_numpy(np.float64)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsboostError(f"{path} is not what training writes; train this model again") from error
    if not len(labels) or labels.min() < 0 or labels.max() >= len(names):
        return None
    return labels, probabilities
