"""Models on the same folds of a user's table, with tests of their differences."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd

from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round
from usboost.data.progress import Progress, Running
from usboost.errors import UsboostError
from usboost.evaluation.folds import Fold
from usboost.evaluation.ranking import LOWER_IS_BETTER, METRICS_OF, RANKING, check_metric, metric_name
from usboost.evaluation.statistics import LEVEL, corrected_t_test, holm, sign_test
from usboost.evaluation.task import TASKS, Slice, score_slices
from usboost.fit.evaluate import Build, Embedded, FitData, evaluate, failure, folds_of, in_threads, weights_of
from usboost.fit.record import Record, Records
from usboost.table.columns.slices import Slices, read_slices
from usboost.table.user_table import UserTable


@dataclass(frozen=True)
class ModelStanding:
    """A model against the best.

    Attributes
    ----------
    mean, spread : by score and for ``seconds``; the spread is the folds' standard deviation.
    difference : the mean difference from the best, by the score that the models are ranked by.
    p, p_holm : two-sided p-value of the corrected t-test, and Holm's over all models but the best; NaN where
        there is one fold.
    pairs : rows that only the best answers rightly, and only this one, in the first repeat; of classes.
    p_rows : of these rows, by `sign_test` and Holm: whether so many are chance, these models being given.
    """

    model: str
    mean: dict[str, float]
    spread: dict[str, float]
    difference: float
    p: float
    p_holm: float
    pairs: tuple[int, int] = (0, 0)
    p_rows: float = 1.0

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
    cached : how many fits were finished in an earlier run.
    slices : by model the scores by the groups of a column, if there is `by_column`, best model first.
    wrong : by model whether each row of the first repeat was answered wrongly, bool (n,); of classes, but not
        of rows in groups, which are wrong together.
    """

    scores: pd.DataFrame
    failures: dict[str, str]
    by: str
    classes: list[str]
    fits: int = 0
    interrupted: bool = False
    cached: int = 0
    slices: Mapping[str, Sequence[Slice]] = field(default_factory=dict)
    wrong: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def parts(self) -> int:
        """Folds of all repeats that models are ranked on."""
        return len(self._ranked()[["repeat", "fold"]].drop_duplicates())

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores that a table shows: those of the task, and the one that ranks."""
        shown = METRICS_OF["classification" if self.classes else "regression"]
        return shown if self.by in shown else (self.by, *shown)

    def standings(self) -> list[ModelStanding]:
        """Return the models that did not fail, best first."""
        ranked = self._ranked()
        if ranked.empty:
            return []
        sign = -1.0 if self.by in LOWER_IS_BETTER else 1.0
        table = ranked.pivot(index=["repeat", "fold"], columns="model", values=self.by)
        order = (sign * table.mean(skipna=False)).sort_values(ascending=False, kind="stable").index
        best = order[0]
        ratio = float((ranked["rows_test"] / ranked["rows_train"]).mean())
        if len(table) > 1:
            tests = [corrected_t_test(table[best] - table[name], ratio)[1] for name in order[1:]]
        else:  # nothing is known of how the scores vary
            tests = [float("nan")] * (len(order) - 1)
        adjusted = [1.0, *holm(tests)]
        pairs = [(0, 0)] * len(order)
        if self.wrong.keys() >= set(order):
            first, *rest = (self.wrong[name] for name in order)
            pairs[1:] = [(int((each & ~first).sum()), int((first & ~each).sum())) for each in rest]
        # the best is one of them all: each pair might have been looked at
        by_rows = [1.0, *np.minimum(holm([sign_test(*each) for each in pairs[1:]]) * len(order) / 2, 1.0)]
        columns = [*self.metrics, "seconds"]
        groups = ranked.groupby("model")[columns]
        means, spreads = groups.mean(), groups.std(ddof=1)
        return [
            ModelStanding(
                str(name),
                {column: float(means.loc[name, column]) for column in columns},
                {column: float(spreads.loc[name, column]) for column in columns},
                float((table[name] - table[best]).mean()),
                1.0 if name == best else float(tests[k - 1]),
                float(adjusted[k]),
                pairs[k],
                float(by_rows[k]),
            )
            for k, name in enumerate(order)
        ]

    def _ranked(self) -> pd.DataFrame:
        """Return the scores of the models that did not fail, of the folds that have the one that ranks."""
        scores = self.scores[~self.scores["model"].isin(list(self.failures))]
        folds = scores.groupby(["repeat", "fold"])
        ranked = folds[self.by].transform("count") > 0  # one class has no AUC
        if self.interrupted:  # the folds of all models
            ranked &= folds["model"].transform("count") == scores["model"].nunique()
        return scores[ranked]


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

    Raises `UsboostError` as `evaluate.folds_of`, or if there is no column `by_column`. A model that fails
    stops no other: its reason is in the answer.

    Parameters
    ----------
    models : by name; each is built with a repeat's seed.
    folds, repeats : of the stratified cross-validation, the same for all models.
    jobs : fits at a time, in threads.
    by : the score that the models are ranked by, one of `ranking.RANKING` or as scikit-learn names it; by
        default accuracy, or RMSE.
    by_column : a column by whose groups the models are scored, too.
    keep : a folder for the records of finished fits, which are not made again; see `Records`.
    progress : called with (fits done, fits in all); those skipped after a failure count as done.
    running : called with the fits that run, model, fold and round of each, whenever one of these changes.
    slow : called with a sentence on a model that takes far longer than the others, once this is known.
    """
    by = check_metric(by or TASKS[table.task].first, RANKING[table.task])
    parts = folds_of(table, folds, repeats, seed)
    tasks = [(name, k) for k in range(len(parts)) for name in models]
    slices = None
    if by_column is not None:
        kind, form = table.kinds.get(by_column), table.formats.get(by_column)
        missing = table.spec.missing
        slices = read_slices(table.file, by_column, table.rows, missing=missing, kind=kind, form=form)
    fit, running_now = _FoldFits(table, models, parts, seed, keep, slices is not None, slow), Running(running)
    failures: dict[str, str] = {}

    def result_of(task: tuple[str, int]) -> Record | str | None:
        """Return the record of a fit, the reason of its failure, or None for a model that failed before."""
        name, k = task
        if name in failures:
            return None
        with running_now.during(f"{name} on fold {k + 1} of {len(parts)}") as show:
            try:
                return fit.record(name, k, show)
            except Exception as error:  # which must not lose the results of the other models
                return failure(error)

    ended: dict[int, Record] = {}
    interrupted = False
    try:
        for done, (index, result) in enumerate(in_threads(result_of, tasks, jobs), start=1):
            if isinstance(result, str):
                failures.setdefault(tasks[index][0], result)
            elif result is not None:
                ended[index] = result
            if progress:
                progress(done, len(tasks))
    except KeyboardInterrupt:
        interrupted = True
    # by repeat, fold and the order of the models, as tasks are
    fits = [(tasks[k][0], parts[tasks[k][1]], ended[k]) for k in sorted(ended)]
    # the same rows may have been another fold of another comparison
    rows = [{"model": m, **each.row, "repeat": fold.repeat, "fold": fold.fold} for m, fold, each in fits]
    columns = ["model", "repeat", "fold", "rows_train", "rows_test", *RANKING[table.task], "seconds"]
    whole = dict.fromkeys(columns[1:5], np.int64)  # cached ones are read as floats
    scores, cached = pd.DataFrame(rows, columns=columns).astype(whole), fit.records.cached
    comparison = Comparison(scores, failures, by, table.classes, len(tasks), interrupted, cached)
    if ended and scores[by].isna().all():
        raise UsboostError(f"no test rows have {metric_name(by)}; rank by another score (`by`)")
    return comparison if interrupted else _by_rows(comparison, table, fits, slices)


