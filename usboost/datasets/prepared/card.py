"""What a prepared dataset's card must hold for its files to be read; anyone may have written it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from usboost.errors import UsboostError

_Count = Annotated[int, Field(ge=0)]


class CardPart(BaseModel):
    """A part of a card; what this version does not know of it is left out."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Split(CardPart):
    rows: _Count
    sha256: str


class _Numeric(CardPart):
    name: str
    log: bool
    mean: FiniteFloat
    std: Annotated[FiniteFloat, Field(ge=0)]


class _Categorical(CardPart):
    name: str
    values: list[str | None]


class EncoderCard(CardPart):
    numeric: list[_Numeric]
    categorical: list[_Categorical]


class _Named(CardPart):
    view: str


class _Card(CardPart):
    splits: dict[str, _Split]
    views: dict[str, list[str]]
    encoders: dict[str, EncoderCard]
    task: Literal["classification", "regression"] = "classification"
    classes: list[str] = []
    images: _Named | None = None


class _Shard(CardPart):
    file: Annotated[str, Field(pattern=r"^images-[0-9]+\.parquet$")]
    rows: _Count
    absent: _Count
    bytes: _Count
    sha256: str


class _Shards(CardPart):
    shards: list[_Shard]


class ImagesEntry(CardPart):
    """The entry ``images``; a shard's name is a name, not a path out of the folder."""

    view: str
    size: Annotated[list[Annotated[int, Field(ge=1, le=65_535)]], Field(min_length=2, max_length=2)]
    channels: Literal[1, 3]
    columns: Annotated[list[str], Field(min_length=1, max_length=100)] | None = None
    splits: dict[str, _Shards]


def is_user_table(card: Mapping[str, Any]) -> bool:
    """Whether it is of a user's table, whose rows are as they were read and have no views yet."""
    return "label_kind" in card


def check(card: dict[str, Any], path: Path) -> None:
    """Refuse a card that lacks something or holds it in another form.

    Raises UsboostError, naming the file and the first entry that is wrong.
    """
    try:
        _Card.model_validate(card)
    except ValidationError as error:
        raise UsboostError(f"{path}: {first_fault(error)}; prepare the dataset again") from None


def read_json(path: Path, missing: str, again: str) -> Any:
    """What a card holds. Raises UsboostError: `missing` where there is none, else what to do `again`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsboostError(missing) from None
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsboostError(f"{path} is not valid JSON ({error}); {again} again") from None


def first_fault(error: ValidationError) -> str:
    """Which entry of a card is the first that is wrong, and why."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
