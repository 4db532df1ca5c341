"""Text as numbers: its words, TF-IDF of their n-grams, and its largest singular vectors."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

SIZES = 3, 4
"""Characters of an n-gram."""

WORD_LENGTH = 64
"""Characters of the longest word; a longer one is cut into pieces."""

_SIGNS = "\u2600-\u27bf\U0001f000-\U0001faff"  # each is a word
_UNSPACED = "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# spaces, marks, and what only joins or varies characters
_BETWEEN = (
    r"\s\x00-/:-@\[-`{-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf\xd7\xf7"
    "\u060c\u061b\u061f\u06d4\u0964\u0965\u2000-\u206f\u20a0-\u20cf\u2190-\u25ff\u2e00-\u2e7f\u3000-\u3040"
    "\ufe00-\ufe0f\ufe30-\ufe4f\uff00-\uff0f"
)
_WORD = re.compile(
    f"[{_SIGNS}]|[{_UNSPACED}]{{1,{WORD_LENGTH}}}|[^{_SIGNS}{_UNSPACED}{_BETWEEN}]{{1,{WORD_LENGTH}}}"
)
_FEW_LETTERS = re.compile(f"[{_UNSPACED}]")
_SEVERAL = rf"\S\s+\S|[{_UNSPACED}]{{2}}"

_LOOKED_AT = 2000  # rows that tell what a column is


def is_text(column: pd.Series) -> bool:
    """Whether a feature holds strings that are no categories."""
    return isinstance(column.dtype, pd.StringDtype)


def words(text: str) -> list[str]:
    """The words of a text in its order, in small letters; characters that Unicode's NFKC joins are one."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def ngrams(word: str) -> list[str]:
    """Pieces of `SIZES` characters of a word, a space before and after it included.

    Chinese and Japanese have words of one or two characters and no spaces: these pieces are of one and two.
    """
    if _FEW_LETTERS.match(word):
        return [word[k : k + n] for n in (1, 2) for k in range(len(word) - n + 1)]
    word = f" {word} "
    return [word[k : k + n] for n in SIZES for k in range(len(word) - n + 1)]


def have_words(strings: pd.Series) -> bool:
    """Whether at least half of some strings have several words."""
    return bool(strings.str.contains(_SEVERAL, regex=True).mean() >= 0.5)


def share_words(strings: pd.Series) -> bool:
    """Whether at least half of some strings have a word that others have, but at most half of them.

    A word that more have, as "item" in "item 17", tells no two strings apart.
    """
    if len(strings) > _LOOKED_AT:
        strings = strings.sample(_LOOKED_AT, random_state=0)
    found = [set(words(string)) for string in strings]
    counts = pd.Series([word for each in found for word in each], dtype="str").value_counts()
    common = set(counts[(counts >= 2) & (counts <= len(found) / 2)].index)
    return bool(np.mean([not common.isdisjoint(each) for each in found]) >= 0.5)


COMPONENTS = 64
"""Numbers that a text becomes, at most."""

NGRAMS = 20_000
"""N-grams that count, at most: those of most training rows."""

LEARNT_FROM = 20_000
"""Training rows that n-grams and components are learnt from, at most; drawn from more."""

_FEWEST = 2  # rows of training that an n-gram must be in
_SMALLEST = 1e-4  # of the largest singular value; what is below is rounding
_BATCH = 8192  # rows whose n-grams are in memory


class TextNumbers(ABC):
    """Numbers that a column of text becomes."""

    filled = 0.0
    """Stands for each number of a text that is missing."""

    @property
    @abstractmethod
    def width(self) -> int:
        """How many there are, k."""

    @abstractmethod
    def scores(self, texts: pd.Series) -> np.ndarray:
        """Those of n texts, none of which is missing, float32 (n, k)."""

    def names(self, column: str) -> list[str]:
        """What the numbers of a column are called."""
        return [f"{column}__text_{k}" for k in range(self.width)]

    def expand(self, column: str, texts: pd.Series) -> dict[str, pd.Series]:
        """float64 numbers by name, NaN where the text is missing. `texts`: strings of n rows."""
        present = texts.notna().to_numpy()
        found = np.full((len(texts), self.width), np.nan)
        if present.any():
            found[present] = self.scores(texts[present])
        return {name: pd.Series(found[:, k], texts.index) for k, name in enumerate(self.names(column))}


