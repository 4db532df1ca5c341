"""Check a table before a model is fitted: what makes scores by random folds better than those of new rows.

A finding needs an improbable null, that of near-equal images in `neighbours`, of agreement in `groups` and of
wrong labels in `scores`, and an effect that matters: a table without faults has a chance of about 1 in 100 of
a finding of each kind. Nothing here changes a row, and no group is used that a person has not named.
"""

import base64
import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata, zscore

from usboost.check.groups import Grouping, beyond_chance, codes_of, groupings, stretches
from usboost.check.neighbours import are_between, find_twins, fine_columns, normal_scores, whitened
from usboost.check.scores import ERRORS, WORSE, Flattery, flattery, formula, out_of_fold, tells, wrong_labels
from usboost.data.progress import Progress
from usboost.errors import UsboostError
from usboost.evaluation.folds import Related, inner_folds
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.embeddings import cache_folder
from usboost.learners.networks.train import pick_device
from usboost.shards.collective import world
from usboost.table.columns.encoding import Encoding
from usboost.table.columns.texts import TextParts, holds_text
from usboost.table.schema import GIVEN_AWAY, leaks_target
from usboost.table.user_table import UserTable

DECIDED, NEAR, TELLS = 0.98, 0.1, 0.5
EXAMPLES, MOST = 6, 3  # of a finding; findings that are said beside a fit
KINDS = {
    "twins": "Near-equal images or rows",
    "groups": "Rows that belong together",
    "decides": "Values that decide the label",
    "leak": "Too good",
    "labels": "Labels that look wrong",
}
"""Kinds of findings, in the order in which they are said, and their titles."""

FEWEST, _ENOUGH, _PAIRS, _ROWS = 30, 200, 3, 20_000  # rows, those of images alone, pairs, rows of a fit
UNKNOWN = "`drop` what is not known before the label"
_AXES, _TEXTS = 64, 5000  # of images, for the quick model; rows of texts
_COMPARED, _SHARE = (50_000, 5000), 0.05  # rows, and beside a fit, whose numbers are compared; those found


@dataclass(frozen=True)
class Finding:
    """Hold one thing that makes scores too good, or labels that look wrong."""

    kind: str  # of `KINDS`
    sentence: str  # what it is
    advice: str  # what to do
    rows: int  # how many it is about
    examples: tuple[tuple[int, ...], ...] = ()  # positions of rows, those that belong together in one
    columns: tuple[str, ...] = ()  # that it is about
    flattery: Flattery | None = None  # what it changes, where that was measured

    def __str__(self) -> str:
        return "; ".join(map(str, filter(None, (self.sentence, self.flattery, self.advice))))


def check_table(
    table: UserTable,
    embeddings: list[np.ndarray] | None = None,
    *,
    quick: bool = False,
    progress: Progress = lambda done, steps: None,
) -> list[Finding]:
    """Return what was found in a table, by kind; nothing of a table of under 30 rows.

    `embeddings`: of each view of images, float32 (n, d); None: images are not compared. `quick`: fit nothing
    and open no file, for a word beside a fit. `progress`: called with (steps done, steps).
    """
    if len(table) < FEWEST:
        return []
    check = _Check(table, embeddings or [], quick)
    for done, step in enumerate((check.groups, check.leaks, check.labels), start=1):
        step()
        progress(done, 3)
    return sorted(check.findings, key=lambda each: list(KINDS).index(each.kind))


