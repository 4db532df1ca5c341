"""Text as numbers: its words, TF-IDF of their n-grams, and its largest singular vectors."""

import hashlib
import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load, save

from usboost.errors import UsboostError

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
# words with a space between, or as a list's: wifi;pool
_SEVERAL = rf"\S\s+\S|[{_UNSPACED}]{{2}}|[^\W\d_]{{2}}['\"]?[;,|]['\"]?[^\W\d_]{{2}}"

_LOOKED_AT = 2000  # rows that tell what a column is


def holds_text(column: pd.Series) -> bool:
    """Return whether a feature holds strings that are no categories."""
    return isinstance(column.dtype, pd.StringDtype)


def words(text: str) -> list[str]:
    """Return the words of a text in its order, in small letters; what Unicode's NFKC joins is one."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def ngrams(word: str) -> list[str]:
    """Return pieces of `SIZES` characters of a word, a space before and after it included.

    Chinese and Japanese have words of one or two characters and no spaces: these pieces are of one and two.
    """
    if _FEW_LETTERS.match(word):
        return [word[k : k + n] for n in (1, 2) for k in range(len(word) - n + 1)]
    word = f" {word} "
    return [word[k : k + n] for n in SIZES for k in range(len(word) - n + 1)]


def have_words(strings: pd.Series) -> bool:
    """Return whether at least half of some strings have several words."""
    return bool(strings.str.contains(_SEVERAL, regex=True).mean() >= 0.5)


def share_words(strings: pd.Series) -> bool:
    """Return whether at least half of some strings have a word that others have, but at most four in five.

    A word that more have, as "item" in "item 17", tells no two strings apart.
    """
    if len(strings) > _LOOKED_AT:
        strings = strings.sample(_LOOKED_AT, random_state=0)
    word_sets = [set(words(string)) for string in strings]
    counts = pd.Series([word for each in word_sets for word in each], dtype="str").value_counts()
    common = set(counts[(counts >= 2) & (counts <= 0.8 * len(word_sets))].index)
    return bool(np.mean([not common.isdisjoint(each) for each in word_sets]) >= 0.5)


COMPONENTS = 64
"""Numbers that a text becomes, at most."""

NGRAMS = 20_000
"""N-grams that count, at most: those of most training rows."""

LEARNT_FROM = 20_000
"""Training rows that n-grams and components are learnt from, at most; drawn from more."""

PENALTIES = 1.0, 3.0
"""Penalise ridge regressions of the targets by one of these, α: that which errs less on rows left out."""

FOLDS = 5
"""Parts of the training rows, each left out of such regressions in turn."""

_FEWEST = 2  # rows of training that an n-gram must be in
_SMALLEST = 1e-4  # of the largest singular value; what is below is rounding
_BATCH = 8192  # rows whose n-grams are in memory


@dataclass(frozen=True, eq=False)
class TextParts:
    r"""The numbers that a column of text becomes.

    .. math:: z = V^\top \frac{w}{\lVert w \rVert}, \qquad
        w_j = (1 + \ln c_j)\,\Big(1 + \ln \frac{1 + n}{1 + n_j}\Big)

    where :math:`c_j` counts n-gram j in the text (:math:`w_j = 0` where there is none), :math:`n_j` of the n
    training rows have it, and V holds the right singular vectors of the training rows' normalised w, and the
    coefficients of ridge regressions of the targets on these.

    Attributes
    ----------
    ngrams : the F n-grams that count.
    idf : float32 (F,), the second factor of w.
    components : float32 (F, k), V.
    """

    ngrams: tuple[str, ...]
    idf: np.ndarray
    components: np.ndarray

    filled = 0.0
    """Stands for each number of a text that is missing."""

    @classmethod
    def fit(cls, texts: pd.Series) -> "TextParts":
        """Learn from the strings of the training rows.

        A vocabulary that is bounded, not hashed: no two n-grams fall together, the file is small, and one can
        read what a component is of. The same rows give the same numbers.
        """
        from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
        from sklearn.utils.extmath import randomized_svd  # not for tables without text

        nothing = cls((), np.zeros(0, np.float32), np.zeros((0, 1), np.float32))
        present = texts.dropna()
        if len(present) > LEARNT_FROM:
            present = present.sample(LEARNT_FROM, random_state=0)
        counter = CountVectorizer(analyzer=_pieces, dtype=np.float32)
        try:
            counts = counter.fit_transform(present)
        except ValueError:  # there is no word in any row
            return nothing
        ngrams, rows = counter.get_feature_names_out(), np.bincount(counts.indices)
        # most rows first, then by the alphabet, in which they are: `max_features` would go by all occurrences
        order = np.argsort(-rows, kind="stable")[: min(NGRAMS, np.count_nonzero(rows >= _FEWEST))]
        if not len(order):
            return nothing
        tfidf = TfidfTransformer(sublinear_tf=True)
        weights = tfidf.fit_transform(counts[:, order])
        _, sizes, vectors = randomized_svd(weights, min(COMPONENTS, *weights.shape), n_iter=5, random_state=0)
        large = (sizes > _SMALLEST * sizes.max()) | (np.arange(len(sizes)) == 0)
        components = np.ascontiguousarray(vectors[large].T, np.float32)
        return cls(tuple(ngrams[order]), tfidf.idf_.astype(np.float32), components)

    def with_scores(
        self, texts: pd.Series, targets: np.ndarray, part: np.ndarray
    ) -> "tuple[TextParts, np.ndarray]":
        """Add scores Bᵀw by ridge regressions: Σ‖y − b − Bᵀw‖² + α‖B‖² is least, α of `PENALTIES`.

        A linear model of all n-grams has what the largest components lack: words that few rows have. A row
        that it was fitted to has a better score than a new one, so the rows' own are by fits to other parts.

        Parameters
        ----------
        texts : of the n training rows; targets : of these, float64 (n, K).
        part : where each row is left out, int64 (n,).

        Returns
        -------
        These with K components more, and of the rows the K scores by the regressions that left them out,
        float64 (n, K); NaN where the text is missing, or no regression has learnt from the row.
        """
        from sklearn.linear_model import Ridge

        rows = np.flatnonzero(texts.notna())
        if len(rows) > LEARNT_FROM:
            rows = np.sort(np.random.default_rng(0).choice(rows, LEARNT_FROM, replace=False))
        weights, y, part = self._weights.transform(texts.iloc[rows]), targets[rows], part[rows]
        ridge = Ridge(solver="sparse_cg", max_iter=500)
        lowest, chosen, own = np.inf, PENALTIES[0], np.full(targets.shape, np.nan)
        for penalty in PENALTIES:
            scores, error = np.zeros_like(y), 0.0
            for out in (part == k for k in np.unique(part)):
                if not out.all():
                    ridge.set_params(alpha=penalty).fit(weights[~out], y[~out])
                    scores[out] = weights[out] @ ridge.coef_.reshape(y.shape[1], -1).T
                    error += np.square(scores[out] + ridge.intercept_ - y[out]).sum()
            if error < lowest:
                lowest, chosen, own[rows] = error, penalty, scores
        whole = ridge.set_params(alpha=chosen).fit(weights, y).coef_.reshape(y.shape[1], -1).T
        components = np.concatenate([self.components, whole.astype(np.float32)], axis=1)
        return TextParts(self.ngrams, self.idf, components), own

    @property
    def width(self) -> int:
        """Return k, the numbers that a text becomes."""
        return self.components.shape[1]

    def names(self, column: str) -> list[str]:
        """Return the names of the numbers of a column."""
        return [f"{column}__text_{k}" for k in range(self.width)]

    def expand(self, column: str, texts: pd.Series) -> dict[str, pd.Series]:
        """Return float64 numbers by name, NaN where the text is missing. `texts`: strings of n rows."""
        present = texts.notna().to_numpy()
        numbers = np.full((len(texts), self.width), np.nan)
        if present.any():
            numbers[present] = self.scores(texts[present])
        return {name: pd.Series(numbers[:, k], texts.index) for k, name in enumerate(self.names(column))}

    def scores(self, texts: pd.Series) -> np.ndarray:
        """Return z of each of n texts, float32 (n, k); zeros where none of its n-grams counts."""
        scores = np.zeros((len(texts), self.width), np.float32)
        if self.ngrams:
            for first in range(0, len(texts), _BATCH):
                rows = slice(first, first + _BATCH)
                scores[rows] = self._weights.transform(texts.iloc[rows]) @ self.components
        return scores

    @cached_property
    def _weights(self) -> "TfidfVectorizer":
        from sklearn.feature_extraction.text import TfidfVectorizer

        tfidf = TfidfVectorizer(analyzer=_pieces, vocabulary=self.ngrams, sublinear_tf=True, dtype=np.float32)
        tfidf.idf_ = self.idf
        return tfidf


def _pieces(text: str) -> list[str]:
    """Return the n-grams of a text's words, as often as they are there."""
    return [ngram for word in words(text) for ngram in ngrams(word)]


