"""Notes of what a model cannot use of some rows: values that are no numbers or dates, images that cannot be
read, categories that it has not seen. They count as missing, or as unknown, and are counted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from usboost.data.value import shown
from usboost.errors import UsboostError
from usboost.shards.collective import world

What = Literal["numbers", "dates", "images", "categories"]
"""Kinds of values that a column should hold."""

MANY = 10_000
"""The first values of a column, of which one must be of its kind; the rest is then not read."""


@dataclass
class Misfits:
    """Values of one column that a model cannot use.

    Attributes
    ----------
    what : the column should hold; images of which the file is damaged, and categories, are of the kind.
    given : values that are not missing; count : of these, the misfits; wrong : those of another kind.
    row, value : of the first misfit; error : what is wrong with it.
    otherwise : how values are written that are read otherwise than those of the fit.
    """

    column: str
    what: What
    given: int = 0
    count: int = 0
    wrong: int = 0
    row: str = ""
    value: str = ""
    error: str = ""
    otherwise: str = ""

    def add(self, present: np.ndarray, misfit: np.ndarray, *, row: str = "", value: object = None) -> None:
        """Count some rows. `present`, `misfit`: bool (n,), of which the second implies the first; `row`,
        `value`: of the first misfit among them, if there is one."""
        if misfit.any() and not self.count:
            self.row, self.value = row, shown(value)
        self.given += int(present.sum())
        self.count += int(misfit.sum())

    def of_all_shards(self) -> "Misfits":
        """Sum over the rows of all shards, where a shard's were read."""
        parts = [Misfits(**each) for each in world().listed(asdict(self))]
        counts = {name: sum(getattr(each, name) for each in parts) for name in ("given", "count", "wrong")}
        return replace(next((each for each in parts if each.count), self), **counts)

    def add_wrong(self, present: np.ndarray, misfit: np.ndarray, *, row: str, value: object) -> None:
        """Count rows as `add`, with misfits of another kind.

        Raises UsboostError, see `check`, if none of the first `MANY` values of the column is of its kind.
        """
        none_yet = self.wrong == self.given
        fits = np.flatnonzero(present & ~misfit)
        leading = self.given + int(present[: fits[0] if len(fits) else None].sum())
        self.add(present, misfit, row=row, value=value)
        self.wrong += int(misfit.sum())
        if none_yet and leading >= MANY:
            raise self._refused(f"the first {MANY:,} values")

    def check(self) -> None:
        """Refuse a column of which no value is of its kind: it is another one.

        Raises UsboostError, with what is wrong with the first.
        """
        no_image = self.what == "images" and 0 < self.count == self.given
        if (self.wrong and self.wrong == self.given) or no_image:
            raise self._refused(f"its {self.given:,} values" if self.given > 1 else "")

    def _refused(self, values: str) -> UsboostError:
        return UsboostError(self.error + (f" (none of {values} can be read)" if values else ""))

    def __str__(self) -> str:
        one = self.count == 1
        of = f"column {self.column!r}: {self.count:,} of {self.given:,}"
        first = f"{'in' if one else 'the first in'} {self.row}, {self.value}"
        if self.what == "images":
            end = f"counts as missing: {self.error}" if one else f"count as missing, the first: {self.error}"
            return f"{of} images cannot be read and {end}"
        if self.what == "categories" and self.count == self.given:
            return f"column {self.column!r}: no row has a category that was in the training rows"
        if self.what == "categories":
            return (
                f"{of} rows {'has' if one else 'have'} a category that was not in the training rows, {first}"
            )
        are = f"is no {self.what[:-1]} and counts" if one else f"are no {self.what} and count"
        return f"{of} values {are} as missing, {first}"


@dataclass
class Paths:
    """The paths read so far of a column.

    Attributes
    ----------
    given : how many; lost : how many of them led to no file; first : of these.
    """

    column: str
    given: int = 0
    lost: int = 0
    first: Path | None = None

    def of_all_shards(self) -> "Paths":
        """Sum over the rows of all shards, where a shard's were read."""
        every = world().listed([self.given, self.lost, self.first and str(self.first)])
        given, lost, firsts = zip(*every, strict=True)
        first = next(filter(None, firsts), None)
        return Paths(self.column, sum(given), sum(lost), None if first is None else Path(first))

    def __str__(self) -> str:
        what = "path of images leads" if self.lost == 1 else "paths of images lead"
        return f"{self.lost:,} {what} to no file in column {self.column!r}, {self.first} first"