class _Check:
    """A table while it is checked; `said` are the groups among what was found."""

    def __init__(self, table: UserTable, embeddings: list[np.ndarray], quick: bool) -> None:
        self.table, self.quick, self.label = table, quick, table.spec.label
        self.findings, self.said = list[Finding](), list[np.ndarray]()
        self.y = table.labels if table.classes else zscore(rankdata(table.labels))
        self.named = [codes_of(pd.Series(each)) for each in (table.groups, table.split) if each is not None]
        self.units = [whitened(each, view.absent) for each, view in zip(embeddings, table.images.values())]
        numbers = table.features.select_dtypes("float64")
        self.fine = fine_columns(numbers[:0] if len(table) > _COMPARED[quick] else numbers)
        self.near = [] if quick or table.times is not None else list(stretches(table))
        if not quick:  # what the quick model reads: columns and axes of the images, float32 (n, p)
            columns = Encoding.fit(table.features, ("S",)).views(table.features)["S"].matrix()
            self.x = np.concatenate([columns, *(each[:, :_AXES] for each in self.units)], axis=1)
            often = [columns] * (self.x.shape[1] // max(3, 3 * columns.shape[1]))  # or trees see few of them
            self.x_of_groups = np.concatenate([*often, self.x], axis=1)

    def add(self, kind: str, sentence: str, advice: str, sets: Any, **more: Any) -> None:
        """Add a finding about sets of rows, or rows, of which six are examples where no others are given."""
        every = [np.atleast_1d(each) for each in sets]
        drawn = np.random.default_rng(0).permutation(len(every))[:EXAMPLES]
        more.setdefault("examples", tuple(tuple(every[k][:3].tolist()) for k in drawn))
        self.findings.append(Finding(kind, sentence, advice, len(np.unique(np.concatenate(every))), **more))

    def is_known(self, codes: np.ndarray) -> bool:
        """Return whether rows of one group are together in what was named or said already, but for a few."""
        several = np.bincount(codes)[codes] > 1
        parts = (pd.Series(other).groupby(codes).transform("nunique") for other in (*self.said, *self.named))
        return any((each[several] == 1).mean() >= 0.8 for each in parts)

    def twins(self) -> Iterator[Grouping]:
        """Yield the groups of near-equal images, and of near-equal numbers, that a random fold may divide."""
        table, n = self.table, len(self.table)
        codes = [codes_of(each) for each in (pd.Series(self.y), *dict(table.features).values())]
        found = dict[tuple[str, ...], np.ndarray]()
        if self.fine.size and table.times is None:
            found[()] = find_twins(normal_scores(self.fine))
        for name, units, view in zip(table.spec.image, self.units, table.images.values()):
            found[(name,)] = find_twins(units, None if self.quick else view, codes)
        for names, pairs in found.items():
            for given in self.named:
                pairs = pairs[given[pairs[:, 0]] != given[pairs[:, 1]]]
            if len(pairs) >= _PAIRS and (names or len(np.unique(pairs)) >= _SHARE * n):
                graph = coo_array((np.ones(len(pairs)), pairs.T), shape=(n, n))
                groups = connected_components(graph, directed=False)[1].astype(np.int64)
                what = f"a near-equal image in {names[0]!r}" if names else "near-equal numbers"
                yield Grouping(f"rows with {what}", names, groups, "twins")

    def groups(self) -> None:
        """Find near-equal images, groups that decide or share the label, and near rows that are alike."""
        table, n, ranked, by_random = self.table, len(self.table), [], dict[bytes, np.ndarray]()
        known = None if table.groups is None else self.named[0]
        fewest = len(table.classes) + 1 if table.classes else 5
        for each in groupings(table):
            share = beyond_chance(self.y, each.codes, each.numbers)
            several = np.count_nonzero(np.bincount(each.codes) > 1)  # of one group it may be by chance
            decides = share >= DECIDED and several >= fewest and each.kind not in ("stem", "rows")
            if share and (decides or each.is_entity):
                ranked.append((share, "decides" if decides else "groups", each))
        # equal rows first, then what no model reads: its groups are there for another reason than the label
        ranked.sort(key=lambda it: (it[2].kind != "rows", it[2].is_read, it[2].kind == "columns", -it[0]))
        ranked = ranked[:6]
        for each in self.twins():  # a column that tells the near-equal numbers of one thing says more
            at = 0 if each.columns else len(ranked)
            ranked.insert(at, (beyond_chance(self.y, each.codes), "twins", each))
        for share, kind, each in [*ranked, *((0.0, "groups", each) for each in self.near)]:
            if self.is_known(each.codes):
                continue
            measured = None
            if not self.quick:
                errors = (
                    2.0 if each.is_named and each.codes.max() >= 9 else ERRORS
                )  # what a subject is needs less proof
                measured = flattery(self.x_of_groups, table.labels, each.codes, by_random, known, errors)
            # what is near is no group that anybody made: more has to depend on it
            least = NEAR if each.kind in ("order", "time") else WORSE
            matters = measured is not None and measured.worse >= least
            many = each.kind == "rows" and (np.bincount(each.codes) == 1).sum() <= (1 - _SHARE) * n
            many &= table.features.nunique().max() >= n / 20  # or people answer alike
            if not (matters or many or kind == "twins" or (kind == "decides" and each.kind != "columns")):
                continue
            every = pd.Series(each.codes).groupby(each.codes).indices.values()
            sets = [rows for rows in every if len(rows) > 1]
            verb = "have one" if share >= DECIDED else "share"
            agree = f"{verb} {self.label!r}" if share else "belong together"
            sentence = f"{each.what} {agree} ({len(sets):,} groups, {sum(map(len, sets)):,} rows)"
            self.add(kind, sentence, each.advice, sets, columns=each.columns, flattery=measured)
            self.said.append(each.codes)
            if each.kind == "rows" and known is None:
                known = each.codes  # copies make groups of each column's values, too

    def tell(self, what: str, values: np.ndarray, advice: str, name: str) -> None:
        """Add what no model should learn from, one number of each row, if it tells the label."""
        there, y = ~pd.isna(values), self.table.labels
        several = there.sum() >= FEWEST and min(len(np.unique(each[there])) for each in (y, values)) > 1
        if several and (skill := tells(values[there], y[there])) >= TELLS:
            rows = np.flatnonzero(values if values.dtype == bool else there)
            sentence = f"{what} tells {self.label!r} (skill {skill:.2f} of 1)"
            self.add("leak", sentence, advice, rows, columns=(name,))

    def leaks(self) -> None:
        """Find what tells the label: missing values, files, and columns alone."""
        table, n = self.table, len(self.table)
        lacking = {str(name): column.isna().to_numpy() for name, column in table.features.items()}
        lacking |= {name: view.absent for name, view in zip(table.spec.image, table.images.values())}
        for name, absent in lacking.items():
            if absent is not None and 5 <= absent.sum() <= n - 5 and beyond_chance(self.y, 1 * absent):
                advice = "find out why; drop the column unless new rows lack it for the same reason"
                self.tell(f"whether {name!r} is missing", absent, advice, name)
        between = are_between(self.fine)
        if between.sum() >= _SHARE * n:
            sentence = f"{between.sum():,} rows lie between two others, as SMOTE or interpolation makes rows"
            advice = "fit to the table as it was before" + "; `class_weight` is for rare classes" * bool(
                table.classes
            )
            self.add("twins", sentence, advice, np.flatnonzero(between))
        if not table.classes:
            dates = table.features.select_dtypes("datetime")
            days = (dates - dates.min()) / pd.Timedelta(days=1)
            numbers = pd.concat([table.features.select_dtypes("float64"), days], axis=1)
            how, names = formula(numbers, table.labels)
            if len(names) > 1:
                more = f" and {len(names) - 4} more" if len(names) > 4 else ""
                sentence = f"{self.label!r} is {how} of {', '.join(map(repr, names[:4]))}{more}"
                self.add("leak", sentence, UNKNOWN, np.arange(n), columns=tuple(names))
        if self.quick:
            return  # a fit says the rest already
        for name in table.spec.image:
            for what, values in file_facts(table, name).items():
                advice = "write all images in one size and format, or find out why they differ"
                self.tell(f"the {what} of the files in {name!r}", values.to_numpy(), advice, name)
        known = [name for each in self.findings for name in each.columns]
        new = table.features.drop(columns=known, errors="ignore")
        # quantiles of a few rows tell less than the number does
        ranks = new.select_dtypes("float64").rank().corrwith(pd.Series(self.y, new.index)).abs()
        strong = [name for name in ranks.index[ranks > 0.8] if tells(new[name], 1.0 * self.y) >= GIVEN_AWAY]
        strong += [name for name in new if holds_text(new[name]) and self.text_tells(new[name])]
        away = [name for name, column in new.items() if name in strong or leaks_target(column, table.labels)]
        if away := [str(name) for name in away if not self.is_known(codes_of(new[name]))]:
            sentence = f"{' or '.join(map(repr, away))} alone gives {self.label!r} away"
            self.add("leak", sentence, UNKNOWN, np.arange(n), columns=tuple(away))

    def text_tells(self, column: pd.Series) -> bool:
        """Return whether regressions of a text's pieces give the label of rows that they left out."""
        rows = np.sort(np.random.default_rng(0).permutation(np.flatnonzero(column.notna()))[:_TEXTS])
        texts, targets = column.iloc[rows], self.table.text_targets(rows)
        if targets is None or not (parts := TextParts.fit(texts)).ngrams:
            return False
        scores = parts.with_scores(texts, *targets)[1]
        guess = scores[:, 0] if scores.shape[1] == 1 else scores.argmax(axis=1)
        return leaks_target(pd.Series(guess), self.table.labels[rows])

    def labels(self) -> None:
        """Find labels that look wrong out of fold, and images that alone are too good, of classes."""
        rows = np.sort(np.random.default_rng(0).permutation(len(self.table))[:_ROWS])
        y = self.table.labels[rows]
        if self.quick or not self.table.classes or not y.any():
            return
        try:
            together = self.said[0][rows] if self.said else None
            splits = inner_folds(y, 5, 0, Related.of(together, None, len(rows)))
        except UsboostError:
            return
        seen = self.units[0][rows].any(axis=1) if self.units else y < 0
        if seen.sum() >= _ENOUGH and np.bincount(y[seen]).max() < 0.9 * seen.sum():
            alone = out_of_fold(self.units[0][rows], y, splits)
            if (alone.argmax(axis=1) == y)[seen].mean() >= GIVEN_AWAY:
                advice = "look for a mark, a frame or a background that tells it"
                self.add("leak", f"the images alone give {self.label!r} away", advice, rows)
        wrong = rows[wrong_labels(out_of_fold(self.x[rows], y, splits), y)]
        if len(wrong):
            sentence, shown = f"{len(wrong)} labels look wrong", tuple(zip(wrong.tolist()))
            advice = "rows like them are of another class: look at these; none was changed"
            self.add("labels", sentence, advice, wrong, examples=shown)


def file_facts(table: UserTable, column: str) -> pd.DataFrame:
    """Return what differs of files' bytes, format, width and height: float64 (n, …), NaN if unread."""
    by_row, formats, folder = dict[int, Any](), dict[str | None, int](), Path(table.file.folder or "")
    cells = (cell for batch in table.file.batches([column], 256) for cell in batch[column].to_pylist())
    for row, cell in enumerate(cells):
        given: Any = (cell.get("bytes") or cell.get("path")) if isinstance(cell, dict) else cell
        with suppress(OSError, ValueError, TypeError, Image.DecompressionBombError):
            if isinstance(given, str):
                is_data, path = given.startswith("data:"), folder / given.replace("\\", "/")
                given = base64.b64decode(given.partition(",")[2]) if is_data else path.read_bytes()
            with Image.open(io.BytesIO(given)) as image:
                by_row[row] = (len(given), formats.setdefault(image.format, len(formats)), *image.size)
    names = ["number of bytes", "format", "width", "height"]
    facts = pd.DataFrame.from_dict(by_row, "index", columns=names).reindex(table.rows)
    return facts.loc[:, facts.nunique() > 1]


def embeddings_of(table: UserTable, backbone: Backbone) -> list[np.ndarray]:
    """Return what a frozen backbone makes of the images of each view, float32 (n, d)."""
    return [backbone.embed(view, pick_device("auto")) for view in table.images.values()]


def beside_fit(table: UserTable, model: Any = None) -> list[str]:
    """Check a table quickly as it is fitted; return the findings that are said beside a fit, a sentence each.

    `model`: None, or one that has embedded the images, which are looked at where their embeddings are kept.
    """
    if world().count > 1:
        return []
    parts = model.get_params(deep=True).values() if model is not None and table.images else ()
    cached = [one for one in parts if isinstance(one, Backbone) and one.is_frozen and cache_folder(one.cache)]
    findings = check_table(table, embeddings_of(table, cached[0]) if cached else None, quick=True)
    return [str(each) for each in findings][:MOST]
