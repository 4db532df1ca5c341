"""Evaluate a model on a fold of a table: fit it, predict and score the rows that judge it, and time it."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch

from usboost.errors import UsboostError
from usboost.evaluation.calibration import clip_lower, floor_of
from usboost.evaluation.folds import Divisible, Fold, Related
from usboost.evaluation.task import TASKS
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.learners.networks.train import pick_device
from usboost.models.tuned_images import Weighted, fit_weighted, tune_images
from usboost.shards.collective import world
from usboost.table.user_table import UserTable

Build = Callable[[int], Any]
"""An unfitted model with a seed."""


@dataclass(frozen=True)
class WeightedRows:
    """Rows of a table that are on one side of a split.

    Attributes
    ----------
    rows : their positions, int64 (n,).
    weights : the table's, float64 (n,), or None: of calibration, threshold, margin and scores.
    in_fit : these times the weights of their classes, likewise: of the fit and of early stopping.
    """

    rows: np.ndarray
    weights: np.ndarray | None
    in_fit: np.ndarray | None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: np.ndarray) -> "WeightedRows":
        weights, in_fit = (None if each is None else each[some] for each in (self.weights, self.in_fit))
        return WeightedRows(self.rows[some], weights, in_fit)

    def together(self, others: "WeightedRows") -> "WeightedRows":
        """Return these and the others, in rising order."""
        rows = np.concatenate([self.rows, others.rows])
        order = np.argsort(rows)

        def both(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
            return None if first is None or second is None else np.concatenate([first, second])[order]

        return WeightedRows(rows[order], both(self.weights, others.weights), both(self.in_fit, others.in_fit))


def of_all_shards(
    part: WeightedRows, labels: np.ndarray, predicted: np.ndarray
) -> tuple[WeightedRows, np.ndarray, np.ndarray]:
    """Return rows with labels (n,) and predictions (n,) or (n, M) of all shards, or a sample of them.

    See `Shards.sample`. The positions are then those among these rows.
    """
    if world().count == 1:
        return part, labels, predicted
    chosen = world().sample(len(part))
    columns = [labels, predicted, *(() if part.weights is None else (part.weights,))]
    gathered = [np.concatenate(world().gather(each[chosen])) for each in columns]
    weights = gathered[2] if len(gathered) > 2 else None
    return WeightedRows(np.arange(len(gathered[0])), weights, None), gathered[0], gathered[1]


def weights_of(table: UserTable, rows: np.ndarray) -> np.ndarray | None:
    """Return the weights of some rows, float64, or None."""
    return None if table.weights is None else table.weights[rows]


def divisible(table: UserTable) -> Divisible:
    """Return what decides how a table's rows may be divided."""
    codes = table.labels if table.classes else None
    return Divisible(len(table), codes, table.groups, table.times, table.split)


def related_of(table: UserTable, rows: np.ndarray) -> Related | None:
    """Return how some rows are related, for splits inside a fit; None: in no way, also of gathered rows."""
    return replace(divisible(table), codes=None, splits=None)[rows].related


def check_classes(table: UserTable, train: np.ndarray, *others: np.ndarray) -> None:
    """Refuse a split in which some class is not among the rows that are fitted to, naming it."""
    if not table.classes:
        return
    seen = world().sum(np.bincount(table.labels[train], minlength=len(table.classes))) > 0
    if not seen.all():
        name = table.classes[int(seen.argmin())]
        raise UsboostError(
            f"{table.file}: class {name!r} is not among the rows that are fitted to, as they are divided; "
            f"divide them in another way, or take the class out (`missing={name!r}` does, for all columns)"
        )


