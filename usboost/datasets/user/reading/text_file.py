"""What was learnt of columns of text, in a file beside a card."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from usboost.datasets.user.columns.text_models import EmbeddedText
from usboost.datasets.user.columns.texts import TextNumbers, TextParts
from usboost.errors import UsboostError

FILE = "texts.safetensors"

_ARRAYS = ("ngrams", "idf", "components")
_EMBEDDED = ("model", "mean", "axes")


def to_bytes(texts: Mapping[str, TextNumbers]) -> bytes:
    """The file's content: for each column ``ngrams:NAME``, UTF-8 in lines, ``idf:NAME`` and
    ``components:NAME``; or ``model:NAME``, UTF-8, ``mean:NAME`` and ``axes:NAME``."""
    arrays: dict[str, np.ndarray] = {}
    for name, parts in sorted(texts.items()):
        if isinstance(parts, EmbeddedText):
            arrays[f"model:{name}"] = np.frombuffer(parts.model.encode(), np.uint8)
            arrays[f"mean:{name}"] = parts.mean
            arrays[f"axes:{name}"] = parts.axes
        elif isinstance(parts, TextParts):
            arrays[f"ngrams:{name}"] = np.frombuffer("\n".join(parts.ngrams).encode(), np.uint8)
            arrays[f"idf:{name}"] = parts.idf
            arrays[f"components:{name}"] = parts.components
    return save(arrays)


def digest_of(texts: Mapping[str, TextNumbers]) -> str:
    """SHA-256 of the file, in hex; "" where there is no text."""
    return sha256(to_bytes(texts)) if texts else ""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(folder: Path, columns: Collection[str], digest: str) -> dict[str, TextNumbers]:
    """What was written of these columns, in their order.

    Raises UsboostError if the file is missing, damaged or not the one that the card is of. `digest`: as the
    card has it.
    """
    if not columns:
        return {}
    path = Path(folder) / FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsboostError(f"{path} cannot be read ({error.strerror}); fit the model again") from None
    if sha256(data) != digest:
        raise UsboostError(f"{path} is not the file that its card is of; fit the model again")
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UsboostError(f"{path} is no safetensors file ({error}); fit the model again") from None
    kinds = {name: _EMBEDDED if f"model:{name}" in arrays else _ARRAYS for name in columns}
    if set(arrays) != {f"{array}:{name}" for name, kind in kinds.items() for array in kind}:
        raise UsboostError(f"{path} does not hold the columns of text of its card; fit the model again")
    found: dict[str, TextNumbers] = {}
    for name, kind in kinds.items():
        letters, vector, matrix = (arrays[f"{array}:{name}"] for array in kind)
        text = _decoded(letters)
        ngrams = tuple(text.split("\n")) if text else ()
        fits = (
            vector.dtype == matrix.dtype == np.float32
            and (vector.ndim, matrix.ndim) == (1, 2)
            and len(vector) == len(matrix)
            and (bool(text) if kind is _EMBEDDED else len(set(ngrams)) == len(ngrams) == len(vector))
            and matrix.shape[1] >= 1
            and bool(np.isfinite(vector).all() and np.isfinite(matrix).all())
        )
        if text is None or not fits:
            raise UsboostError(f"{path}: what it holds of column {name!r} does not fit; fit the model again")
        is_embedded = kind is _EMBEDDED
        found[name] = EmbeddedText(text, vector, matrix) if is_embedded else TextParts(ngrams, vector, matrix)
    return found


def _decoded(letters: np.ndarray) -> str | None:
    try:
        return letters.tobytes().decode() if letters.dtype == np.uint8 else None
    except UnicodeDecodeError:
        return None
