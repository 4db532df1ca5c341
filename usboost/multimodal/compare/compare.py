"""Models on the same folds of a user's table, with tests of their differences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.progress import Progress, Running
from usboost.errors import UsboostError, option
from usboost.evaluation.calibration import clip_lower, floor_of
from usboost.evaluation.ranking import LOWER_IS_BETTER, METRICS_OF, RANKING, check_metric
from usboost.evaluation.statistics import LEVEL, corrected_t_test, holm
from usboost.evaluation.task import TASKS, Slice
from usboost.models.tuned_images import fit_weighted, tune_images
from usboost.multimodal.compare.finished_fits import KeptFits, Scores
from usboost.multimodal.compare.in_threads import in_threads
from usboost.multimodal.compare.pace import Pace, Watched
from usboost.multimodal.compare.sliced import Sliced
from usboost.multimodal.fit.embedded import Embedded
from usboost.multimodal.fit.splits import Fold, counted_rows, related_of, rows_of, weights_of
from usboost.multimodal.fit.splits import folds_of as split_into_folds
from usboost.multimodal.fit.table_fit import check_classes
from usboost.table.columns.encoding import Encoding
from usboost.table.user_table import UserTable

Build = Callable[[int], Any]
"""An unfitted model with a seed."""

Result = dict[str, float | str] | str | None
"""Of one fit: a row of scores, the reason of its failure, or None if it was not tried."""


@dataclass(frozen=True)
class Standing:
    """A model beside the best.

    Attributes
    ----------
    mean, spread : by score and for ``seconds``; the spread is the folds' standard deviation.
    difference : the mean difference from the best, by the score that the models are ranked by.
    p, p_holm : two-sided p-value of the corrected t-test, and Holm's over all models but the best; NaN where
        there is one fold.
    """

    model: str
    mean: dict[str, float]
    spread: dict[str, float]
    difference: float
    p: float
    p_holm: float

    @property
    def within_noise(self) -> bool:
        return not self.p_holm < LEVEL


@dataclass(frozen=True)
class Comparison:
    """Scores by fold, and reasons of failures.

    Attributes
    ----------
    scores : a row per model and fold: ``model, repeat, fold, rows_train, rows_test``, the scores and the
        fit's ``seconds``.
    failures : reasons by model; a model that failed on one fold is not ranked.
    by : the score that the models are ranked by.
    classes : names of the classes; none where a number is predicted.
    fits : how many there are in all; fewer are in `scores` and `failures` if it was interrupted.
    interrupted : whether it was.
    kept : how many fits were finished in an earlier run.
    slices : by model the scores by the groups of a column, if that was asked for, best model first.
    """

    scores: pd.DataFrame
    failures: dict[str, str]
    by: str
    classes: list[str]
    fits: int = 0
    interrupted: bool = False
    kept: int = 0
    slices: Mapping[str, Sequence[Slice]] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        """Folds of all repeats that models are ranked on."""
        return len(self._ranked()[["repeat", "fold"]].drop_duplicates())

    @property
    def models(self) -> list[str]:
        """The models that did not fail, best first."""
        return [each.model for each in self.standings()]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores that a table shows: those of the task, and the one that ranks."""
        shown = METRICS_OF["classification" if self.classes else "regression"]
        return shown if self.by in shown else (self.by, *shown)

    def standings(self) -> list[Standing]:
        """The models that did not fail, best first."""
        ranked = self._ranked()
        if ranked.empty:
            return []
        sign = -1.0 if self.by in LOWER_IS_BETTER else 1.0
        table = ranked.pivot(index=["repeat", "fold"], columns="model", values=self.by)
        # a score that some fold does not have (AUC of one class) ranks nothing
        order = (sign * table.mean(skipna=False)).sort_values(ascending=False, kind="stable").index
        best = order[0]
        ratio = float((ranked["rows_test"] / ranked["rows_train"]).mean())
        if len(table) > 1:
            tests = [corrected_t_test(table[best] - table[name], ratio)[1] for name in order[1:]]
        else:  # nothing is known of how the scores vary
            tests = [float("nan")] * (len(order) - 1)
        adjusted = [1.0, *holm(tests)]
        columns = [*self.metrics, "seconds"]
        groups = ranked.groupby("model")[columns]
        means, spreads = groups.mean(), groups.std(ddof=1)
        return [
            Standing(
                str(name),
                {column: float(means.loc[name, column]) for column in columns},
                {column: float(spreads.loc[name, column]) for column in columns},
                float((table[name] - table[best]).mean()),
                1.0 if name == best else float(tests[k - 1]),
                float(adjusted[k]),
            )
            for k, name in enumerate(order)
        ]

    def _ranked(self) -> pd.DataFrame:
        """The scores of the models that did not fail; of an interrupted comparison, of the folds of all."""
        found = self.scores[~self.scores["model"].isin(list(self.failures))]
        if not self.interrupted:
            return found
        counts = found.groupby(["repeat", "fold"])["model"].transform("count")
        return found[counts == found["model"].nunique()]


