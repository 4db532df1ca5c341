"""The words of a text and their n-grams, and which strings are texts rather than names."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pandas as pd

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
