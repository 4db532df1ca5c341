"""Text as numbers: TF-IDF of the n-grams of its words, and their largest singular vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from usboost.datasets.custom.words import is_text, ngrams, words

if TYPE_CHECKING:
    from scipy import sparse

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
        """float64 numbers by name, NaN where the text is missing.

        Parameters
        ----------
        texts : strings of n rows.
        """
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
        present = texts.dropna()
        if len(present) > LEARNT_FROM:
            present = present.sample(LEARNT_FROM, random_state=0)
        counts, found = _ngram_counts(present)
        rows = np.bincount(counts.indices, minlength=len(found))
        # most rows first, then by the alphabet
        order = sorted(np.flatnonzero(rows >= _FEWEST).tolist(), key=lambda j: (-rows[j], found[j]))[:NGRAMS]
        if not order:
            return cls((), np.zeros(0, np.float32), np.zeros((0, 1), np.float32))
        idf = (1 + np.log((1 + len(present)) / (1 + rows[order]))).astype(np.float32)
        weights = _weighted(counts[:, order], idf)
        kept = largest(weights, min(COMPONENTS, *weights.shape))
        return cls(tuple(found[j] for j in order), idf, kept)

    @property
    def width(self) -> int:
        return self.components.shape[1]

    def scores(self, texts: pd.Series) -> np.ndarray:
        """z of each of n texts, float32 (n, k); zeros where none of its n-grams counts."""
        scores = np.zeros((len(texts), self.width), np.float32)
        if self.ngrams:
            for first in range(0, len(texts), _BATCH):
                rows = slice(first, first + _BATCH)
                counts, _ = _ngram_counts(texts.iloc[rows], self._positions)
                scores[rows] = _weighted(counts, self.idf) @ self.components
        return scores

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {ngram: j for j, ngram in enumerate(self.ngrams)}


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


def _ngram_counts(
    texts: Iterable[str], known: dict[str, int] | None = None
) -> tuple[sparse.csr_matrix, Sequence[str]]:
    """How often each n-gram is in each text, float32 (n, F), and the n-grams, of which `known` are positions.

    Each different word is cut into n-grams once.
    """
    from scipy import sparse

    in_texts, vocabulary = _counts([words(text) for text in texts])
    in_words, found = _counts([ngrams(word) for word in vocabulary])
    if known is not None:
        to = np.array([known.get(ngram, -1) for ngram in found], dtype=np.intp)
        rows, columns = np.flatnonzero(to >= 0), to[to >= 0]
        chosen = (np.ones(len(rows), np.float32), (rows, columns))
        in_words = in_words @ sparse.csr_matrix(chosen, shape=(len(found), len(known)))
    return in_texts @ in_words, found


def _counts(lists: Sequence[Sequence[str]]) -> tuple[sparse.csr_matrix, Sequence[str]]:
    """How often each string is in each list, float32 (n, F), and the strings."""
    from scipy import sparse

    strings = np.array([each for part in lists for each in part], dtype=object)
    codes, distinct = pd.factorize(strings)
    ends = np.cumsum([0, *map(len, lists)])
    counted = (np.ones(len(codes), np.float32), codes, ends)
    counts = sparse.csr_matrix(counted, shape=(len(lists), len(distinct)))
    counts.sum_duplicates()
    return counts, list(distinct)


def _weighted(counts: sparse.csr_matrix, idf: np.ndarray) -> sparse.csr_matrix:
    """Counts of n-grams (n, F) as weights, float32, rows of length 1."""
    weights = counts.copy()
    weights.data = (1 + np.log(weights.data)) * idf[weights.indices]
    rows = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
    lengths = np.sqrt(np.bincount(rows, np.square(weights.data, dtype=np.float64), weights.shape[0]))
    weights.data /= lengths[rows].astype(np.float32)
    return weights
