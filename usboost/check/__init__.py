"""Check a table before a model is fitted: what makes scores by random folds better than those of new rows.

Design. A finding needs a null that is improbable and an effect that matters, so that a table without faults
has a chance of about 1 in 100 of a finding of each kind.

- Near-equal images (`neighbours`): ratios of successive distances, whose law without copies is known; a false
  discovery rate of .05, and three pairs at least.
- Groups that nobody named (`groups`): agreement of labels must be `DEVIATIONS` standard deviations from that
  of labels exchanged at random, so that some hundred columns may be looked at, and be `SHARED` of all that
  chance leaves; of numbers, also beyond the nearest row of another group. Then the quick model must be worse
  by folds that keep groups together: by `WORSE` of a constant's loss and `ERRORS` of its standard errors.
- Groups that decide the label: that agreement is `DECIDED`, of more values than there are classes.
- Too good: a column alone (`usboost.table.schema.leaks_target`) or the images alone; and with half of all
  skill, `TELLS`, what no model should learn from: whether a value is missing, files' size, format and names.
- Labels that look wrong (`scores.wrong_labels`): confident learning out of fold, more than hard rows are.

Nothing here changes a row, and no group is used that a person has not named.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from usboost.check.groups import (
    SHARED,
    Grouping,
    beyond_chance,
    beyond_nearest,
    codes_of,
    groupings,
    stretches,
    texts_of,
)
from usboost.check.neighbours import Twins, find_twins
from usboost.check.scores import Flattery, flattery, matrix_of, out_of_fold, tells, wrong_labels
from usboost.data.progress import Progress
from usboost.errors import UsboostError
from usboost.evaluation.folds import Related, inner_folds
from usboost.table.schema import leaks_target
from usboost.table.user_table import UserTable

DEVIATIONS, DECIDED = 6.0, 0.98
WORSE, ERRORS, TELLS, EXACT = 0.03, 3.3, 0.5, 0.995
EXAMPLES = 6
KINDS = ("twins", "groups", "decides", "leak", "labels", "note")

_FEWEST, _ENOUGH, _PAIRS, _ROWS = 30, 200, 3, 20_000  # rows, those of images alone, pairs, rows of a fit


@dataclass(frozen=True)
class Finding:
    """Hold one thing that makes scores too good, or labels that look wrong.

    Attributes
    ----------
    kind : of `KINDS`; a "note" is of what no model reads.
    sentence : what it is; advice : what to do.
    rows : how many it is about; examples : positions of rows of the table, those that belong together in one.
    columns : that it is about; flattery : what it changes, where that was measured.
    """

    kind: str
    sentence: str
    advice: str
    rows: int
    examples: tuple[tuple[int, ...], ...] = ()
    columns: tuple[str, ...] = ()
    flattery: Flattery | None = None

    def __str__(self) -> str:
        return "; ".join(map(str, filter(None, (self.sentence, self.flattery, self.advice))))


def check_table(
    table: UserTable,
    embeddings: list[np.ndarray] | None = None,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> list[Finding]:
    """Return what was found in a table, by kind; nothing of a table of under 30 rows.

    Parameters
    ----------
    embeddings : of each view of images, float32 (n, d); None: images are not compared.
    quick : fit nothing and open no file, for a word beside a fit.
    progress : called with (steps done, steps).
    """
    if len(table) < _FEWEST:
        return []
    check = _Check(table, quick, embeddings or [])
    steps = [check.twins, check.groups, check.leaks, *([] if quick else [check.files, check.labels])]
    for done, step in enumerate(steps, start=1):
        step()
        if progress:
            progress(done, len(steps))
    return sorted(check.found, key=lambda each: KINDS.index(each.kind))


@dataclass
class _Check:
    """A table while it is checked; `said` are the groups among what was found."""

    table: UserTable
    quick: bool
    embeddings: list[np.ndarray]
    found: list[Finding] = field(default_factory=list)
    said: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.texts, labels = texts_of(self.table), self.table.labels
        ranks = pd.Series(labels).rank().to_numpy()
        self.y = labels if self.table.classes else (ranks - ranks.mean()) / ranks.std()

    @cached_property
    def images(self) -> list[Twins]:
        """Near-equal images of each view."""
        pairs = zip(self.embeddings, self.table.images.values())
        return [find_twins(each, view.absent, None if self.quick else view) for each, view in pairs]

    @cached_property
    def x(self) -> np.ndarray:
        """Return what the quick model reads, float (n, p)."""
        return matrix_of(self.table, [each.units for each in self.images])

    def add(self, kind: str, sentence: str, advice: str, rows: np.ndarray, **more: Any) -> None:
        """Add a finding about some rows, of which six are the examples where no others are given."""
        drawn = np.random.default_rng(0).permutation(rows)[:EXAMPLES]
        more.setdefault("examples", tuple((int(row),) for row in drawn))
        self.found.append(Finding(kind, sentence, advice, len(rows), **more))

    def is_known(self, codes: np.ndarray) -> bool:
        """Return whether rows of one group are together in what was named or said already, but for a few."""
        given, sizes = (self.table.groups, self.table.split), np.bincount(codes)
        named = [codes_of(pd.Series(each)) for each in given if each is not None]
        for other in (*self.said, *named):
            parts = np.bincount(np.unique(np.stack([codes, other]), axis=1)[0], minlength=len(sizes))
            if sizes[(parts == 1) & (sizes > 1)].sum() >= 0.8 * sizes[sizes > 1].sum():
                return True
        return False

    def measured(self, codes: np.ndarray) -> Flattery | None:
        """Measure what keeping groups together changes, unless it is to be quick."""
        return None if self.quick else flattery(self.x, self.table.labels, codes)

    def twins(self) -> None:
        """Find near-equal images of rows that a random fold may divide."""
        table = self.table
        for name, twins in zip(table.spec.image, self.images):
            pairs = twins.pairs
            for given in (table.groups, table.split):
                pairs = pairs if given is None else pairs[given[pairs[:, 0]] != given[pairs[:, 1]]]
            if len(pairs) < _PAIRS:
                continue
            drawn = np.random.default_rng(0).permutation(len(pairs))[:EXAMPLES]
            equal = float((table.labels[pairs[:, 0]] == table.labels[pairs[:, 1]]).mean())
            rows, how = np.unique(pairs), f"{equal:.0%} of the pairs have the same {table.spec.label!r}"
            sentence = f"{len(rows):,} rows have a near-equal image in {name!r}, and {how}"
            advice = "keep them together: number them in a column and name it with `group`"
            examples = tuple((int(a), int(b)) for a, b in pairs[drawn])
            measured = self.measured(twins.groups)
            self.add("twins", sentence, advice, rows, examples=examples, columns=(name,), flattery=measured)
            self.said.append(twins.groups)

    def groups(self) -> None:
        """Find groups that decide or share the label, and rows that are alike as they are near."""
        table = self.table
        fewest, found = len(table.classes) + 1 if table.classes else 5, []
        numbers = [name for name, kind in table.kinds.items() if kind == "number"]
        for each in groupings(table, self.texts):
            more, deviations = beyond_chance(self.y, each.codes)
            if each.kind.startswith("number") and deviations >= DEVIATIONS:
                values = table.features[[each.column] if each.column else numbers].to_numpy()
                further = beyond_nearest(self.y, each.codes, values)
                deviations = further[1] if further[0] >= SHARED else 0.0
            decides = more >= DECIDED and each.count >= fewest and each.kind != "stem"
            if deviations >= DEVIATIONS and more >= SHARED and (decides or each.is_entity):
                found.append((more, decides, each))
        # what no model reads first: its groups are there for another reason than to tell the label
        found.sort(key=lambda one: (one[2].is_read, one[2].kind == "columns", -one[0]))
        near = [] if self.quick or table.times is not None else stretches(table)
        for more, decides, each in [*found[:6], *((0.0, False, each) for each in near)]:
            # of two columns together, one that decides is enough
            enough = each.kind == "columns" and any(other.kind == "decides" for other in self.found)
            if enough or self.is_known(each.codes):
                continue
            measured = self.measured(each.codes)
            matters = measured is not None and measured.worse >= WORSE and measured.z >= ERRORS
            if decides or matters or (not each.is_read and more >= 0.9 and each.kind != "order"):
                self.say(each, decides, measured)

    def say(self, each: Grouping, decides: bool, measured: Flattery | None) -> None:
        """Add a finding of groups."""
        label, rows = self.table.spec.label, np.flatnonzero(np.bincount(each.codes)[each.codes] > 1)
        some = np.random.default_rng(0).permutation(np.unique(each.codes[rows]))
        examples = tuple(tuple(map(int, np.flatnonzero(each.codes == code)[:3])) for code in some[:EXAMPLES])
        what = "are more alike than others" if each.kind in ("order", "time") else f"share {label!r}"
        what = f"have one {label!r}" if decides else what
        advice = "put the group of each row in a column and name it with `group`"
        if each.kind in ("column", "number", "time"):
            advice = f"use `{'time' if each.kind == 'time' else 'group'}={each.column!r}`"
        sentence = f"{each.what} {what} ({len(some):,} groups, {len(rows):,} rows)"
        columns = (each.column,) if each.column else ()
        kind = "decides" if decides else "groups"
        self.add(kind, sentence, advice, rows, examples=examples, columns=columns, flattery=measured)
        self.said.append(each.codes)

    def leaks(self) -> None:
        """Find columns that give the label away, by their values or by where they have none."""
        table, label = self.table, self.table.spec.label
        lacking = {str(name): column.isna().to_numpy() for name, column in table.features.items()}
        for name, view in zip(table.spec.image, table.images.values()):
            lacking |= {} if view.absent is None else {name: view.absent}
        for name, absent in lacking.items():
            often = 5 <= absent.sum() <= len(table) - 5
            often = often and beyond_chance(self.y, absent.astype(np.int64))[1] >= DEVIATIONS
            if often and tells(absent.astype(float), table.labels) >= TELLS:
                sentence = f"whether {name!r} is missing tells {label!r} ({int(absent.sum()):,} rows lack it)"
                advice = "find out why; drop the column unless new rows lack it for the same reason"
                self.add("leak", sentence, advice, np.flatnonzero(absent), columns=(name,))
        # beside a fit this is said already
        known = {name for each in self.found if each.kind in ("decides", "leak") for name in each.columns}
        columns = [] if self.quick else [name for name in table.features if name not in known]
        if away := [str(name) for name in columns if leaks_target(table.features[name], table.labels)]:
            names, advice = ", ".join(map(repr, away)), "`drop` what is not known before the label"
            what = f"column {names} alone gives" if len(away) == 1 else f"each of the columns {names} gives"
            rows = np.arange(len(table))
            self.add("leak", f"{what} {label!r} away", advice, rows, columns=tuple(away))

    def files(self) -> None:
        """Find what files of images, names and the order of the rows tell of the label."""
        table, label, rows = self.table, self.table.spec.label, np.arange(len(self.table))

        def look(kind: str, what: str, values: np.ndarray, advice: str, *columns: str) -> None:
            if (skill := tells(values, table.labels)) >= TELLS:
                sentence = f"{what} tells {label!r} (skill {skill:.2f} of 1)"
                self.add(kind, sentence, advice, rows, columns=columns)

        for name in table.spec.image:
            for what, values in file_facts(table, name).items():
                advice = "write all images in one size and format, or find out why they differ"
                look("leak", f"the {what} of the files in {name!r}", values, advice, name)
        for name, texts in self.texts.items():
            if name not in table.features and texts.nunique() > len(texts) / 2:
                numbers = texts.astype("string").str.extract(r"(\d+)[^\d/]*$")[0].astype("float64")
                starts = codes_of(texts.astype("string").str.extract(r"^(.*?)[\d_\-. ]*\d")[0])
                look("note", f"the number in {name!r}", numbers.to_numpy(), "no model reads it", name)
                look("note", f"the beginning in {name!r}", starts.astype(float), "no model reads it", name)
        # of a file that is sorted, by a column or by the label, the order is no secret
        runs = int((np.diff(table.labels) != 0).sum())
        in_runs = runs <= 2 * len(table.classes) + 0.02 * len(rows)
        is_sorted = in_runs or abs(np.sign(np.diff(self.y)).mean()) == 1
        if not is_sorted and any(each.kind == "order" for each in stretches(table)):
            advice = "no model reads it; name what belongs together, or its time"
            look("note", "the order of the rows", rows.astype(float), advice)

    def labels(self) -> None:
        """Find labels that look wrong out of fold, and images that alone are too good."""
        table, codes = self.table, self.said[0] if self.said else None
        rows = np.sort(np.random.default_rng(0).permutation(len(table))[:_ROWS])
        y = table.labels[rows]
        try:
            related = None if codes is None else Related.of(codes[rows], None, len(rows))
            splits = inner_folds(y, 5, 0, related)
        except UsboostError:
            return
        if self.images and len(y) >= _ENOUGH:
            alone = out_of_fold(self.images[0].units[rows], y, splits)
            right = alone.argmax(axis=1) == y if table.classes else 1 - (alone - y) ** 2 / y.var()
            if np.nanmean(right) >= EXACT and (not table.classes or np.bincount(y).max() < 0.9 * len(y)):
                advice = "look for a mark, a frame or a background that tells it"
                self.add("leak", f"the images alone give {table.spec.label!r} away", advice, rows)
        wrong = wrong_labels(out_of_fold(self.x[rows], y, splits), y) if table.classes else rows[:0]
        if len(wrong):
            shown = tuple((int(rows[row]),) for row in wrong)
            sentence = f"{len(wrong)} labels look wrong: rows like them are of another class"
            self.add("labels", sentence, "look at these; none was changed", rows[wrong], examples=shown)


def file_facts(table: UserTable, column: str) -> dict[str, np.ndarray]:
    """Return what differs among bytes, format, width and height of files: float64 (n,), NaN without one."""
    found, formats, folder = [], dict[str | None, int](), table.file.folder
    for batch in table.file.batches([column], 256):
        for cell in batch[column].to_pylist():
            if isinstance(cell, dict):
                cell = cell.get("bytes") or cell.get("path")
            facts: list[float] = [np.nan] * 4
            try:
                if isinstance(cell, str) and folder is not None:
                    cell = (Path(folder) / cell).read_bytes()
                with Image.open(io.BytesIO(cell)) as image:
                    facts = [len(cell), formats.setdefault(image.format, len(formats)), *image.size]
            except (OSError, ValueError, TypeError, Image.DecompressionBombError):
                pass  # rows without an image, and those that could not be read, are told elsewhere
            found.append(facts)
    every = np.array(found, dtype=np.float64)[table.rows].T
    named = zip(("number of bytes", "format", "width", "height"), every)
    return {name: values for name, values in named if len(np.unique(values[np.isfinite(values)])) > 1}
