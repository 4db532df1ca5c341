"""What of some rows a model cannot use: values that are no numbers or dates, images that cannot be read,
categories that it has not seen. They count as missing, or as unknown, and are counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from usboost.errors import UsboostError
from usboost.shards.here import here

if TYPE_CHECKING:
    from usboost.datasets.user.images.values import Paths

What = Literal["numbers", "dates", "images", "categories"]
"""What a column should hold."""

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
    """

    column: str
    what: What
    given: int = 0
    count: int = 0
    wrong: int = 0
    row: str = ""
    value: str = ""
    error: str = ""

    def add(self, present: np.ndarray, misfit: np.ndarray, *, row: str = "", value: object = None) -> None:
        """Count some rows.

        Parameters
        ----------
        present, misfit : bool of shape (n,), of which the second implies the first.
        row, value : of the first misfit among them, if there is one.
        """
        if misfit.any() and not self.count:
            self.row, self.value = row, repr(value)
        self.given += int(present.sum())
        self.count += int(misfit.sum())

    def of_all_shards(self) -> Misfits:
        """Those of all shards' rows, where a shard's were read."""
        parts = [Misfits(**each) for each in here().listed(asdict(self))]
        counts = {name: sum(getattr(each, name) for each in parts) for name in ("given", "count", "wrong")}
        return replace(next((each for each in parts if each.count), self), **counts)

    def add_wrong(self, present: np.ndarray, misfit: np.ndarray, *, row: str, value: object) -> None:
        """As `add`, of misfits of another kind.

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
        if self.wrong and self.wrong == self.given:
            raise self._refused(f"its {self.given:,} values" if self.given > 1 else "")

    def _refused(self, values: str) -> UsboostError:
        one = {"numbers": "a number", "dates": "a date", "images": "an image"}.get(self.what)
        return UsboostError(self.error + (f" (none of {values} is {one})" if values else ""))


@dataclass
class Tally:
    """What was found in rows while they were read for a model.

    Attributes
    ----------
    rows : read so far; without : how many of them have no image, by column of images.
    paths : of images, by column.
    misfits : by column.
    ignored : columns that the model does not know.
    """

    rows: int = 0
    without: dict[str, int] = field(default_factory=dict)
    paths: tuple[Paths, ...] = ()
    misfits: dict[str, Misfits] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def of(self, column: str, what: What) -> Misfits:
        """The misfits of a column, which are none at first."""
        return self.misfits.setdefault(column, Misfits(column, what))

    def of_kind(self, column: str, kind: str) -> Misfits | None:
        """Those of a column of numbers or dates, which are counted while it is read."""
        what: What | None = {"number": "numbers", "date": "dates"}.get(kind)  # type: ignore[assignment]
        return None if what is None else self.of(column, what)

    def check(self) -> None:
        """Refuse a column of which no value is of its kind. Raises UsboostError as `Misfits.check`."""
        for each in self.misfits.values():
            each.check()
