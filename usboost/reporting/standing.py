"""Models beside the one that validation chose: test rows, scores, intervals, which differences are noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from usboost.errors import UsboostError
from usboost.evaluation import selection
from usboost.evaluation.statistics import LEVEL, Statistic, holm, paired_interval, randomization_test
from usboost.evaluation.task import TASKS, Task
from usboost.models import catalogue
from usboost.reporting.results import chosen


def read_rows(results: Path, dataset: str, model: str, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """A fit's test rows, labels (n,) and probabilities (n, M), or numbers (n,); None if they were not kept.

    Raises `UsboostError` if the file cannot be read.
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


Fit = tuple[str, int]
"""Model and seed."""

Rows = tuple[np.ndarray, np.ndarray]

Interval = tuple[float, float, float]
"""A value, and the ends of its interval of 95 %; NaN where there is none."""


@dataclass(frozen=True)
class Standing:
    """A model's best fit, the one that validation chooses among its seeds.

    Attributes
    ----------
    val, test : scores by metric; those of the test rows with intervals.
    rounds, seconds : what the fit took; NaN where it is not known.
    difference : the chosen model's lead in the test score, of which more is better; None for the chosen one.
    p, p_holm : of the difference, by the randomization test: as it is, for a question that is asked of this
        model alone, and adjusted for all models but the chosen one.
    """

    model: str
    seed: int
    val: dict[str, float]
    test: dict[str, Interval]
    rounds: float
    seconds: float
    difference: Interval | None = None
    p: float | None = None
    p_holm: float | None = None

    @property
    def within_noise(self) -> bool:
        return self.p_holm is not None and not self.p_holm < LEVEL


@dataclass(frozen=True)
class Lead:
    """Of the chosen fit over another one; p and p_holm as of `Standing`."""

    difference: Interval
    p: float
    p_holm: float


def standings(
    frame: pd.DataFrame, results: Path, dataset: str, metric: str, task: Task = TASKS["classification"]
) -> list[Standing]:
    """The models of a dataset by their validation scores, the chosen one first.

    Parameters
    ----------
    frame : what `results.collect` returns.
    metric : what chooses and what differences are of: f1 or accuracy, or one of a regression's.
    task : what is predicted.
    """
    part = frame[frame["dataset"] == dataset]
    names = [model for model in catalogue.ordered(part["model"]) if catalogue.model_with_part(model) is None]
    fits = [fit for model in names if (fit := chosen(part[part["model"] == model], dataset, metric))]
    rows = {fit: read_rows(results, dataset, *fit) for fit in fits}
    found = [_standing(part, *fit, rows[fit], task) for fit in fits]
    # a stable sort, so that of fits that are level the first comes first, as in `selection.best`
    found.sort(key=lambda each: selection.rank(each.val, metric), reverse=True)
    if not found:
        return []
    leads = compared(rows, (found[0].model, found[0].seed), metric, task)
    return [
        replace(each, difference=leads[fit].difference, p=leads[fit].p, p_holm=leads[fit].p_holm)
        if (fit := (each.model, each.seed)) in leads
        else each
        for each in found
    ]


def compared(
    rows: Mapping[Fit, Rows | None], best: Fit, metric: str, task: Task = TASKS["classification"]
) -> dict[Fit, Lead]:
    """The best fit's lead over each of the others in the test score.

    Parameters
    ----------
    rows : what `read_rows` returns of each fit; one without, or with other test rows, is left out.
    metric, task : as in `standings`.
    """
    own = rows[best]
    if own is None:
        return {}
    labels, mine = own[0], task.answers(own[1])
    statistic = task.gain(metric, own[1])
    others = {
        fit: task.answers(one[1])
        for fit, one in rows.items()
        if fit != best and one is not None and np.array_equal(one[0], labels)
    }
    p = [randomization_test(labels, mine, other, statistic) for other in others.values()]
    return {
        fit: Lead(_difference(labels, mine, other, statistic), float(alone), float(adjusted))
        for (fit, other), alone, adjusted in zip(others.items(), p, holm(p), strict=True)
    }


def _difference(labels: np.ndarray, mine: np.ndarray, other: np.ndarray, statistic: Statistic) -> Interval:
    value = statistic(labels, mine) - statistic(labels, other)
    return (value, *paired_interval(labels, mine, other, statistic))


def _standing(frame: pd.DataFrame, model: str, seed: int, rows: Rows | None, task: Task) -> Standing:
    fit = frame[(frame["model"] == model) & (frame["seed"] == seed)]
    by_split = {
        split: dict(zip(part["metric"], part["value"], strict=True)) for split, part in fit.groupby("split")
    }
    test: dict[str, Interval] = {
        name: (value, np.nan, np.nan) for name, value in by_split.get("test", {}).items()
    }
    if rows is not None:
        test |= task.intervals(*rows)
    cost = fit[["rounds", "fit_seconds"]].astype("float64").iloc[0]
    return Standing(model, seed, by_split["val"], test, cost["rounds"], cost["fit_seconds"])
