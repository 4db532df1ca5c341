"""What the user says of a table's columns."""

from __future__ import annotations

from dataclasses import dataclass

from usboost.datasets.custom.source import Source
from usboost.datasets.prepared.store import CLEAN, LABEL
from usboost.errors import UsboostError


@dataclass(frozen=True)
class Roles:
    """The roles of a table's columns, as given by the user.

    Attributes
    ----------
    label : the column that is predicted.
    image : the columns of pictures: paths relative to the table's folder, or, but for text, bytes. A single
        name is taken, too.
    split : the column that holds train, val or test.
    categorical : columns that are categories whatever they look like, such as postal codes.
    text : columns that are text whatever they look like.
    dropped : columns to leave out.
    missing : further values that count as missing, in all columns.
    group : the column of which rows with the same value are never on two sides of a split.
    time : the column of numbers or dates by which no row is fitted to that is later than one held out.
    weight : the column of how much each row counts.
    """

    label: str
    image: tuple[str, ...] = ()
    split: str | None = None
    categorical: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    weight: str | None = None
    text: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.image, str):
            object.__setattr__(self, "image", (self.image,))

    @property
    def named(self) -> list[str]:
        """The columns that are no features."""
        others = (self.split, self.group, self.time, self.weight)
        return [name for name in (self.label, *self.image, *others) if name is not None]

    def check(self, file: Source) -> None:
        """Refuse a table whose columns do not fit.

        Raises
        ------
        UsboostError
            If two columns have the same name, one that is named is absent or has two roles, or one that is
            not the label is called ``label`` or ``clean_label``.
        """
        if ways := [name for name in ("split", "group", "time") if getattr(self, name)][1:]:
            raise UsboostError(f"rows are divided in one way: leave --{ways[0]} out, or the other")
        names = file.names
        if not names:
            raise UsboostError(f"{file} is empty")
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UsboostError(f"{file} has two columns called {repeated[0]!r}; rename one")
        others = (*self.categorical, *self.dropped, *self.text)
        for name in (*self.named, *others):
            if name not in names:
                raise UsboostError(f"{file} has no column {name!r}; its columns are {', '.join(names)}")
        twice = [name for name in self.named if self.named.count(name) > 1 or name in others]
        if repeated := twice or [name for name in self.text if name in (*self.categorical, *self.dropped)]:
            raise UsboostError(f"{file}: column {repeated[0]!r} cannot have two roles")
        for name in (LABEL, CLEAN):
            if name in names and name != self.label and name not in self.dropped:
                raise UsboostError(f"{file} has a column {name!r} that is not the label; rename or drop it")
