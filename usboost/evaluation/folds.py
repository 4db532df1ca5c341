"""Make folds: which rows a fit learns from, which stop it and which judge it. All that divides rows is here.

Rows of one group stay on one side, no row is judged by a fit that has seen later ones, each part has the
classes' shares, and the user's own split comes before all of this.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usboost.errors import UsboostError, silenced
from usboost.shards.collective import world

VAL_SHARE = 0.15
"""Share of the rows for early stopping."""

Split = tuple[np.ndarray, np.ndarray]
"""Positions of rows to fit to, and of rows that judge the fit; both in rising order."""


@dataclass(frozen=True)
class Related:
    """Groups or times of n rows; one of the two is given.

    In all methods y holds classes, int (n,), whose shares each part keeps as far as whole groups allow, or
    numbers, which count for nothing.

    Attributes
    ----------
    groups : int64 (n,): rows of one group are never on two sides of a split.
    times : sortable (n,): a fit is judged by later rows than it has seen; rows of one time stay together.
    """

    groups: np.ndarray | None = None
    times: np.ndarray | None = None

    @classmethod
    def of(cls, groups: Any, times: Any, n: int) -> "Related | None":
        """Make it of what a user gives of n rows; return None where that is nothing.

        Raises UsboostError if both are given, or there is not one for each row.
        """
        if groups is not None and times is not None:
            raise UsboostError("rows are divided in one way: leave the groups out, or the times")
        for name, each in (("groups", groups), ("times", times)):
            if each is not None and np.shape(each) != (n,):
                raise UsboostError(f"{name} has the shape {np.shape(each)}; give one for each of {n} rows")
            if each is not None and (lacking := pd.isna(np.asarray(each))).any():
                raise UsboostError(f"{name} has no value in row {lacking.argmax()}; give one, or drop it")
        if groups is not None:
            return cls(groups=np.unique(np.asarray(groups), return_inverse=True)[1].astype(np.int64))
        return None if times is None else cls(times=np.asarray(times))

    def __getitem__(self, rows: np.ndarray) -> "Related":
        return Related(*(None if each is None else each[rows] for each in (self.groups, self.times)))

    @property
    def arguments(self) -> dict[str, np.ndarray]:
        """The arguments of a model's ``fit``."""
        given = {"groups": self.groups, "times": self.times}
        return {name: each for name, each in given.items() if each is not None}

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The same, each array after its name: for digests."""
        return tuple(each for name, array in self.arguments.items() for each in (np.array(name), array))

    @property
    def several(self) -> bool:
        """True where there are two groups or times at least, so that rows can be divided at all."""
        return any((array[1:] != array[:1]).any() for array in self.arguments.values())

    def hold_out(self, share: float, y: np.ndarray | None, seed: int) -> Split:
        """Return rows to fit to, and about a share of all: whole groups (two at least), or the last rows."""
        if self.times is not None:
            order, starts = self._several_times()
            cut = _nearest(starts[1:], np.array([(1 - share) * len(order)]))[0]
            return np.sort(order[:cut]), np.sort(order[cut:])
        return self._by_group(max(2, round(1 / share)), y, seed)[0]

    def _several_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Return what `by_time` does; refuse one time only."""
        assert self.times is not None
        order, starts = by_time(self.times)
        if len(starts) < 2:
            raise UsboostError("all rows have the same time, so none is later than others; leave `time` out")
        return order, starts

    def parts(self, most: int, y: np.ndarray | None, seed: int) -> np.ndarray:
        """Return the part that each row is in, int64 (n,), 0..k−1 with k ≤ `most`: whole groups drawn by
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
        n_groups = len(np.unique(self.groups))
        k = min(most, n_groups, len(self.groups) if codes is None else int(np.bincount(codes).max()))
        if k < 2:
            raise UsboostError(
                f"rows cannot be divided by group: that needs 2 groups, and 2 rows of a class, but there "
                f"{'is one group' if n_groups == 1 else f'are {n_groups} groups'}; leave `group` out"
            )
        # of numbers as of one class: groups by chance, and parts of about one size
        strata = np.zeros(len(self.groups), dtype=np.int64) if codes is None else codes
        from sklearn.model_selection import StratifiedGroupKFold  # here: a refusal loads none of it

        splitter = StratifiedGroupKFold(k, shuffle=True, random_state=seed % 2**32)
        part = np.empty(len(self.groups), dtype=np.int64)
        with silenced("The least populated class"):
            for index, (_, rows) in enumerate(splitter.split(part, strata, self.groups)):
                part[rows] = index
        names, part = np.unique(part, return_inverse=True)
        # the first part gets the groups with the most rows of one class: which part is first is drawn, too
        return np.random.default_rng(seed % 2**32).permutation(len(names))[part]

    def folds(self, most: int, y: np.ndarray, seed: int) -> list[Split]:
        """Make at most so many folds: rows to fit to, among them some of each class, and rows that judge
        the fit.

        By group, each part in turn; groups that a class would be missing without stay among the rows that are
        fitted to. By time, the later half of the rows is cut into stretches, and each is judged by a fit to
        all rows before it; the last stretch, whose fit has seen most rows, comes first. Raises UsboostError
        if the rows cannot be divided so.
        """
        if self.times is not None:
            order, starts = by_time(self.times)
            n = len(order)
            cuts = np.unique(_nearest(starts[1:], n * (0.5 + np.arange(most) / (2 * most)))).tolist()
            stretches = [(np.sort(order[:a]), np.sort(order[a:b])) for a, b in zip(cuts, [*cuts[1:], n])]
            splits = [each for each in reversed(stretches) if not len(_lacking(y, each[0]))]
            if not splits:
                raise UsboostError(
                    "no row is later than rows of every class, so no fit can be judged by later rows; "
                    "leave `time` out, or add rows of more times"
                )
            return splits
        return self._by_group(most, y, seed)

    def _by_group(self, most: int, y: np.ndarray | None, seed: int) -> list[Split]:
        """Return rows to fit to, which have every class, and others; one split at least."""
        part, splits = self.parts(most, y, seed), []
        for k in range(int(part.max()) + 1):
            val = part == k
            for label in () if y is None else _lacking(y, np.flatnonzero(~val)):
                val &= self.groups != self.groups[np.argmax(y == label)]  # type: ignore[index]
            if val.any():
                splits.append((np.flatnonzero(~val), np.flatnonzero(val)))
        if not splits:
            raise UsboostError("each class is in one group, so none can be left out; leave `group` out")
        return splits


def inner_folds(y: np.ndarray, most: int, seed: int, related: Related | None = None) -> list[Split]:
    """Make at most so many folds of n rows: to fit to, and to judge by; each row judges once at most.

    Parameters
    ----------
    y : classes, int (n,), of which each part has its share; the one row of a class is always fitted to. Or
        numbers, float (n,)
    related : how the rows are related; the splits are then those of `Related.folds`

    Raises `UsboostError` if the rows cannot be divided.
    """
    if related is not None:
        return related.folds(most, y, seed)
    from sklearn.model_selection import KFold, StratifiedKFold

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
    return [(np.sort(np.concatenate([single, others[seen]])), others[val]) for seen, val in splits]


def by_time(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows from the earliest to the latest, and where each different time begins among them."""
    order = np.argsort(times, kind="stable")
    ranked = times[order]
    return order, np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))