SEVERAL = 10
"""Missing values of a column from which on it may be lost as a whole; fewer are gaps."""


@dataclass
class Gaps:
    """Values missing in one column, compared with the rows that a model was fitted to.

    Attributes
    ----------
    share : of the training rows that lacked one; trained : how many these were.
    rows, count : read so far, and of these those that lack one; what cannot be read is none of them.
    """

    column: str
    share: float
    trained: int
    rows: int = 0
    count: int = 0

    @property
    def far_more(self) -> bool:
        """Return whether they are several, beyond chance, and double the share, or halve the others'."""
        share = (self.share * self.trained + 1) / (self.trained + 2)
        expected, own = self.rows * share, self.count / max(self.rows, 1)
        by_chance = expected + 4 * (expected * (1 - share)) ** 0.5
        return self.count > max(by_chance, SEVERAL - 1) and (own > 2 * share or 1 - own < (1 - share) / 2)

    def __str__(self) -> str:
        usual = f"{self.share:.1%}" if self.share else "none"
        return (
            f"column {self.column!r}: {self.count:,} of {self.rows:,} values are missing, of the training "
            f"rows' {usual}; it may have been lost on the way"
        )


@dataclass
class Tally:
    """Counts of the rows while they are read for a model.

    Attributes
    ----------
    rows : read so far; without : how many of them have no image, by column of images.
    paths : of images, by column.
    misfits, gaps : by column.
    ignored : columns that the model does not know; notes : on how the source is read.
    """

    rows: int = 0
    without: dict[str, int] = field(default_factory=dict)
    paths: tuple[Paths, ...] = ()
    misfits: dict[str, Misfits] = field(default_factory=dict)
    gaps: dict[str, Gaps] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    notes: Sequence[str] = ()

    def of(self, column: str, what: What) -> Misfits:
        """Return the misfits of a column, which are none at first."""
        return self.misfits.setdefault(column, Misfits(column, what))

    def of_kind(self, column: str, kind: str) -> Misfits | None:
        """Return the misfits of a column of numbers or dates; None of others."""
        what: What | None = {"number": "numbers", "date": "dates"}.get(kind)  # type: ignore[assignment]
        return None if what is None else self.of(column, what)


def notes_of_rows(tally: Tally) -> list[str]:
    """Say of rows that a model reads what it ignores, has not seen, or could not read."""
    notes = [*tally.notes]
    if tally.ignored:
        names = ", ".join(each or "''" for each in tally.ignored)
        notes.append(f"columns ignored, since the model does not know them: {names}")
    lacking = [str(each) for each in tally.gaps.values() if each.far_more]
    return [*notes, *lacking, *sentences(tally.paths, tally.misfits.values())]


def notes_of_images(rows: int, without: Mapping[str, int]) -> list[str]:
    """Say how many rows have no image, by column; nothing of a column in which all have one."""
    several = len(without) > 1
    return [
        f"{missing:,} of {rows:,} rows have no image" + (f" in column {column!r}" if several else "")
        for column, missing in without.items()
        if missing
    ]


def sentences(paths: Iterable[Paths], misfits: Iterable[Misfits]) -> list[str]:
    """Say which paths lead to no file, and which values count as missing or unknown."""
    lost = [f"{each}; such rows count as without an image" for each in paths if each.lost]
    misfits = list(misfits)
    others = [f"column {each.column!r}: {each.otherwise}" for each in misfits if each.otherwise]
    return [*lost, *others, *(str(each) for each in misfits if each.count)]


def check_paths(source: object, columns: Iterable[Paths]) -> None:
    """Refuse rows of which no path of a column leads to a file: their folder is another.

    Raises UsboostError, naming the first path.
    """
    for paths in columns:
        if paths.given and paths.lost == paths.given:
            raise UsboostError(
                f"{source}: no path in column {paths.column!r} leads to a file: no {paths.first}, say; "
                f"correct them, name the images' folder (`images_root`), or leave the column "
                "empty"
            )