@dataclass
class _FoldFits:
    """Fits of models to folds of a table: each is made once, recorded, timed and shown."""

    table: UserTable
    models: Mapping[str, Build]
    parts: Sequence[Fold]
    seed: int
    keep: Path | None
    predictions: bool
    slow: Callable[[str], None] | None

    def __post_init__(self) -> None:
        self.records = Records(self.keep, self.table, predictions=self.predictions)
        self.pace, self.images = Pace(len(self.parts), self.slow), Embedded(self.table)
        # learning from text takes its time, and all models of a fold read the same
        self.data = lru_cache(maxsize=2)(lambda k: FitData.of(self.table, self.parts[k]))

    def record(self, name: str, k: int, show: Callable[[str], None]) -> Record:
        """Return the record of a model on the k-th fold, fitted now unless that has been done."""
        fold, table = self.parts[k], self.table
        model = self.models[name](self.seed + fold.repeat - 1)
        key = self.records.key(model, fold)
        record = self.records.get(key)
        if record is None:
            if "callbacks" in model.get_params(deep=False):
                model.set_params(callbacks=[Watched(name, self.pace, show)])
            self.images.prepare(model)  # else the first fit would seem to take as long as the images
            result = evaluate(model, self.data(k), table.task)
            # validation rows take part in the fit, too
            rows = {"rows_train": len(fold.train) + len(fold.val), "rows_test": len(fold.test)}
            row = {"repeat": fold.repeat, "fold": fold.fold, **rows, **result.scores}
            predicted = result.predicted if self.predictions else None
            wrong = result.predicted.argmax(axis=1) != table.labels[fold.test] if table.classes else None
            record = Record({**row, "seconds": result.seconds}, predicted, wrong)
            self.records.add(key, name, record)
        self.pace.ended(name, record.row["seconds"])
        return record


