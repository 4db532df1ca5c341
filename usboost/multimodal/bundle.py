"""A fitted model with all that it needs to read raw rows: a folder of ``model/`` and ``card.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from usboost.data.encoding import TableEncoder
from usboost.data.images import Images
from usboost.data.views import Views
from usboost.datasets.custom.pictures import PictureReader
from usboost.datasets.custom.prepare import SUFFIX
from usboost.datasets.custom.rows import Kind, batches, features
from usboost.datasets.prepared.card import EncoderCard
from usboost.errors import UsboostError
from usboost.files import replacing
from usboost.multimodal.table import Encoding, as_views

KIND = "usboost model of a table"
CARD, MODEL = "card.json", "model"

PIXELS = 1 << 28
"""Bytes of decoded pictures above which a batch of rows is cut smaller."""

_Count = Annotated[int, Field(ge=0)]
_Side = Annotated[int, Field(ge=1, le=4096)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Imputed(_Part):
    """What stands for a missing number, and whether a column tells where."""

    value: FiniteFloat
    indicator: bool


class Pictures(_Part):
    """How pictures are read; keys as in a prepared dataset's card."""

    view: Literal["U"] = "U"
    column: str
    size: Annotated[list[_Side], Field(min_length=2, max_length=2)]
    channels: Literal[1, 3]


class Card(_Part):
    """What ``card.json`` holds."""

    format: Literal[1] = 1
    kind: Literal["usboost model of a table"] = "usboost model of a table"
    model: str
    classes: Annotated[list[str], Field(min_length=2)]
    label: str
    columns: dict[str, Kind]
    dropped: list[str]
    images: Pictures | None
    imputation: dict[str, Imputed]
    encoders: dict[str, EncoderCard]
    rows: dict[str, _Count]
    scores: dict[str, FiniteFloat | None]
    seed: int
    table: str
    sha256: str


@dataclass(frozen=True)
class Bundle:
    """A fitted model and its card."""

    model: Any
    card: Card

    @property
    def encoding(self) -> Encoding:
        imputation = {name: rule.model_dump() for name, rule in self.card.imputation.items()}
        return Encoding(imputation, TableEncoder.from_dict(self.card.encoders["S"].model_dump()))

    @property
    def needed(self) -> list[str]:
        """The columns that a table must have."""
        return [*self.card.columns, *([self.card.images.column] if self.card.images else [])]

    def save(self, folder: Path) -> None:
        """Write the folder, whole or not at all; an earlier bundle of that name is replaced.

        Raises
        ------
        UsboostError
            If it cannot be written, or something other than a bundle is there.
        """
        from usboost.models import persistence

        check_place(folder)
        with replacing(folder) as fresh:
            persistence.save(self.model, fresh / MODEL)
            text = json.dumps(self.card.model_dump(), indent=1, ensure_ascii=False, allow_nan=False)
            (fresh / CARD).write_text(text + "\n", encoding="utf-8")

    def read(
        self, path: Path, schema: pa.Schema, *, batch: int, skip_missing: bool, more: tuple[str, ...] = ()
    ) -> Iterator[Rows]:
        """The rows of a table as the model reads them, a batch at a time.

        Parameters
        ----------
        schema : of the table, that has all columns `needed`.
        batch : rows at a time; fewer where their pictures would take more than `PIXELS` bytes.
        skip_missing : take rows without a picture out of the views, instead of refusing them.
        more : further columns wanted.
        """
        encoding, reader, about = self.encoding, None, self.card.images
        names = [*self.card.columns, *more]
        if about is not None:
            reader = PictureReader(
                path,
                about.column,
                schema.field(about.column).type,
                size=about.size[0],
                channels=about.channels,
                skip_missing=skip_missing,
            )
            batch = min(batch, max(1, PIXELS // reader.row_bytes))
            if not reader.in_table:
                names.append(about.column)
        first = 0
        for raw in batches(path, names, batch):
            frame = features(raw, self.card.columns, path, first)
            present, pictures = np.ones(raw.num_rows, dtype=bool), None
            if reader is not None and about is not None:
                cells = None if reader.in_table else raw[about.column]
                pixels, present = reader.read(first, raw.num_rows, cells)
                pictures = Images(pixels if present.all() else pixels[present])
            frame = frame if present.all() else frame[present].reset_index(drop=True)
            yield Rows(first, raw, present, as_views(encoding(frame), pictures))
            first += raw.num_rows


@dataclass(frozen=True)
class Rows:
    """A batch: its first row's position, the raw columns, which rows are read, and the views of those."""

    first: int
    raw: pa.Table
    present: np.ndarray
    views: Views


def check_place(folder: Path) -> None:
    """Refuse to write a bundle where something else is, which would be lost.

    Raises
    ------
    UsboostError
        If `folder` is a file, or a folder that holds anything but a bundle.
    """
    folder = Path(folder)
    if folder.is_dir():
        found = {entry.name for entry in folder.iterdir()}
        if found != {CARD, MODEL} or _kind(folder / CARD) != KIND:
            raise UsboostError(
                f"{folder} is there and is not, or not only, a model that usboost fit saved; "
                "name another folder"
            )
    elif folder.exists() or folder.is_symlink():
        raise UsboostError(f"{folder} is a file, so no model can be saved there; name another folder")


def _kind(path: Path) -> Any:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document.get("kind") if isinstance(document, Mapping) else None


def load(folder: Path) -> Bundle:
    """Read what `Bundle.save` wrote; nothing in it can run code.

    Raises
    ------
    UsboostError
        If a file is missing, damaged or changed, or the card does not fit the model.
    """
    path = Path(folder) / CARD
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        card = Card.model_validate(document)
        from usboost.models import persistence  # it loads what trains; a card that is refused need not wait

        bundle = Bundle(persistence.load(Path(folder) / MODEL), card)
        _check(bundle, path)
    except FileNotFoundError:
        raise UsboostError(f"{folder} is no model that usboost fit saved: {path} is missing") from None
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsboostError(f"{path}: {where}: {first['msg']}; fit the model again") from None
    except UsboostError:
        raise
    except (ValueError, RecursionError) as error:
        raise UsboostError(f"{path} is not valid JSON ({error}); fit the model again") from None
    return bundle


def _check(bundle: Bundle, path: Path) -> None:
    """The card tells of the columns and classes that its encoders and the model have."""
    card = bundle.card
    numbers = {name for name, kind in card.columns.items() if kind == "number"}
    if set(card.imputation) != numbers:
        raise UsboostError(f"{path}: the imputation is not one of the numeric columns; fit the model again")
    added = [f"{name}{SUFFIX}" for name, rule in card.imputation.items() if rule.indicator]
    if "S" not in card.encoders or sorted(bundle.encoding.encoder.names) != sorted([*card.columns, *added]):
        raise UsboostError(f"{path}: the encoder is not one of the columns; fit the model again")
    if len(card.classes) != len(set(card.classes)):
        raise UsboostError(f"{path}: two classes have the same name; fit the model again")
    if list(bundle.model.classes_) != list(range(len(card.classes))):
        raise UsboostError(f"{path}: its classes are not those of the model; fit the model again")