def folds_of(
    table: UserTable, folds: int, repeats: int, seed: int, *, test_is_seen: bool = True
) -> list[Fold]:
    """Return folds of a table; of each fold's other rows 15 % are for early stopping. See `Divisible.folds`.

    Raises `UsboostError` if there are under 2 folds, or too few rows of a class, groups or times for them.

    Parameters
    ----------
    test_is_seen : whether rows that the user calls test rows are the one fold; else they are in no fold, and
        the others are divided as if the user had not said how.
    """
    rows, own = divisible(table), np.arange(len(table))
    if rows.splits is not None and not test_is_seen:
        own = np.flatnonzero(rows.splits != "test")
        rows = replace(rows[own], splits=None)
    if rows.codes is not None and rows.splits is None and folds >= 2:
        counts = np.bincount(rows.codes, minlength=len(table.classes))
        least = int(counts.argmin())
        # the second term: rows of the class that remain without the largest fold
        few = counts[least] < folds or counts[least] - -(-counts[least] // folds) < 2
        if few or (counts[least] == folds and not test_is_seen):
            raise UsboostError(
                f"{table.file}: class {table.classes[least]!r} of {table.spec.label!r} has {counts[least]} "
                f"rows, too few for {folds} folds; add rows of it, leave it out, or change `folds`"
            )
    splits = [
        Fold(each.repeat, each.fold, own[each.train], own[each.val], own[each.test])
        for each in rows.folds(folds, repeats, seed)
    ]
    for fold in splits:
        check_classes(table, fold.train)
    return splits


@dataclass(frozen=True)
class FitData:
    """Rows as models take them.

    Attributes
    ----------
    train, val, test : to fit to, to stop on (None: the model knows how far to go), and to be judged by.
    related : how those to fit to are related; groups : codes of the rows to be judged by, int64 (n,).
    """

    train: Weighted
    val: Weighted | None
    test: Weighted
    related: Related | None = None
    groups: np.ndarray | None = None

    @classmethod
    def of(cls, table: UserTable, fold: Fold) -> "FitData":
        """Return a fold's rows; encoders learn from its training rows only."""
        encoding = table.fit_encoding(fold.train)
        parts = [fold.train, fold.val, *(() if fold.test is fold.val else (fold.test,))]
        train, val, *test = [
            (table.views(encoding, rows), table.labels[rows], weights_of(table, rows)) for rows in parts
        ]
        groups = None if table.groups is None else table.groups[fold.test]
        return cls(train, val, test[0] if test else val, related_of(table, fold.train), groups)


@dataclass(frozen=True)
class Evaluated:
    """The result of a fit.

    Attributes
    ----------
    predicted : of the rows that judge it: probabilities float64 (n, M), or numbers float64 (n,).
    scores : of these, by name; seconds : of the fit, without tuning images.
    """

    model: Any
    predicted: np.ndarray
    scores: dict[str, float]
    seconds: float


def evaluate(model: Any, data: FitData, task: str) -> Evaluated:
    """Fit a model, predict the rows that judge it, and score it by all scores of the task.

    Parameters
    ----------
    model : unfitted, of the data's views; it is fitted itself.
    task : of `TASKS`; predicted numbers are not below the floor of those that were fitted to.
    """
    # all models of a fold have the same tuning of their images, so that it counts for the seconds of none
    tune_images(model, data.train, data.val)
    started = time.perf_counter()
    fit_weighted(model, data.train, data.val, data.related)
    seconds = time.perf_counter() - started
    views, labels, weights = data.test
    predicted = TASKS[task].predict(model, views)
    if task == "regression":
        predicted = clip_lower(predicted, floor_of(data.train[1]))
    return Evaluated(model, predicted, TASKS[task].ranked(labels, predicted, weights), seconds)


def failure(error: Exception) -> str:
    """Return the reason of a failed fit in one line."""
    kind = "" if isinstance(error, UsboostError) else f"{type(error).__name__}: "
    return f"{kind}{error}".strip().splitlines()[0]


class Embedded:
    """The embeddings of a table's images, made once for each frozen backbone of models; of any thread.

    They are made before a fit is timed, or before processes begin that would all make them.
    """

    def __init__(self, table: UserTable) -> None:
        self._table = table
        self._done: set[str] = set()
        self._lock = Lock()

    def prepare(self, model: Any) -> None:
        """Embed the images for the backbones of a model, if that has not been done."""
        if not self._table.images:
            return
        parts = [part for part in model.get_params(deep=True).values() if isinstance(part, Backbone)]
        with self._lock:
            for backbone in parts:
                if not backbone.is_frozen or repr(backbone) in self._done:
                    continue
                self._done.add(repr(backbone))
                with suppress(UsboostError):  # the fit raises it again
                    for view in self._table.images.values():
                        embedded(view, backbone, pick_device("auto"))


Work = TypeVar("Work")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Work], Result], work: Sequence[Work], jobs: int
) -> Iterator[tuple[int, Result]]:
    """Yield the position and the result of each piece of work as it is done, in order with one job."""
    if jobs <= 1:
        yield from ((k, function(each)) for k, each in enumerate(work))
        return
    pool = ThreadPoolExecutor(jobs)
    with torch_threads(max(1, torch.get_num_threads() // jobs)):
        waiting: dict[Future[Result], int] = {pool.submit(function, each): k for k, each in enumerate(work)}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        finally:  # an interruption waits for no fit
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute in so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