FILE = "texts.safetensors"

_ARRAYS = ("ngrams", "idf", "components")


def texts_to_bytes(texts: "Mapping[str, TextParts]") -> bytes:
    """Return the content of `FILE`: for each column ``ngrams:NAME``, UTF-8 in lines, ``idf:NAME`` and
    ``components:NAME``."""
    arrays: dict[str, np.ndarray] = {}
    for name, parts in sorted(texts.items()):
        arrays[f"ngrams:{name}"] = np.frombuffer("\n".join(parts.ngrams).encode(), np.uint8)
        arrays[f"idf:{name}"] = parts.idf
        arrays[f"components:{name}"] = parts.components
    return save(arrays)


def read_texts(folder: Path, columns: Collection[str], digest: str) -> "dict[str, TextParts]":
    """Read the parts of these columns, in their order.

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
    if hashlib.sha256(data).hexdigest() != digest:
        raise UsboostError(f"{path} is not the file that its card is of; fit the model again")
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UsboostError(f"{path} is no safetensors file ({error}); fit the model again") from None
    if set(arrays) != {f"{array}:{name}" for name in columns for array in _ARRAYS}:
        raise UsboostError(f"{path} does not hold the columns of text of its card; fit the model again")
    parts: dict[str, TextParts] = {}
    for name in columns:
        letters, idf, components = (arrays[f"{array}:{name}"] for array in _ARRAYS)
        try:
            text = letters.tobytes().decode() if letters.dtype == np.uint8 else None
        except UnicodeDecodeError:
            text = None
        ngrams = tuple(text.split("\n")) if text else ()
        fits = (
            text is not None
            and idf.dtype == components.dtype == np.float32
            and (idf.ndim, components.ndim) == (1, 2)
            and len(set(ngrams)) == len(ngrams) == len(idf) == len(components)
            and components.shape[1] >= 1
            and bool(np.isfinite(idf).all() and np.isfinite(components).all())
        )
        if not fits:
            raise UsboostError(f"{path}: what it holds of column {name!r} does not fit; fit the model again")
        parts[name] = TextParts(ngrams, idf, components)
    return parts
