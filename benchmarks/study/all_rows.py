"""What docs/results/settings.md says of a fit to all rows after one that 15 % of them have stopped.

``python -m benchmarks.study.all_rows products 1000 4``: draws of rows of a table to fit to and to stop on,
and others, which score both fits, 2,000 of a table with images, 20,000 of one without. Minutes on a core.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

from benchmarks.study import small
from benchmarks.study.equals import Case, built

MODELS, ALONE = ("linear_trees", "2wl_ridge", "crossed"), ("crossed",)
"""With images, and of a table alone."""
FIRST = 100  # other draws than those of `small`


def losses(name: str, rows: int, draws: int) -> pd.DataFrame:
    """Log-loss and seconds of both fits, by model and draw."""
    found = []
    for seed, table in small.tables(name, rows, range(FIRST, FIRST + draws)):
        for model in MODELS if name in small.WITH_IMAGES else ALONE:
            fits = Case(table).single(built((model,), table)[model](seed), refit=True)
            (_, (first, _)), (_, (again, _)) = fits
            found.append(
                {"model": model, "draw": seed, "stopped": first["log_loss"], "all": again["log_loss"]}
                | {"seconds": first["seconds"], "more": again["seconds"]}
            )
    return pd.DataFrame(found)


if __name__ == "__main__":
    name, rows, draws = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found = losses(name, rows, draws).assign(gain=lambda each: each["stopped"] - each["all"])
    print(found.round(4).to_markdown(index=False))
    by_model = found.drop(columns="draw").groupby("model")
    error = by_model["gain"].std() / np.sqrt(draws)
    print(by_model.mean().assign(error=error).round(4).to_markdown(), flush=True)
