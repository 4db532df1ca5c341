"""What docs/results/one-tree.md says of one tree for all classes beside a tree for each class.

``python -m benchmarks.study.joint_tree OUT lesions 1000 5``: draws of rows of a table to fit to and to stop
on, and others, which score; killed, it goes on. OUT alone: the tables of what it holds. Minutes on a core.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, load_wine

from benchmarks.study import small
from benchmarks.study.equals import Case, built
from benchmarks.study.rows import interval
from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.table_spec import TableSpec
from usboost.datasets.user.user_table import UserTable
from usboost.learners.base import FittedLearner, Target
from usboost.learners.trees.engines import LightGBMTrainer, quiet_lightgbm
from usboost.learners.trees.fitted import FittedTrees, PreparedTable
from usboost.learners.trees.learner import TreeLearner
from usboost.models.inputs import embed

MODELS, BUNDLED = ("linear_trees", "crossed"), {"digits": load_digits, "wine": load_wine}


class DiagonalTrainer(LightGBMTrainer):
    """A tree for each class, by the diagonal of the metric: the loss's own first and second derivatives."""

    def __init__(self, learner: Diagonal, prepared: PreparedTable, n_outputs: int) -> None:
        super().__init__(learner, prepared, n_outputs)
        self._parameters["lambda_l2"] = learner.shrink
        self._boosters = [quiet_lightgbm().Booster(self._parameters, self._dataset) for _ in self._boosters]

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedTrees:
        if (metric := target.metric) is not None:
            second = np.einsum("nii->ni", metric)
            values = np.einsum("nij,nj->ni", metric, target.values) / second
            target = replace(target, values=values, weights=second, metric=None)
        return super().fit(target, seed=seed, start=start)


class Diagonal(TreeLearner):
    shrink = 0.0  # a leaf's value is drawn to 0 as by so many samples of average weight

    def trainer(self, prepared: PreparedTable, n_outputs: int) -> DiagonalTrainer:
        return DiagonalTrainer(self, prepared, n_outputs)


Shrunk = type("Shrunk", (Diagonal,), {"shrink": 1.0})
TREES: dict[str, tuple[type[TreeLearner], int]] = {
    "one tree": (TreeLearner, 1),
    "a tree a class": (Diagonal, 1),
    "leaves drawn to 0": (Shrunk, 1),
    "and fewer of them": (Shrunk, 4),  # M trees a round have M times as many; four at least
}


def tables(name: str, rows: int, draws: int) -> Iterator[tuple[int, UserTable]]:
    seeds = range(500, 500 + draws)  # other draws than those of the other studies
    if name not in BUNDLED:
        yield from small.tables(name, rows, seeds)
    for seed in seeds if name in BUNDLED else ():
        frame = BUNDLED[name](as_frame=True).frame
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "drawn.parquet"
            small.drawn(frame, "target", rows, len(frame) - rows, seed).to_parquet(path)
            yield seed, read_table(path, TableSpec(label="target", split="part"))


def fitted(case: Case, name: str, trees: str, seed: int) -> dict[str, Any]:
    """Test scores, CPU seconds of the fit and its best round, of a model with such trees."""
    table, (kind, fewer) = case.table, TREES[trees]
    model = built((name,), table)[name](seed)
    tree = kind(**model.learners["S"].get_params())
    leaves = tree.max_leaves or 2**tree.max_depth
    model.learners = {**model.learners, "S": tree.set_params(max_leaves=max(4, leaves // fewer))}
    encoding = table.fit_encoding(case.train)
    train, held, test = (table.views(encoding, rows) for rows in (case.train, case.held, case.test))
    for views in (train, held, test):
        embed(views, model.backbone)
    began = time.process_time()
    model.fit(train, table.labels[case.train], (held, table.labels[case.held]))
    cost = {"best_round": model.best_round_, "seconds": time.process_time() - began}
    scores = case.task.score(table.labels[case.test], case.task.predict(model, test))
    return cost | {name: float(value) for name, value in scores.items()}


def shown(found: pd.DataFrame, score: str) -> str:
    """Markdown: the mean by one tree, and what others have more, with half its 95 % interval."""
    lines = []
    for key, group in found.groupby(["table", "rows", "model"], sort=False):
        by_trees = group.pivot(index="draw", columns="trees", values=score)
        gaps = {each: interval(by_trees[each] - by_trees["one tree"]) for each in list(TREES)[1:]}
        cells = {each: "{:+.4f} ± {:.4f}".format(*gap) for each, gap in gaps.items()}
        lines.append({score: key, "draws": len(by_trees), "one tree": by_trees["one tree"].mean(), **cells})
    return str(pd.DataFrame(lines).to_markdown(index=False))


if __name__ == "__main__":
    out, asked = Path(sys.argv[1]), sys.argv[2:]
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    for draw, table in tables(asked[0], int(asked[1]), int(asked[2])) if asked else ():
        case = Case(table)
        for model, trees in ((model, trees) for model in MODELS for trees in TREES):
            row = {"table": asked[0], "rows": int(asked[1]), "draw": draw, "model": model, "trees": trees}
            if not any(row.items() <= each.items() for each in done):
                with out.open("a") as file:
                    file.write(json.dumps(row | fitted(case, model, trees, draw)) + "\n")
    for score in ("log_loss", "f1", "seconds") if not asked else ():
        print(shown(pd.DataFrame(done), score), flush=True)
