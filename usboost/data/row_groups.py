"""Rows that belong together or follow one another, and how they may be divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold

from usboost.errors import UsboostError, option, silenced

Split = tuple[np.ndarray, np.ndarray]
"""Positions of rows to fit to, and of rows that judge the fit; both in rising order."""


@dataclass(frozen=True)
class Related:
    """How n rows are related; one of the two is given.

    In all methods y holds classes, int (n,), whose shares each part keeps as far as whole groups allow, or
    numbers, which count for nothing.

    Attributes
    ----------
    groups : int64 (n,): rows of one group are never on two sides of a split.
    times : sortable (n,): no fit is judged by rows that are not later than those it has seen; rows of one
        time stay together.
    """

    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    @classmethod
    def of(cls, groups: Any, times: Any, n: int) -> Related | None:
        """Take what a user gives of n rows; None where that is nothing.

        Raises UsboostError if both are given, or there is not one for each row.
        """
        if groups is not None and times is not None:
            raise UsboostError("rows are divided in one way: leave the groups out, or the times")
        for name, each in (("groups", groups), ("times", times)):
            if each is not None and np.shape(each) != (n,):
                raise UsboostError(
                    f"{name} has the shape {np.shape(each)}; give one for each of the {n} rows"
                )
        if groups is not None:
            return cls(groups=np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64))
        return None if times is None else cls(times=np.asarray(times))

    def __getitem__(self, rows: np.ndarray) -> Related:
        return Related(*(None if each is None else each[rows] for each in (self.groups, self.times)))

    @property
    def arguments(self) -> dict[str, np.ndarray]:
        """What a model's ``fit`` takes."""
        return {name: each for name, each in vars(self).items() if each is not None}

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The same, each array after its name: for digests."""
        return tuple(each for name, array in self.arguments.items() for each in (np.array(name), array))

    @property
    def several(self) -> bool:
        """True if there are two groups or times at least, so that rows can be divided at all."""
        return any((array[1:] != array[:1]).any() for array in self.arguments.values())

    def hold_out(self, share: float, y: np.ndarray | None, seed: int) -> Split:
        """Divide rows to fit to from about a share of all: a whole number of groups, or the last rows.

        Raises UsboostError if there is one group, or one time, only.
        """
        if self.times is not None:
            order, starts = self._several_times()
            cut = _nearest(starts[1:], np.array([(1 - share) * len(order)]))[0]
            return np.sort(order[:cut]), np.sort(order[cut:])
        part = self.parts(max(2, round(1 / share)), y, seed)
        return np.flatnonzero(part != 0), np.flatnonzero(part == 0)

    def _several_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Order the rows as `by_time`; one time only is refused."""
        assert self.times is not None
        order, starts = by_time(self.times)
        if len(starts) < 2:
            raise UsboostError(
                f"all rows have the same time, so none is later than the others; leave {option('time')} out"
            )
        return order, starts

    def parts(self, most: int, y: np.ndarray | None, seed: int) -> np.ndarray:
        """Number the part that each row is in, int64 (n,), 0..k−1 with k ≤ `most`: whole groups drawn by
        chance, or stretches of time in their order.

        Raises UsboostError if there is one group, or one time, only.
        """
        if self.times is not None:
            order, starts = self._several_times()
            cuts = np.unique(_nearest(starts[1:], len(order) * np.arange(1, most) / most))
            stretches = np.empty(len(order), dtype=np.int64)
            stretches[order] = np.searchsorted(cuts, np.arange(len(order)), side="right")
            return stretches
        assert self.groups is not None
        codes = y if y is not None and y.dtype.kind in "iu" else None
        found = len(np.unique(self.groups))
        k = min(most, found, len(self.groups) if codes is None else int(np.bincount(codes).max()))
        if k < 2:
            raise UsboostError(
                f"rows cannot be divided by group: that needs 2 groups, and 2 rows of a class, but there "
                f"{'is one group' if found == 1 else f'are {found} groups'}; leave {option('group')} out"
            )
        # of numbers as of one class: groups by chance, and parts of about one size
        strata = np.zeros(len(self.groups), dtype=np.int64) if codes is None else codes
        splitter = StratifiedGroupKFold(k, shuffle=True, random_state=seed % 2**32)
        part = np.empty(len(self.groups), dtype=np.int64)
        with silenced("The least populated class"):
            for index, (_, held) in enumerate(splitter.split(part, strata, self.groups)):
                part[held] = index
        names, part = np.unique(part, return_inverse=True)
        # the first part gets the groups with the most rows of one class: which part is first is drawn, too
        return np.random.default_rng(seed % 2**32).permutation(len(names))[part]

    def folds(self, most: int, y: np.ndarray, seed: int) -> list[Split]:
        """Make at most so many splits: rows to fit to, some of each class among them, and rows that judge it.

        By group, each part in turn; groups that a class would be missing without stay among the rows that are
        fitted to. By time, the later half of the rows is cut into stretches, and each is judged by a fit to
        all rows before it; the last stretch, whose fit has seen most rows, comes first. Raises UsboostError
        if the rows cannot be divided so.
        """
        if self.times is not None:
            order, starts = by_time(self.times)
            n = len(order)
            cuts = np.unique(_nearest(starts[1:], n * (0.5 + np.arange(most) / (2 * most)))).tolist()
            ends = [*cuts[1:], n]
            stretches = [(np.sort(order[:a]), np.sort(order[a:b])) for a, b in zip(cuts, ends)]
            found = [each for each in reversed(stretches) if not len(_lacking(y, each[0]))]
            if not found:
                raise UsboostError(
                    "no row is later than rows of every class, so no fit can be judged by later rows; "
                    f"leave {option('time')} out, or choose a single model"
                )
            return found
        part, found = self.parts(most, y, seed), []
        for k in range(int(part.max()) + 1):
            held = part == k
            for label in _lacking(y, np.flatnonzero(~held)):
                held &= self.groups != self.groups[np.argmax(y == label)]  # type: ignore[index]
            if held.any():
                found.append((np.flatnonzero(~held), np.flatnonzero(held)))
        if not found:
            raise UsboostError(
                "each class is in one group only, so no group can be held out; leave "
                f"{option('group')} out, or choose a single model"
            )
        return found