def _by_rows(
    comparison: Comparison, table: UserTable, fits: Sequence[tuple[str, Fold, Record]], slices: Slices | None
) -> Comparison:
    """Add which rows were answered wrongly, and the scores by groups, of the first repeat.

    In it each row is in one fold at most.
    """
    wrong, by_model = dict[str, np.ndarray](), dict[str, Sequence[Slice]]()
    for model in (each.model for each in comparison.standings()):
        first = [(fold, each) for name, fold, each in fits if name == model and fold.repeat == 1]
        if table.classes and table.groups is None:
            wrong[model] = np.concatenate([each.wrong for _, each in first])
        if slices is not None:
            tested = np.concatenate([fold.test for fold, _ in first])
            order = np.argsort(tested)
            tested, predicted = tested[order], np.concatenate([each.predicted for _, each in first])[order]
            given = table.labels[tested], predicted, slices.names, slices.codes[tested]
            by_model[model] = score_slices(*given, weights_of(table, tested))
    return replace(comparison, wrong=wrong, slices=by_model)


TIMES = 10
"""So many times the others' median is far longer."""

SOME = 3
"""A fit is judged by its rounds once it has taken so many times the others' median."""

SHORT = 30.0
"""Seconds of all fits of a model that nobody needs to hear of."""


class Pace:
    """Seconds of the fits that have ended; says once of a model that takes far longer than the others.

    There are so many `fits` of each model; `note` is called with the sentence.
    """

    def __init__(self, fits: int, note: Callable[[str], None] | None = None) -> None:
        self._fits, self._note = fits, note
        self._seconds: dict[str, list[float]] = {}
        self._known: set[str] = set()
        self._lock = Lock()

    def ended(self, model: str, seconds: float) -> None:
        """Count a fit that took so many seconds."""
        with self._lock:
            self._seconds.setdefault(model, []).append(seconds)
            for name, each in self._seconds.items():
                self._judge(name, fmean(each), "")

    def goes_on(self, model: str, seconds: float, whole: float, rounds: int) -> None:
        """Judge a fit that has taken so many seconds, and with all of its rounds will take `whole`."""
        with self._lock:
            if seconds >= SOME * self._usual(model):
                self._judge(model, whole, f" if it needs all of its {rounds:,} rounds")

    def _usual(self, model: str) -> float:
        others = [fmean(each) for name, each in self._seconds.items() if name != model]
        return median(others) if others else math.inf

    def _judge(self, model: str, seconds: float, where: str) -> None:
        usual = self._usual(model)
        left = self._fits - len(self._seconds.get(model, []))
        slow = seconds > TIMES * usual and left * seconds >= SHORT
        if self._note is None or model in self._known or not slow:
            return
        self._known.add(model)
        takes = "may take up to" if where else "will take about"
        self._note(
            f"{model} {takes} {duration(seconds)} a fit{where}, {duration(left * seconds)} for the "
            f"{left} still to make; the other models' median is {duration(usual)}. Leave it out of "
            f"`models`, or allow fewer `rounds`"
        )


def duration(seconds: float) -> str:
    """Return a time in words: seconds, or minutes, or hours."""
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Watched(Callback):
    """Shows the rounds of a fit while it runs, "round 12 of 100" say, and lets `Pace` judge them."""

    def __init__(self, model: str, pace: Pace, show: Callable[[str], None]) -> None:
        self._model, self._pace, self._show = model, pace, show
        self._began = time.perf_counter()

    def on_fit_begin(self, fit: Any) -> None:
        # a model may be made of several fits, one after the other
        self._rounds, self._first = int(fit.n_rounds), (0, 0.0)

    def on_round(self, round_: Round) -> bool:
        now = time.perf_counter()
        self._show(f"round {round_.index:,} of {self._rounds:,}")
        index, at = self._first
        if index:
            whole = at - self._began + (now - at) * (self._rounds - index) / (round_.index - index)
            self._pace.goes_on(self._model, now - self._began, whole, self._rounds)
        else:  # what is done once is in its seconds
            self._first = (round_.index, now)
        return False
