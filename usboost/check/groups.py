"""Groupings of rows that nobody named, and whether the rows of a group share the label.

Agreement is compared with labels exchanged at random, and that of equal numbers, which may tell of the label
by their size, also with the nearest row of another group.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.spatial import cKDTree
from scipy.stats import rankdata

from usboost.table.columns.column import Column, is_usable, plain_type
from usboost.table.user_table import UserTable, load

LARGEST = 50  # mean rows of a group of a feature; of larger ones a model learns as of any category
STRETCHES = 10  # parts of the rows in the order of the file, of each class, or in time
SHARED, DEVIATIONS = 0.2, 6.0  # the least share beyond chance; so many deviations, as columns may be hundreds
_DRAWS, _ROWS = 40, 5000
REPEATED = 0.2  # share of a column's numbers that are there twice, for them to be groups
_NAMED = re.compile(
    r"(?i)(.*[_\W])?(id|uid|key|subject|patient|person|user|customer|owner|family|house(hold)?|group|firm|company"
    r"|school|place|site|plot|field|farm|station|camera|scene|clip|video|session|batch|slide|specimen|animal"
    r"|tree|plant|fruit|unit|object|item)(s|[_\W]?(id|no|nr|name|key|code))?|.*(Id|ID)"
)
TIMES = re.compile(r"(?i)(.*[_\W])?(date|time|datetime|timestamp|year|month|quarter|week|day)s?")


@dataclass(frozen=True)
class Grouping:
    """Groups of n rows: what they are in words, the columns that they are of, their codes, int64 (n,), equal
    in a group, their kind ("rows", "column", "columns", "stem", "numbers", "twins", "order" or "time"),
    whether a model reads the column, the numbers (n, p) that are equal, if these may tell the label, and what
    to do."""

    what: str
    columns: tuple[str, ...]
    codes: np.ndarray
    kind: str
    is_read: bool = False
    numbers: np.ndarray | None = None
    advice: str = "put the group of each row in a column and name it with `group`"

    @property
    def is_entity(self) -> bool:
        """Return whether new rows may have other values: groups are small, or named as things are."""
        count = self.codes.max() + 1
        small = count >= 20 and len(self.codes) <= LARGEST * count
        return self.kind != "columns" and (small or ((not self.is_read or self.is_named) and count >= 5))

    @property
    def is_named(self) -> bool:
        """Return whether a column is named as things are."""
        return any(map(_NAMED.fullmatch, self.columns))


def texts_of(table: UserTable, without: Collection[str] = ()) -> dict[str, pd.Series]:
    """Return the values of n rows as text, NaN where missing, of all columns but the label, those named and
    those left out, also of columns that were dropped or are no features, and of paths of images."""
    file, named = table.file, {*table.spec.named, *without} - {*table.spec.image}
    names = [name for name in file.names if name not in named and is_usable(plain_type(file.type_of(name)))]
    raw = load(file, names or file.names[:1])
    columns = (Column(file, name, raw[name], missing=table.spec.missing) for name in names)
    return {each.name: each.texts().iloc[table.rows].reset_index(drop=True) for each in columns}


def groupings(table: UserTable) -> Iterator[Grouping]:
    """Yield what may be groups: not of one row each, nor few."""
    numbers, few = table.features.select_dtypes("float64"), list[str]()
    texts = texts_of(table, [k for k, v in numbers.items() if v.duplicated(keep=False).mean() < REPEATED])
    paths = [texts[name] for name in table.spec.image if name in texts]
    whole = pd.concat([table.features.reset_index(drop=True), *paths], axis=1)
    if whole.shape[1] and len(paths) == len(table.spec.image):
        of_rows, rng = pd.util.hash_pandas_object(whole, index=False), np.random.default_rng(0)
        if (equal := of_rows.duplicated(keep=False).mean()) >= 0.005:
            shuffled = whole.apply(lambda each: each.iloc[rng.permutation(len(each))].set_axis(each.index))
            by_chance = pd.util.hash_pandas_object(shuffled, index=False).duplicated(keep=False)
            if equal >= 5 * by_chance.mean():  # else columns of few values meet again
                advice = "keep one of each, or number the distinct rows in a column and name it with `group`"
                yield Grouping("rows that are equal", (), codes_of(of_rows), "rows", advice=advice)
    for name, values in texts.items():
        codes, is_read, is_number = codes_of(values), name in table.features, name in numbers
        count = codes.max() + 1
        if count > len(table) / 2 and not is_number:
            for stem, codes in stems(values):
                yield Grouping(f"rows with {stem} of {name!r}", (name,), codes, "stem", is_read)
        elif count >= 3 and (not is_number or pd.Series(codes).duplicated(keep=False).mean() >= REPEATED):
            what, advice = f"rows with the same {name!r}", f"use `group={name!r}`"
            size = numbers[[name]].to_numpy() if is_number and not _NAMED.fullmatch(name) else None
            yield Grouping(what, (name,), codes, "column", is_read, size, advice)
            if count <= len(table) / 8 and not is_number:
                few.append(name)
    for both in combinations(few[:8], 2):
        codes = codes_of(texts[both[0]] + "\n" + texts[both[1]])
        if codes.max() < len(table) / 8:
            yield Grouping("rows with the same {!r} and {!r}".format(*both), both, codes, "columns", True)
    if numbers.shape[1] > 1:
        codes = codes_of(numbers.apply(tuple, axis=1))
        if pd.Series(codes).duplicated(keep=False).mean() >= 0.005:
            yield Grouping("rows whose numbers are equal", (), codes, "numbers", True, numbers.to_numpy())


def codes_of(values: pd.Series) -> np.ndarray:
    """Return codes of values, int64 (n,); rows without a value are groups of one."""
    codes = pd.factorize(values)[0].astype(np.int64)
    codes[codes < 0] = codes.max(initial=-1) + 1 + np.arange((codes < 0).sum())
    return codes


def stems(values: pd.Series) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what values of paths and identifiers have in common, in words, and its codes: their folder; their
    names without an end, which is the letter behind a number, or the last part or two."""
    texts = values.fillna("").astype(str).str.replace("\\", "/")
    names = texts.str.rpartition("/")[2].str.replace(r"\.[A-Za-z]{2,4}$", "", regex=True)
    part = r"(?:[_\-. ]+[^_\-. ]+)"
    ends = {"number": r"(?<=\d)[A-Za-z]$", "beginning": part + "$", "first parts": part + "{2}$"}
    by_kind = {"folder": texts.str.rpartition("/")[0]}
    by_kind |= {what: names.str.replace(end, "", regex=True) for what, end in ends.items()}
    for what, stem in by_kind.items():
        codes = codes_of(stem.where(stem != ""))
        sizes = np.bincount(codes)
        if len(sizes) >= 5 and sizes.max() <= len(codes) / 2 and (sizes[codes] > 1).mean() >= 0.01:
            yield f"the {what}", codes


