"""The options of how a table is read: what its columns are, and what becomes of its images.

Nothing heavy is imported: the command line makes its options of the fields.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from usboost.errors import UsboostError

SIZE, LARGE = 160, 224
"""Side of a user's images in pixels, when nothing else is asked for, and where "auto" is; see
docs/results/decisions.md."""

Names = tuple[str, ...]


@dataclass(frozen=True)
class Help:
    """The help of the option that gives a field.

    Attributes
    ----------
    text : what the field is.
    default : what is done without it, if that is no value.
    least, most : of a number.
    typed : the type of what is typed, where the field holds more than that.
    """

    text: str
    default: str = ""
    least: int | None = None
    most: int | None = None
    typed: Any = None


class Options:
    """Dataclasses whose fields with a `Help` are options of commands, by the same names."""

    @classmethod
    def of(cls, given: Mapping[str, Any], **others: Any) -> Self:
        """Make one of a mapping's values for its fields, and of others."""
        names = {each.name for each in fields(cls)}  # type: ignore[arg-type]
        return cls(**{**{name: value for name, value in given.items() if name in names}, **others})


@dataclass(frozen=True)
class TableSpec(Options):
    """The options of how a table is read.

    Fields that are several names also take one, or None.

    Parameters
    ----------
    label : the column that is predicted.
    task : by default what the labels look like, see `labels.task_of`.
    image : columns of images: paths relative to the table's folder, or, but for text, bytes.
    categorical, text : columns that are categories, such as postal codes, or text, whatever they look like.
    drop : columns to leave out; missing : further values that count as missing, in all columns.
    images_root : see `source.TableFile`.
    positive : of two classes, the one that F1 is of; by default the rarer. It is the second.
    group : the column of which rows with the same value are never on two sides of a split.
    time : the column of numbers or dates by which no row is fitted to that is later than one held out.
    weight : the column of how much each row counts.
    split : the column that holds train, val or test.
    size, grey : of the images: their side in pixels, and whether they are grey; else red, green and blue. Of
        "auto" they have `LARGE`, and validation rows choose if a backbone reads so many or `SIZE`.
    aspect : what becomes of images that are not square, see `usboost.datasets.image_files`.
    skip_unreadable : count images that cannot be read as missing, instead of refusing them.

    Raises
    ------
    UsboostError
        If rows are divided in more than one way, or the size is no such number.
    """

    label: Annotated[str, Help("Column to predict: classes, or numbers.")]
    image: Annotated[
        Names,
        Help("Column of images: paths relative to the table, or bytes; repeatable. A row may have none."),
    ] = ()
    drop: Annotated[Names, Help("Column to leave out; may be repeated.")] = ()
    categorical: Annotated[Names, Help("Column of numbers that is a category; repeatable.")] = ()
    text: Annotated[Names, Help("Column that is text whatever it looks like; repeatable.")] = ()
    missing: Annotated[Names, Help("Value that counts as missing, in all columns; repeatable.")] = ()
    images_root: Annotated[
        Path | None, Help("Folder of the images, if it is not the table's; paths may then be absolute.")
    ] = None
    task: Annotated[
        Literal["classification", "regression"] | None,
        Help("What the label asks for.", default="what it looks like"),
    ] = None
    positive: Annotated[str | None, Help("Of two classes, the one that F1 is of.", default="the rarer")] = (
        None
    )
    group: Annotated[
        str | None,
        Help("Column of which rows with the same value stay on one side of a split. No model reads it."),
    ] = None
    time: Annotated[
        str | None, Help("Column of numbers or dates: the later rows are held out. No model reads it.")
    ] = None
    weight: Annotated[str | None, Help("Column of numbers: how much each row counts, 0 for not at all.")] = (
        None
    )
    split: Annotated[str | None, Help("Column that says of each row train, val or test.")] = None
    size: Annotated[
        Literal["auto"] | int,
        Help("Side of the images in pixels; auto: 160 or 224, as validation rows say.", typed=str),
    ] = SIZE
    grey: Annotated[bool, Help("Read images in grey.")] = False
    aspect: Literal["crop", "pad", "stretch"] = "crop"
    skip_unreadable: Annotated[bool, Help("Count images that cannot be read as missing.")] = False

    def __post_init__(self) -> None:
        for name in ("image", "drop", "categorical", "text", "missing"):
            given: Any = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Iterable | None):
                given = (given,)
            object.__setattr__(self, name, tuple(map(str, () if given is None else given)))
        for name in ("label", "group", "time", "weight", "split"):
            given = getattr(self, name)
            if not isinstance(given, str) and isinstance(given, Iterable):
                raise UsboostError(f"`{name}` is one column, not {given!r}")
            object.__setattr__(self, name, given if given is None else str(given))
        size = str(self.size)
        if size != "auto" and not (size.isdecimal() and 8 <= int(size) <= 1024):
            raise UsboostError(f"`size={size}` must be auto or a whole number of pixels from 8 to 1024")
        object.__setattr__(self, "size", size if size == "auto" else int(size))
        ways = [name for name in ("split", "group", "time") if getattr(self, name)]
        if len(ways) > 1:
            raise UsboostError(f"rows are divided in one way: leave out `{ways[0]}` or `{ways[1]}`")

    @property
    def named(self) -> list[str]:
        """The columns that are no features."""
        others = (self.split, self.group, self.time, self.weight)
        return [name for name in (self.label, *self.image, *others) if name is not None]
