"""docs/results/best.md, the members of `best`: their fits to all rows, and LightGBM's settings.

``python -m benchmarks.study.members products 1000 3 [600]``: draws of rows of a table to fit to, by the first
one's seed, and others, which score, 2,000 of a table with images, 20,000 of one without. Minutes on a core.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.study import small
from benchmarks.study.equals import Case, built
from usboost.evaluation.metrics import row_losses
from usboost.models.ensembles.selection import blended

FIRST = 300  # other draws than those of `small` and `all_rows`
ALONE, FEW, MANY = ("lgbm", "crossed"), 1, 3
COLUMNS: tuple[dict[str, Any], ...] = (
    {},
    {"feature_fraction": 0.5},
    {"feature_fraction": 0.5, "learning_rate": 0.025},
    {"feature_fraction": 0.5, "lambda_l2": 1.0},
    {"feature_fraction": 0.3, "lambda_l2": 1.0},
    {"feature_fraction": 0.5, "lambda_l2": 1.0, "learning_rate": 0.025},
    {"feature_fraction": 0.5, "lambda_l2": 1.0, "num_leaves": 64},
    {"feature_fraction": 0.5, "lambda_l2": 1.0, "learning_rate": 0.025, "num_leaves": 64},
)


def settings(case: Case, seed: int) -> dict[str, float]:
    """Log-loss of LightGBM by its settings."""
    found = {}
    for each in COLUMNS:
        model = built(("lgbm",), case.table)["lgbm"](seed).set_params(**each)
        ((_, (scores, _)),) = case.single(model, refit=False)
        found[", ".join(f"{key} {value}" for key, value in each.items()) or "its own"] = scores["log_loss"]
    return found


def fits(case: Case, seed: int) -> dict[str, float]:
    """Log-loss of the blend by what a member's mean is of: fits to folds and to all rows."""
    table, model = case.table, built(("best",), case.table)["best"](seed)
    if not table.images:  # the others have next to no weight there
        model.set_params(members={name: model.members[name] for name in ALONE})
    encoding = table.fit_encoding(case.seen)
    model.fit(table.views(encoding, case.seen), table.labels[case.seen])
    unseen, y = table.views(encoding, case.test), table.labels[case.test]
    folds = {name: [each.predict_proba(unseen) for each in fits] for name, fits in model.fits_.items()}
    whole = {name: [each.predict_proba(unseen) for each in fits] for name, fits in model.full_refits_.items()}

    def loss(share: float, number: int) -> float:
        means = {
            name: (1 - share) * np.mean(folds[name], axis=0) + share * np.mean(whole[name][:number], axis=0)
            for name in model.weights_
        }
        return float(row_losses(y, blended(means, model.weights_)).mean())

    found = {"to folds": loss(0.0, FEW)}
    for number in (FEW, MANY):
        for share in (0.5, number / (number + 1), 1.0):
            found[f"{share:g} of {number} to all rows"] = loss(share, number)
    return found


def summary(found: pd.DataFrame) -> str:
    """Markdown: means over the draws, and the differences from the first column with their standard error."""
    gaps = found.sub(found.iloc[:, 0], axis=0)
    error = gaps.std() / np.sqrt(len(found))
    return (
        pd.DataFrame({"log_loss": found.mean(), "more": gaps.mean(), "error": error}).round(5).to_markdown()
    )


if __name__ == "__main__":
    first = int(sys.argv[4]) if len(sys.argv) > 4 else FIRST
    for what in (settings, fits):
        drawn = small.tables(sys.argv[1], int(sys.argv[2]), range(first, first + int(sys.argv[3])))
        print(summary(pd.DataFrame(what(Case(table), seed) for seed, table in drawn)), flush=True)