@dataclass(frozen=True, eq=False)
class TextParts(TextNumbers):
    r"""What a column of text becomes.

    .. math:: z = V^\top \frac{w}{\lVert w \rVert}, \qquad
        w_j = (1 + \ln c_j)\,\Big(1 + \ln \frac{1 + n}{1 + n_j}\Big)

    where :math:`c_j` counts n-gram j in the text (:math:`w_j = 0` where there is none), :math:`n_j` of the n
    training rows have it, and V holds the right singular vectors of the training rows' normalised w.

    Attributes
    ----------
    ngrams : the F n-grams that count.
    idf : float32 (F,), the second factor of w.
    components : float32 (F, k), V.
    """

    ngrams: tuple[str, ...]
    idf: np.ndarray
    components: np.ndarray

    @classmethod
    def fit(cls, texts: pd.Series) -> TextParts:
        """Learn from the strings of the training rows.

        A vocabulary that is bounded, not hashed: no two n-grams fall together, the file is small, and one can
        read what a component is of. The same rows give the same numbers.
        """
        from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

        present = texts.dropna()
        if len(present) > LEARNT_FROM:
            present = present.sample(LEARNT_FROM, random_state=0)
        counter = CountVectorizer(analyzer=_pieces, dtype=np.float32)
        try:
            counts = counter.fit_transform(present)
        except ValueError:  # there is no word in any row
            return cls((), np.zeros(0, np.float32), np.zeros((0, 1), np.float32))
        found, rows = counter.get_feature_names_out(), np.bincount(counts.indices)
        # most rows first, then by the alphabet, in which they are: `max_features` would go by all occurrences
        order = np.argsort(-rows, kind="stable")[: min(NGRAMS, np.count_nonzero(rows >= _FEWEST))]
        if not len(order):
            return cls((), np.zeros(0, np.float32), np.zeros((0, 1), np.float32))
        tfidf = TfidfTransformer(sublinear_tf=True)
        weights = tfidf.fit_transform(counts[:, order])
        kept = largest(weights, min(COMPONENTS, *weights.shape))
        return cls(tuple(found[order]), tfidf.idf_.astype(np.float32), kept)

    @property
    def width(self) -> int:
        return self.components.shape[1]

    def scores(self, texts: pd.Series) -> np.ndarray:
        """z of each of n texts, float32 (n, k); zeros where none of its n-grams counts."""
        scores = np.zeros((len(texts), self.width), np.float32)
        if self.ngrams:
            for first in range(0, len(texts), _BATCH):
                rows = slice(first, first + _BATCH)
                scores[rows] = self._weights.transform(texts.iloc[rows]) @ self.components
        return scores

    @cached_property
    def _weights(self) -> TfidfVectorizer:
        """Texts to rows of w/‖w‖, float32 (n, F)."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        found = TfidfVectorizer(analyzer=_pieces, vocabulary=self.ngrams, sublinear_tf=True, dtype=np.float32)
        found.idf_ = self.idf
        return found


def largest(rows: Any, k: int) -> np.ndarray:
    """The first k right singular vectors of (n, d) numbers but for those that are rounding, float32 (d, ≤ k).

    There is one at least.
    """
    from sklearn.utils.extmath import randomized_svd  # not for tables without text

    _, sizes, vectors = randomized_svd(rows, k, n_iter=5, random_state=0)
    kept = (sizes > _SMALLEST * sizes.max()) | (np.arange(len(sizes)) == 0)
    return np.ascontiguousarray(vectors[kept].T, np.float32)


def texts_of(train: pd.DataFrame) -> dict[str, TextParts]:
    """What the columns of text become, by name."""
    return {str(name): TextParts.fit(train[name]) for name in train if is_text(train[name])}


def _pieces(text: str) -> list[str]:
    """The n-grams of a text's words, as often as they are there."""
    return [ngram for word in words(text) for ngram in ngrams(word)]