def _nearest(starts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return of each position the nearest of the starts, the first of equals; none without a start."""
    if not len(starts):
        return starts
    return starts[np.abs(starts[:, None] - wanted).argmin(axis=0)]


def _lacking(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the classes that are not among some rows."""
    return np.setdiff1d(y, y[rows]) if y.dtype.kind in "iu" else y[:0]


@dataclass(frozen=True)
class Fold:
    """Positions of the rows to fit to, of those that stop the fit, and of those that judge it.

    `repeat` and `fold` are counted from 1.
    """

    repeat: int
    fold: int
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Divisible:
    """All that decides how n rows may be divided; at most one of the last three is given.

    Attributes
    ----------
    n : how many.
    codes : classes int64 (n,), whose shares each part keeps; None where a number is predicted.
    groups, times : as of `Related`.
    splits : str (n,), ``train``, ``val`` or ``test``: as the user says.
    """

    n: int
    codes: np.ndarray | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    splits: np.ndarray | None = None

    def __getitem__(self, rows: np.ndarray) -> "Divisible":
        fields = (self.codes, self.groups, self.times, self.splits)
        return Divisible(len(rows), *(None if each is None else each[rows] for each in fields))

    @property
    def related(self) -> Related | None:
        """Groups or times, for splits inside a fit."""
        return None if self.groups is None and self.times is None else Related(self.groups, self.times)

    def hold_out(self, seed: int, share: float = VAL_SHARE) -> Split:
        """Return rows to fit to, and about a `share` of all for early stopping; both in rising order.

        By group, a whole number of groups; by time, the last rows; as the user says, ``train`` and ``val``.
        In a shard each row is drawn by itself.
        Raises UsboostError if there is one group, or time, only, or each class is in one group only.
        """
        if self.splits is not None:
            return np.flatnonzero(self.splits == "train"), np.flatnonzero(self.splits == "val")
        if self.related is not None:
            return self.related.hold_out(share, self.codes, seed)
        if world().count > 1:
            drawn = np.random.default_rng(world().seed(seed)).random(self.n) < share
            return np.flatnonzero(~drawn), np.flatnonzero(drawn)
        shares, codes = (1 - share, share), self.codes
        whole = random_parts(self.n, shares, seed) if codes is None else stratified_parts(codes, shares, seed)
        return whole[0], whole[1]

    def folds(self, folds: int, repeats: int, seed: int) -> Iterator[Fold]:
        """Make the folds of a cross-validation; of each fold's other rows some are for early stopping.

        By time, fold k is tested on the k-th of `folds` later parts of the rows and fitted to all before it.
        As the user says, there is one fold. Both are the same in each repeat but for what is drawn by chance,
        so there is one repeat only. Raises UsboostError if there are under 2 folds, or too few groups or
        times for them.
        """
        if folds < 2 or repeats < 1:
            raise UsboostError("a comparison needs 2 folds or more and 1 repeat or more")
        if repeats > 1 and (self.splits is not None or self.times is not None):
            raise UsboostError("rows that `time` or `split` divides are divided once; leave `repeats` out")
        for repeat in range(repeats):
            for fold, (rest, test) in enumerate(self._parts(folds, stream(seed, repeat) % 2**32)):
                train, val = self[rest].hold_out(stream(seed, repeat, fold))
                yield Fold(repeat + 1, fold + 1, rest[train], rest[val], test)

    def _parts(self, folds: int, seed: int) -> Iterator[Split]:
        """Yield the rows to learn from, and those to be scored on."""
        if self.splits is not None:
            test = self.splits == "test"
            if not test.any():
                raise UsboostError("a comparison needs rows whose `split` is test; add them, or leave it out")
            yield np.flatnonzero(~test), np.flatnonzero(test)
        elif self.times is not None:
            order, starts = by_time(self.times)
            if len(starts) < folds + 2:
                raise UsboostError(
                    f"{folds} folds by time need {folds + 2} different times, but there are {len(starts)}; "
                    "ask for fewer folds"
                )
            # strictly rising, with two times left before the first and each fold's own after
            cuts, low = [], 2
            for k, each in enumerate(np.rint(np.arange(1, folds + 1) * self.n / (folds + 1))):
                choices = np.arange(low, len(starts) - (folds - 1 - k))
                chosen = int(choices[np.abs(starts[choices] - each).argmin()])
                cuts.append(int(starts[chosen]))
                low = chosen + 1
            for first, last in zip(cuts, [*cuts[1:], self.n], strict=True):
                yield np.sort(order[:first]), np.sort(order[first:last])
        elif self.groups is not None:
            count = len(np.unique(self.groups))
            if count < folds:
                raise UsboostError(
                    f"{folds} parts by group need as many groups, but there {'is' if count == 1 else 'are'} "
                    f"{count}; ask for fewer folds, or leave `group` out"
                )
            part = Related(groups=self.groups).parts(folds, self.codes, seed)
            if (most := int(part.max()) + 1) < folds:
                raise UsboostError(
                    f"the {count} groups, some with most rows of a class, make {most} parts and not {folds}; "
                    f"ask for {most} folds, or leave `group` out"
                )
            for k in range(folds):
                yield np.flatnonzero(part != k), np.flatnonzero(part == k)
        else:
            from sklearn.model_selection import KFold, StratifiedKFold

            if folds > self.n:
                raise UsboostError(f"{self.n} rows are too few for {folds} folds; change `folds`")
            splitter = KFold if self.codes is None else StratifiedKFold
            yield from splitter(folds, shuffle=True, random_state=seed).split(np.zeros(self.n), self.codes)


def stratified_order(labels: ArrayLike, seed: int) -> np.ndarray:
    """Return the rows, int64 (n,), in a random order in which every class is spread evenly.

    A class of m rows gets the places (k + u) / m for k = 0..m−1, u uniform in [0, 1), in a random
    order of its rows. So any run of the order holds each class's share to within a few rows, and when
    no class has a single row, the first two thirds hold every class.
    """
    rng = np.random.default_rng(seed)
    _, codes, counts = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = (rank + np.repeat(rng.random(len(counts)), counts)) / np.repeat(counts, counts)
    return by_class[np.argsort(place, kind="stable")]


def stratified_parts(labels: ArrayLike, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Draw parts of about the given shares, each with the classes' shares and its rows in order.

    The last part gets what rounding leaves.
    """
    return _parts(stratified_order(labels, seed), shares)


def random_parts(n: int, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Return the same of n rows that have no classes."""
    return _parts(np.random.default_rng(seed).permutation(n), shares)


def _parts(order: np.ndarray, shares: Sequence[float]) -> list[np.ndarray]:
    cuts = np.rint(np.cumsum(shares[:-1]) * len(order)).astype(int)
    return [np.sort(part) for part in np.split(order, cuts)]


def stream(seed: int, *keys: int) -> int:
    """Return the seed that is set for one purpose: no choice depends on how many numbers another drew."""
    return int(np.random.SeedSequence(seed, spawn_key=keys).generate_state(1)[0])