def inner_folds(y: np.ndarray, most: int, seed: int, related: Related | None = None) -> list[Split]:
    """Make at most so many splits of n rows, to fit to and to judge the fit by; a row judges once at most.

    Raises UsboostError if the rows cannot be divided.

    Parameters
    ----------
    y : classes, int (n,), of which each part has its share; the one row of a class is always fitted to. Or
        numbers, float (n,)
    related : how the rows are related; the splits are then those of `Related.folds`
    """
    if related is not None:
        return related.folds(most, y, seed)
    if y.dtype.kind not in "iu":
        if len(y) < 2:
            raise UsboostError("there is one row only, so no fold can be held out; add rows")
        return list(KFold(min(most, len(y)), shuffle=True, random_state=seed).split(y))
    counts = np.bincount(y)
    if counts.max() < 2:
        raise UsboostError("each class has one row only, so no fold can be held out; add rows")
    single, others = np.flatnonzero(counts[y] == 1), np.flatnonzero(counts[y] > 1)
    splitter = StratifiedKFold(min(most, int(counts.max())), shuffle=True, random_state=seed)
    with silenced("The least populated class"):
        splits = list(splitter.split(others, y[others]))
    return [(np.sort(np.concatenate([single, others[seen]])), others[held]) for seen, held in splits]


def by_time(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order the rows from the earliest to the latest, and find where each different time begins."""
    order = np.argsort(times, kind="stable")
    ranked = times[order]
    return order, np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))


def _nearest(starts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Find the start that is nearest to each position, the first of equals; none where there is no start."""
    return starts[np.abs(starts[:, None] - wanted).argmin(axis=0)] if len(starts) else starts


def _lacking(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """List the classes that are not among some rows."""
    return np.setdiff1d(y, y[rows]) if y.dtype.kind in "iu" else y[:0]
