"""Text as numbers by a model of sentence-transformers, for those who have that package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd

from usboost.datasets.user.columns.texts import (
    COMPONENTS,
    LEARNT_FROM,
    TextNumbers,
    is_text,
    largest,
    texts_of,
)
from usboost.errors import UsboostError, option

VARIABLE = "USBOOST_TEXT_MODEL"
"""Environment variable that names a model which may be loaded, as the option does."""

_MOST = 1 << 28  # bytes of embeddings kept in memory


@dataclass(frozen=True, eq=False)
class EmbeddedText(TextNumbers):
    r"""What a column of text becomes: principal components of its embeddings.

    .. math:: z = A^\top (e - \mu)

    Attributes
    ----------
    model : the name or path of the model that gives e.
    mean : float32 (d,), that of the training rows.
    axes : float32 (d, k), the directions of greatest variance.
    """

    model: str
    mean: np.ndarray
    axes: np.ndarray

    @classmethod
    def fit(cls, texts: pd.Series, model: str) -> EmbeddedText:
        """Learn from the strings of the training rows, and permit the model.

        Raises UsboostError if the package is not installed, or the model cannot be loaded.
        """
        allow(model)
        present = texts.dropna()
        if len(present) > LEARNT_FROM:
            present = present.sample(LEARNT_FROM, random_state=0)
        embedded = embeddings(model, present.tolist() or [""]).astype(np.float64)
        mean = embedded.mean(axis=0)
        axes = largest(embedded - mean, min(COMPONENTS, *embedded.shape))
        return cls(model, mean.astype(np.float32), axes)

    @property
    def width(self) -> int:
        return self.axes.shape[1]

    def scores(self, texts: pd.Series) -> np.ndarray:
        found: np.ndarray = (embeddings(self.model, texts.tolist()) - self.mean) @ self.axes
        return found


def text_numbers(train: pd.DataFrame, model: str | None) -> Mapping[str, TextNumbers]:
    """What the columns of text become, by name: by a model, which is permitted, or None, by their n-grams.

    Raises UsboostError as `EmbeddedText.fit`.
    """
    if model is None:
        return texts_of(train)
    return {str(name): EmbeddedText.fit(train[name], model) for name in train if is_text(train[name])}


def allow(model: str) -> None:
    """Permit a model to be loaded; a name in a saved model does not, as loading one may download it."""
    _allowed.add(model)


def embeddings(model: str, texts: Sequence[str]) -> np.ndarray:
    """float32 (n, d); each different text is embedded once in a process.

    Raises UsboostError if nobody permitted the model, the package is not installed, or the model cannot be
    loaded.
    """
    if model not in _allowed and model != os.environ.get(VARIABLE):
        raise UsboostError(
            f"texts are read by the model {model!r} of sentence-transformers; name it, if you trust it, with "
            f"{option('text_model')} {model}, load(…, text_model=…), or the environment variable {VARIABLE}"
        )
    with _lock:  # such a model is not made for several threads
        known = _known.setdefault(model, {})
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            found = np.asarray(_encoder(model).encode(new, show_progress_bar=False), dtype=np.float32)
            if len(found) * found[0].nbytes + len(known) * found[0].nbytes > _MOST:
                known = {text: known[text] for text in dict.fromkeys(texts) if text in known}
                _known[model] = known
            known.update(zip(new, found, strict=True))
        return np.array([known[text] for text in texts]).reshape(len(texts), -1)


_allowed: set[str] = set()
_known: dict[str, dict[str, np.ndarray]] = {}
_lock = Lock()


@lru_cache(maxsize=1)
def _encoder(model: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UsboostError(
            f"{option('text_model')} needs the package sentence-transformers; install it with "
            f"`pip install sentence-transformers`, or leave {option('text_model')} out"
        ) from None
    try:
        # no code and no pickle that comes with a model
        return SentenceTransformer(model, trust_remote_code=False, model_kwargs={"use_safetensors": True})
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise UsboostError(f"the text model {model!r} cannot be loaded: {first}; name another") from None