def stretches(table: UserTable) -> Iterator[Grouping]:
    """Yield stretches of time, and, if no column is in that order, of the file: cut within each class, or
    tenth of a number, so that a file that is sorted by the label has stretches of all."""
    n, is_sorted = len(table), False
    for name, kind in table.kinds.items():
        ranks, values = pd.factorize(table.features[name], sort=True, use_na_sentinel=False)
        steps = np.diff(ranks)[np.diff(ranks) != 0]
        # nearly all steps lead one way, or each value stands in about one run
        one_way = abs(np.sign(steps).sum()) > 0.9 * len(steps)
        is_sorted |= bool(one_way or len(steps) <= 1.5 * len(values) < n / 2)
        fewest = STRETCHES if kind == "date" else 2 * STRETCHES
        if len(values) >= fewest and (kind == "date" or TIMES.fullmatch(name)):
            whole = ranks * STRETCHES // len(values)
            what, advice = f"rows near in {name!r}", f"use `time={name!r}`"
            yield Grouping(what, (name,), codes_of(pd.Series(whole)), "time", True, advice=advice)
    if not is_sorted:
        order = rankdata(table.labels, "ordinal").astype(np.int64) - 1
        strata = table.labels if table.classes else order * STRETCHES // n
        ranks = pd.Series(strata).groupby(strata).cumcount().to_numpy()
        whole = strata * STRETCHES + ranks * STRETCHES // np.bincount(strata)[strata]
        yield Grouping("rows near in the file", (), codes_of(pd.Series(whole)), "order")


def shared(y: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return how alike the labels of each row and of the others of its group are, float64 (n,).

    The mean of 1 where they are equal, or of numbers of variance 1, of 1 − (difference)² / 2; NaN for a row
    alone. `y`: class codes, int64, or numbers, float64, (n,).
    """
    sizes = np.bincount(codes)[codes]
    if y.dtype.kind == "f":
        sums, squares = np.bincount(codes, weights=y)[codes], np.bincount(codes, weights=y**2)[codes]
        agreed = sizes - 1 - (sizes * y**2 - 2 * y * sums + squares) / 2
    else:
        agreed = pd.Series(y).groupby(codes * (y.max() + 1) + y).transform("size").to_numpy() - 1
    return np.where(sizes > 1, agreed / np.maximum(sizes - 1, 1), np.nan)


def beyond_chance(y: np.ndarray, codes: np.ndarray, numbers: np.ndarray | None = None) -> float:
    """Return how much more than at random a group shares its label: 1 at most, 0 where that may be by chance.

    At random two rows share what two rows drawn from all do, and by chance that is what it differs by with
    labels exchanged 40 times. `numbers`, (n, p): those that are equal in a group, which has to share as much
    more than the nearest row of another group does.
    """
    rng, agreement = np.random.default_rng(0), shared(y, codes)
    rows = np.flatnonzero(~np.isnan(agreement))
    chance = shared(y, np.zeros_like(codes)).mean()  # of all rows as one group
    share = (agreement[rows].mean() - chance) / max(1 - chance, 1e-9) if len(rows) else 0.0
    if share < SHARED:
        return 0.0
    drawn = [np.nanmean(shared(rng.permutation(y), codes)) for _ in range(_DRAWS)]
    deviations = (agreement[rows].mean() - chance) / max(np.std(drawn), 1e-9)
    if numbers is not None:
        rows = rng.permutation(rows)[:_ROWS]
        values = pd.DataFrame(numbers).rank(method="dense", pct=True).fillna(0).to_numpy()
        first = np.unique(codes, return_index=True)[1]  # of each group one row is enough
        near, next_near = cKDTree(values[first]).query(values[rows], k=2)[1].T
        at = first[np.where(near == codes[rows], next_near, near)]
        more = agreement[rows] - (1 - (y[rows] - y[at]) ** 2 / 2 if y.dtype.kind == "f" else y[rows] == y[at])
        means = pd.Series(more).groupby(codes[rows]).mean()
        if more.mean() < SHARED or not means.mean() >= DEVIATIONS / 2 * means.sem():  # NaN of one group
            return 0.0
    several = numbers is not None and numbers.shape[1] > 1  # one grouping, not hundreds
    return float(share) if deviations >= DEVIATIONS / (1 + several) else 0.0
