"""Which rows a table's model is fitted to, stops early on, and is scored on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

from usboost.data.row_groups import Related, by_time
from usboost.datasets.sampling import stratified_parts, stream
from usboost.errors import UsboostError, option
from usboost.shards.collective import world
from usboost.table.user_table import UserTable

HELD_OUT = 0.15
"""Share of the rows for early stopping."""


@dataclass(frozen=True)
class Rows:
    """What is known of n rows that decides how they may be divided; at most one of the last three is given.

    Attributes
    ----------
    n : how many.
    codes : classes int64 (n,), whose shares each part keeps; None where a number is predicted.
    groups : int64 (n,): rows of one group are never on two sides.
    times : sortable (n,): no row is fitted to that is later than one that is held out; equal times stay
        together.
    splits : str (n,), ``train``, ``val`` or ``test``: as the user says.
    """

    n: int
    codes: np.ndarray | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    splits: np.ndarray | None = None

    def __getitem__(self, rows: np.ndarray) -> Rows:
        fields = (self.codes, self.groups, self.times, self.splits)
        return Rows(len(rows), *(None if each is None else each[rows] for each in fields))

    @property
    def related(self) -> Related | None:
        """How they are related, for splits inside a fit."""
        if self.groups is None and self.times is None:
            return None
        return Related(self.groups, self.times)


@dataclass(frozen=True)
class Fold:
    """Positions of the training, validation and test rows."""

    repeat: int
    fold: int
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def hold_out(rows: Rows, seed: int, share: float = HELD_OUT) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit to, and about a `share` of all for early stopping; both in rising order.

    By group, a whole number of groups; by time, the last rows; as the user says, ``train`` and ``val``. In a
    shard each row is drawn by itself.
    Raises UsboostError if there is one group, or one time, only.
    """
    if rows.splits is not None:
        train, held = np.flatnonzero(rows.splits == "train"), np.flatnonzero(rows.splits == "val")
        for name, found in (("train", train), ("val", held)):
            if not world().sum(len(found)):
                raise UsboostError(
                    f"no row that counts has {option('split')} {name}; give some such row a weight above 0"
                )
        return train, held
    if rows.related is not None:
        return rows.related.hold_out(share, rows.codes, seed)
    if world().count > 1:
        drawn = np.random.default_rng(world().seed(seed)).random(rows.n) < share
        return np.flatnonzero(~drawn), np.flatnonzero(drawn)
    if rows.codes is None:
        order = np.random.default_rng(seed).permutation(rows.n)
        cut = round((1 - share) * rows.n)
        return np.sort(order[:cut]), np.sort(order[cut:])
    train, held = stratified_parts(rows.codes, (1 - share, share), seed)
    return train, held


def folds_of(rows: Rows, folds: int, repeats: int, seed: int) -> Iterator[Fold]:
    """Folds of a cross-validation; of each fold's other rows some are for early stopping.

    By time, fold k is tested on the k-th of `folds` later parts of the rows and fitted to all before it. As
    the user says, there is one fold. Both are the same in each repeat but for what is drawn by chance, so
    there is one repeat only. Raises UsboostError if there are under 2 folds, or too few groups or times for
    them.
    """
    if folds < 2 or repeats < 1:
        raise UsboostError("a comparison needs 2 folds or more and 1 repeat or more")
    for repeat in range(1 if rows.splits is not None or rows.times is not None else repeats):
        for fold, (rest, test) in enumerate(_parts(rows, folds, stream(seed, repeat) % 2**32)):
            train, val = hold_out(rows[rest], stream(seed, repeat, fold))
            yield Fold(repeat + 1, fold + 1, rest[train], rest[val], test)