def folds_of(table: UserTable, folds: int, repeats: int, seed: int) -> list[Fold]:
    """Folds of a table; of each fold's other rows 15 % are for early stopping. See `splits.folds_of`.

    Raises
    ------
    UsboostError
        If there are under 2 folds, or too few rows of a class, groups or times for them.
    """
    counted = counted_rows(table)
    rows = rows_of(table)[counted]
    if rows.codes is not None and rows.splits is None and folds >= 2:
        counts = np.bincount(rows.codes, minlength=len(table.classes))
        least = int(counts.argmin())
        # the second term: rows of the class that remain without the largest fold
        if counts[least] < folds or counts[least] - -(-counts[least] // folds) < 2:
            raise UsboostError(
                f"{table.file}: class {table.classes[least]!r} of {table.spec.label!r} has {counts[least]} "
                f"rows, too few for {folds} folds; add rows of it, leave it out, or change {option('folds')}"
            )
    found = [
        Fold(each.repeat, each.fold, counted[each.train], counted[each.val], counted[each.test])
        for each in split_into_folds(rows, folds, repeats, seed)
    ]
    for fold in found:
        check_classes(table, fold.train)
    return found


def compare(
    table: UserTable,
    models: Mapping[str, Build],
    *,
    folds: int = 5,
    repeats: int = 1,
    seed: int = 0,
    jobs: int = 1,
    by: str | None = None,
    by_column: str | None = None,
    keep: Path | None = None,
    progress: Progress | None = None,
    running: Callable[[Sequence[str]], None] | None = None,
    slow: Callable[[str], None] | None = None,
) -> Comparison:
    """Fit every model to every fold's rows; the encoders learn from these rows only.

    Where the table has weights, they count in fits and scores; rows of weight 0 take no part. An interruption
    ends it with what is there.

    Parameters
    ----------
    models : by name; each is built with a repeat's seed.
    folds, repeats : of the stratified cross-validation, the same for all models.
    jobs : fits at a time, in threads.
    by : the score that the models are ranked by, one of `names.RANKING` or as scikit-learn names it; by
        default accuracy, or RMSE.
    by_column : a column by whose groups the models are scored, too.
    keep : a folder for the scores of finished fits, which are not made again; see `KeptFits`.
    progress : called with (fits done, fits in all); those skipped after a failure count as done.
    running : called with the fits that run, model, fold and round of each, whenever one of these changes.
    slow : called with a sentence on a model that takes far longer than the others, once this is known.

    Raises
    ------
    UsboostError
        As `folds_of`, or if there is no column `by_column`. A model that fails stops no other: its reason is
        in the answer.
    """
    by = check_metric(by or TASKS[table.task].first, RANKING[table.task])
    parts = folds_of(table, folds, repeats, seed)
    tasks = [(name, k) for k in range(len(parts)) for name in models]
    sliced = None if by_column is None else Sliced(table, by_column)
    kept, pace = KeptFits(keep, table, predictions=sliced is not None), Pace(len(parts), slow)
    fits = _Fits(table, models, parts, seed, kept, pace, Running(running), sliced)
    rows: list[dict[str, float | str]] = []
    interrupted = False
    try:
        for done, (index, found) in enumerate(in_threads(fits.result, tasks, jobs), start=1):
            if isinstance(found, str):
                fits.failures.setdefault(tasks[index][0], found)
            elif found is not None:
                rows.append(found)
            if progress:
                progress(done, len(tasks))
    except KeyboardInterrupt:
        interrupted = True
    scores = _ordered(rows, list(models), table.task)
    ended = Comparison(scores, fits.failures, by, table.classes, len(tasks), interrupted, kept.found)
    return ended if sliced is None or interrupted else replace(ended, slices=sliced.scores(ended.models))


class _Fits:
    """The fits of a comparison, made in any thread; `failures` has the reasons, by model."""

    def __init__(
        self,
        table: UserTable,
        models: Mapping[str, Build],
        parts: Sequence[Fold],
        seed: int,
        kept: KeptFits,
        pace: Pace,
        running: Running,
        sliced: Sliced | None,
    ) -> None:
        self._table, self._models, self._parts, self._seed = table, models, parts, seed
        self._kept, self._pace, self._running, self._sliced = kept, pace, running, sliced
        self._images = Embedded(table)
        # learning from text takes its time, and all models of a fold read the same
        self._encoding = lru_cache(maxsize=2)(lambda k: table.fit_encoding(parts[k].train))
        self.failures: dict[str, str] = {}

    def result(self, task: tuple[str, int]) -> Result:
        """The scores of a model on a fold, or why there are none; None of a model that failed before."""
        name, k = task
        if name in self.failures:
            return None
        with self._running.during(f"{name} on fold {k + 1} of {len(self._parts)}") as show:
            try:
                return self._scores(name, k, Watched(name, self._pace, show))
            # an error of one model must not lose the results of the others
            except Exception as error:
                kind = "" if isinstance(error, UsboostError) else f"{type(error).__name__}: "
                return f"{kind}{error}".strip().splitlines()[0]

    def _scores(self, name: str, k: int, watched: Watched) -> dict[str, float | str]:
        fold = self._parts[k]
        model = self._models[name](self._seed + fold.repeat - 1)
        key = self._kept.key(model, fold)
        found = self._kept.get(key)
        if found is None:
            if "callbacks" in model.get_params(deep=False):
                model.set_params(callbacks=[watched])
            self._images.prepare(model)  # else the first fit would seem to take as long as the images
            found = _scored(self._table, self._encoding(k), model, fold)
            self._kept.add(key, name, found)
        self._pace.ended(name, found.row["seconds"])
        if self._sliced is not None:
            self._sliced.add(name, fold, found.predicted)
        # the same rows may have been another fold of another comparison
        return {"model": name, **found.row, "repeat": fold.repeat, "fold": fold.fold}


def _ordered(rows: Sequence[Mapping[str, float | str]], models: Sequence[str], task: str) -> pd.DataFrame:
    """The scores of fits that end in any order, by repeat, fold and the order of the models."""
    columns = ["model", "repeat", "fold", "rows_train", "rows_test", *RANKING[task], "seconds"]
    scores = pd.DataFrame(rows, columns=columns)
    scores = scores.astype(dict.fromkeys(columns[1:5], np.int64))  # kept ones are read as floats
    order = {name: k for k, name in enumerate(models)}
    return scores.sort_values(
        ["repeat", "fold", "model"], key=lambda c: c.map(order) if c.name == "model" else c, ignore_index=True
    )


def _scored(table: UserTable, encoding: Encoding, model: Any, fold: Fold) -> Scores:
    """The scores of one model, fitted and scored on one fold."""
    train, val, test = (table.views(encoding, rows) for rows in (fold.train, fold.val, fold.test))
    weights, held, unseen = (weights_of(table, rows) for rows in (fold.train, fold.val, fold.test))
    fitted_to, stopping = (train, table.labels[fold.train], weights), (val, table.labels[fold.val], held)
    tune_images(model, fitted_to, stopping)  # all models of a fold have the same tuning: no fit's seconds
    started = time.perf_counter()
    fit_weighted(model, fitted_to, stopping, related_of(table, fold.train))
    seconds = time.perf_counter() - started
    task = TASKS[table.task]
    predicted = task.predict(model, test)
    if not table.classes:
        predicted = clip_lower(predicted, floor_of(table.labels[fold.train]))
    scores = task.ranked(table.labels[fold.test], predicted, unseen)
    row = {
        "repeat": fold.repeat,
        "fold": fold.fold,
        # validation rows take part in the fit, too
        "rows_train": len(fold.train) + len(fold.val),
        "rows_test": len(fold.test),
        **scores,
        "seconds": seconds,
    }
    return Scores(row, predicted)
