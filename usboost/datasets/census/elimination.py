"""Backward elimination: which columns of a table carry what is known about the label."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.data.table import Table
from usboost.errors import UsboostError

ROUNDS = 60
"""Boosting rounds of the small model that judges a set of columns."""

PARAMETERS: dict[str, Any] = {
    "num_leaves": 15,
    "learning_rate": 0.1,
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "seed": 0,
}
"""Its LightGBM parameters. One thread a model: sums depend on the number, and on a few thousand rows several
threads cost far more than they save as soon as another process shares the cores. Models are fitted side by
side instead."""


@dataclass(frozen=True)
class Step:
    """One point of the path: the column just removed (None at the start), the holdout log-loss of
    the model without it, in nats, and how many columns remain."""

    removed: str | None
    loss: float
    remaining: int


@dataclass(frozen=True)
class Elimination:
    """A path from all columns to one, and the columns kept, in the table's order."""

    path: tuple[Step, ...]
    kept: tuple[str, ...]


def backward_elimination(
    table: Table,
    y: np.ndarray,
    *,
    seed: int,
    rows: int = 40_000,
    candidates: int = 5,
    tolerance: float = 0.01,
    at_most: int | None = None,
) -> Elimination:
    """Remove the least useful column, one after the other, until one is left.

    Each set of columns is judged by the log-loss, on a holdout, of a small LightGBM model. At each
    step the `candidates` columns with the least split gain are left out in turn, and the one whose
    removal leaves the lowest loss goes (on equal losses, the one with the least gain, then the first).

    Parameters
    ----------
    table : the training split, n rows and p columns.
    y : labels of shape (n,), whole numbers.
    seed : chooses the rows; equal seeds give equal paths.
    rows : how many rows are looked at, a random half to fit and the other as holdout; both keep the
        shares of the classes.
    candidates : columns tried at each step; p or more tries them all.
    tolerance : of the sets on the path, the smallest is kept whose loss is at most (1 + tolerance)
        times the least.
    at_most : the largest set that may be kept; by default p.

    Raises
    ------
    UsboostError
        If the numbers of rows differ, there is a single class or a class too small to be in both
        halves, there is no column, or a parameter is out of its range.
    """
    y = np.asarray(y)
    limit = table.n_columns if at_most is None else at_most
    if len(y) != len(table):
        raise UsboostError(f"the table has {len(table)} rows but there are {len(y)} labels")
    if table.n_columns < 1:
        raise UsboostError("backward elimination needs at least one column")
    if rows < 4 or candidates < 1 or tolerance < 0 or limit < 1:
        raise UsboostError(
            f"backward elimination needs rows >= 4, candidates >= 1, tolerance >= 0 and at_most >= 1, "
            f"not {rows}, {candidates}, {tolerance} and {limit}"
        )
    classes, y = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise UsboostError("backward elimination needs at least two classes")

    from sklearn.model_selection import train_test_split

    half = min(rows, len(y)) // 2
    try:
        fit, holdout = train_test_split(
            np.arange(len(y)), train_size=half, test_size=half, stratify=y, random_state=seed
        )
    except ValueError as error:
        raise UsboostError(
            f"{2 * half} rows cannot be halved with every class in both halves: {error}"
        ) from error
    judge = _Judge(table[fit], y[fit], table[holdout], y[holdout], len(classes))

    columns = list(range(table.n_columns))
    loss, gain = judge(columns)
    path, sets = [Step(None, loss, len(columns))], [columns]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        while len(columns) > 1:
            tried = [int(j) for j in np.argsort(gain, kind="stable")[:candidates]]
            smaller = [columns[:j] + columns[j + 1 :] for j in tried]
            judged = list(threads.map(judge, smaller))
            best = min(range(len(tried)), key=lambda k: judged[k][0])  # the first of equal ones
            path.append(Step(table.names[columns[tried[best]]], judged[best][0], len(columns) - 1))
            (loss, gain), columns = judged[best], smaller[best]
            sets.append(columns)

    allowed = [step for step in range(len(path)) if len(sets[step]) <= limit]
    bound = (1 + tolerance) * min(path[step].loss for step in allowed)
    smallest = max(step for step in allowed if path[step].loss <= bound)
    return Elimination(tuple(path), tuple(table.names[j] for j in sets[smallest]))


class _Judge:
    """Holdout log-loss and split gains, of shape (columns,), of a model on some columns."""

    def __init__(self, fit: Table, y_fit: np.ndarray, holdout: Table, y_holdout: np.ndarray, m: int) -> None:
        self.x_fit, self.y_fit = fit.matrix(), y_fit
        self.x_holdout, self.y_holdout = holdout.matrix(), y_holdout
        self.categorical, self.m = set(fit.categorical), m
        objective = {"objective": "binary"} if m == 2 else {"objective": "multiclass", "num_class": m}
        self.parameters = {**PARAMETERS, **objective}

    def __call__(self, columns: list[int]) -> tuple[float, np.ndarray]:
        import lightgbm as lgb
        from sklearn.metrics import log_loss

        nominal = [position for position, j in enumerate(columns) if j in self.categorical]
        data = lgb.Dataset(self.x_fit[:, columns], self.y_fit, categorical_feature=nominal)
        model = lgb.train(self.parameters, data, ROUNDS)
        predicted = model.predict(self.x_holdout[:, columns], num_threads=PARAMETERS["num_threads"])
        loss = log_loss(self.y_holdout, np.asarray(predicted), labels=range(self.m))
        return float(loss), model.feature_importance("gain")