def _parts(rows: Rows, folds: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows to learn from, and those to be scored on."""
    if rows.splits is not None:
        test = rows.splits == "test"
        if not test.any():
            raise UsboostError(
                f"a comparison needs rows whose {option('split')} is test; add them, or leave "
                f"{option('split')} out"
            )
        yield np.flatnonzero(~test), np.flatnonzero(test)
    elif rows.times is not None:
        order, starts = by_time(rows.times)
        if len(starts) < folds + 2:
            raise UsboostError(
                f"{folds} folds by time need {folds + 2} different times, but there are {len(starts)}; "
                "ask for fewer folds"
            )
        wanted = np.rint(np.arange(1, folds + 1) * rows.n / (folds + 1))
        # strictly rising, with two times left before the first and each fold's own after
        cuts, low = [], 2
        for k, each in enumerate(wanted):
            choices = np.arange(low, len(starts) - (folds - 1 - k))
            chosen = int(choices[np.abs(starts[choices] - each).argmin()])
            cuts.append(int(starts[chosen]))
            low = chosen + 1
        for first, last in zip(cuts, [*cuts[1:], rows.n], strict=True):
            yield np.sort(order[:first]), np.sort(order[first:last])
    elif rows.groups is not None:
        yield from _grouped(rows, folds, seed)
    else:
        splitter = KFold if rows.codes is None else StratifiedKFold
        yield from splitter(folds, shuffle=True, random_state=seed).split(np.zeros(rows.n), rows.codes)


def _grouped(rows: Rows, folds: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    assert rows.groups is not None
    found = len(np.unique(rows.groups))
    if found < folds:
        raise UsboostError(
            f"{folds} parts by group need as many groups, but there {'is' if found == 1 else 'are'} "
            f"{found}; ask for fewer folds, or leave {option('group')} out"
        )
    part = Related(groups=rows.groups).parts(folds, rows.codes, seed)
    if (most := int(part.max()) + 1) < folds:
        raise UsboostError(
            f"the {found} groups, some with most rows of a class, make {most} parts and not {folds}; "
            f"ask for {most} folds, or leave {option('group')} out"
        )
    for k in range(folds):
        yield np.flatnonzero(part != k), np.flatnonzero(part == k)


@dataclass(frozen=True)
class Part:
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

    def __getitem__(self, some: np.ndarray) -> Part:
        weights, in_fit = (None if each is None else each[some] for each in (self.weights, self.in_fit))
        return Part(self.rows[some], weights, in_fit)


def of_all_shards(
    part: Part, labels: np.ndarray, predicted: np.ndarray
) -> tuple[Part, np.ndarray, np.ndarray]:
    """Rows with labels (n,) and predictions (n,) or (n, M): those of all shards, or a sample of them.

    See `Shards.sample`. The positions are then those among these rows.
    """
    if world().count == 1:
        return part, labels, predicted
    chosen = world().sample(len(part))
    columns = [labels, predicted, *(() if part.weights is None else (part.weights,))]
    found = [np.concatenate(world().gather(each[chosen])) for each in columns]
    return Part(np.arange(len(found[0])), found[2] if len(found) > 2 else None, None), found[0], found[1]


def counted_rows(table: UserTable) -> np.ndarray:
    """The positions of the rows that count: all but those of weight 0."""
    return np.arange(len(table)) if table.weights is None else np.flatnonzero(table.weights)


def weights_of(table: UserTable, rows: np.ndarray) -> np.ndarray | None:
    """The weights of some rows, float64, or None."""
    return None if table.weights is None else table.weights[rows]


def rows_of(table: UserTable) -> Rows:
    """What decides how a table's rows may be divided."""
    codes = table.labels if table.classes else None
    return Rows(len(table), codes, table.groups, table.times, table.split)


def related_of(table: UserTable, rows: np.ndarray) -> Related | None:
    """How some rows are related, for splits inside a fit; None: in no way."""
    related = rows_of(table).related
    return None if related is None else related[rows]


def arrays_of(related: Related | None) -> tuple[np.ndarray, ...]:
    """For the digest of what is fitted to."""
    return () if related is None else related.arrays
