"""docs/results/settings.md, how `usboost tune` chooses: the best trial, or only if that is beyond noise.

``python -m benchmarks.study.choosing products 1000 3``: so many draws of rows of a table with images, 15 %
of them to choose by, or folds of all, and 2,000 other rows, which score the model's own and its best
settings. Tens of minutes on a core.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.study import small
from benchmarks.study.equals import FIXED, Case, built
from usboost.datasets.user.user_table import UserTable
from usboost.models.settings import with_settings
from usboost.multimodal.tune import tune
from usboost.tuning.search import Plan, error_of_difference

MODELS = ("linear_trees", "2wl_ridge", "lgbm", "xgboost")
FOLDS = (0, 5)
FIRST = 200  # other draws than those of `small` and `all_rows`
RULES = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Standard errors by which the best trial has to be ahead of the model's own settings."""


def searched(table: UserTable, out: Path, seed: int, trials: int) -> Iterator[dict[str, Any]]:
    """By model and folds: what the scores promise, with their noise, and what the other rows say."""
    models, scoring = built(MODELS, table), Case(table)
    for folds in FOLDS:
        found = tune(
            table, models, out=out / str(folds), folds=folds, fixed=FIXED, plan=Plan(trials, seed=seed)
        ).models
        for name, each in found.items():
            if each.first is None or each.best is None:
                continue
            losses = []
            for trial in (each.first, each.best):
                model = with_settings(models[name](seed), trial.settings, name)
                losses.append(next(scoring.single(model, refit=False))[1][0]["log_loss"])
            own, best = each.first, each.best
            yield {
                "model": name,
                "folds": folds,
                "promised": (own.score or 0.0) - (best.score or 0.0),
                "error": error_of_difference(own.draws, best.draws),
                "own": losses[0],
                "best": losses[1],
            }


def study(name: str, rows: int, draws: int, trials: int) -> pd.DataFrame:
    found = []
    for seed, table in small.tables(name, rows, range(FIRST, FIRST + draws), least=2 * max(FOLDS)):
        with tempfile.TemporaryDirectory() as folder:
            for row in searched(table, Path(folder), seed, trials):
                found.append({"draw": seed, **row})
                print(found[-1], flush=True)
    return pd.DataFrame(found)


def by_rule(found: pd.DataFrame) -> pd.DataFrame:
    """Mean gain on a model's own settings by rule, folds and model."""
    parts = {}
    for rule in RULES:
        taken = found["promised"] > rule * found["error"]
        parts[rule] = (found["own"] - found["best"]).where(taken, 0.0)
    gains = pd.DataFrame(parts).assign(model=found["model"], folds=found["folds"])
    return pd.concat(
        [gains.groupby(["folds", "model"]).mean(), gains.drop(columns="model").groupby("folds").mean()]
    )


if __name__ == "__main__":
    name, rows, draws = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found = study(name, rows, draws, int(sys.argv[4]) if len(sys.argv) > 4 else 12)
    print(found.round(4).to_markdown(index=False))
    print(by_rule(found).round(4).to_markdown(), flush=True)
