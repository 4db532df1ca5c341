"""Census-Income (KDD): the raw files, and the datasets CI-A and CI-B made of them.

Every line is one person: 42 fields, of which the instance weight is no feature and the last is the
label. CI-A cuts the 40 features at random into U and S; CI-B gives the most informative ones to S.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from usboost.data.encoding import TableEncoder
from usboost.datasets.census.elimination import Elimination, backward_elimination
from usboost.datasets.files.sources import RemoteFile, lines_of, sha256
from usboost.datasets.prepared.store import LABEL, Prepared, describe
from usboost.errors import UsboostError

SOURCE = "census_income_kdd"

_ARCHIVE = "https://archive.ics.uci.edu/ml/machine-learning-databases/census-income-mld"

FILES = (
    RemoteFile(
        "census-income.data.gz",
        f"{_ARCHIVE}/census-income.data.gz",
        "3676a81db7d3528f3f8b9f3c699d0f0aa28db45e6e994fa0b8ed38327539ee86",
    ),
    RemoteFile(
        "census-income.test.gz",
        f"{_ARCHIVE}/census-income.test.gz",
        "98402b1ab879573d0a7f38a699a40258080e25e33d3401e7bf9c96d3fa0fab8c",
    ),
)

PUBLISHED = (
    *("age", "class of worker", "detailed industry recode", "detailed occupation recode", "education"),
    *("wage per hour", "enroll in edu inst last wk", "marital stat", "major industry code"),
    *("major occupation code", "race", "hispanic origin", "sex", "member of a labor union"),
    *("reason for unemployment", "full or part time employment stat", "capital gains", "capital losses"),
    *("dividends from stocks", "tax filer stat", "region of previous residence"),
    *("state of previous residence", "detailed household and family stat"),
    *("detailed household summary in household", "weight", "migration code-change in msa"),
    *("migration code-change in reg", "migration code-move within reg", "live in this house 1 year ago"),
    *("migration prev res in sunbelt", "num persons worked for employer", "family members under 18"),
    *("country of birth father", "country of birth mother", "country of birth self", "citizenship"),
    *("own business or self employed", "fill inc questionnaire for veteran's admin"),
    *("veterans benefits", "weeks worked in year", "year", "label"),
)
"""The 42 columns as their publisher names them, in the files' order."""

COLUMNS = {re.sub(r"[^a-z0-9]+", "_", name.replace("'", "")): name for name in PUBLISHED}
"""The published name of each column, by the identifier used here."""

WEIGHT = "weight"

CONTINUOUS = (
    *("age", "wage_per_hour", "capital_gains", "capital_losses", "dividends_from_stocks"),
    *("num_persons_worked_for_employer", "weeks_worked_in_year"),
)
"""The seven numeric features; the other 33 are nominal."""

FEATURES = tuple(name for name in COLUMNS if name not in (WEIGHT, LABEL))

CLASSES = ("- 50000.", "50000+.")

_NUMBERS = {*CONTINUOUS, WEIGHT}
_CODES = {"-50000": 0, "50000+": 1}


def read(path: Path) -> pd.DataFrame:
    """Read one raw file, gzipped or plain.

    Returns
    -------
    DataFrame of n rows and the 42 `COLUMNS`: float32 numbers, pandas categories of strings (``?`` is
    missing) and the int8 label, 0 for ``- 50000.`` and 1 for ``50000+.``.

    Raises
    ------
    UsboostError
        If the file is missing, empty or a damaged gzip file, a line has not 42 fields, a numeric
        field is not a finite number, a label is unknown, or there is only one class.
    """
    lines = _lines(Path(path))
    return _frame(Path(path), lines, lines)


def prepare(
    train: Path,
    test: Path,
    *,
    split: Literal["ci_a", "ci_b"],
    seed: int,
    profile: str = "paper",
    rows: int = 40_000,
    candidates: int = 5,
    tolerance: float = 0.01,
) -> Prepared:
    """Make CI-A or CI-B from the two raw files.

    Of exact duplicate lines of the training file (weight included) the first stays; the weight is
    dropped; a random half of the test file is the validation split, the other half the test split,
    the same for both datasets.

    Parameters
    ----------
    train, test : the raw files.
    split : "ci_a" halves the features at random, "ci_b" by backward elimination on the training
        split: what is kept is S, the rest U.
    seed : of the halves, and of the elimination.
    profile : "demo" or "paper"; only noted in the card.
    rows, candidates, tolerance : of `backward_elimination`.

    Raises
    ------
    UsboostError
        As `read`, or if ``split`` is neither.
    """
    if split not in ("ci_a", "ci_b"):
        raise UsboostError(f"split must be ci_a or ci_b, not {split!r}")
    lines = _lines(Path(train))
    distinct = list(dict.fromkeys(lines))
    fitted = _frame(Path(train), distinct, lines).drop(columns=WEIGHT)
    held = read(test).drop(columns=WEIGHT)

    # Each choice has its own stream, so that none depends on how many numbers another drew.
    order = np.random.default_rng([seed, 0]).permutation(len(held))
    half = len(held) // 2
    splits = {
        "train": fitted,
        "val": held.iloc[np.sort(order[:half])].reset_index(drop=True),
        "test": held.iloc[np.sort(order[half:])].reset_index(drop=True),
    }
    more: dict[str, Any] = {"lines": {"read": len(lines), "distinct": len(distinct)}}
    if split == "ci_a":
        in_s, why = _at_random(seed)
    else:
        result = backward_elimination(
            TableEncoder.fit(fitted, FEATURES).transform(fitted),
            fitted[LABEL].to_numpy(),
            seed=seed,
            rows=rows,
            candidates=candidates,
            tolerance=tolerance,
            at_most=len(FEATURES) - 1,
        )
        in_s, why = set(result.kept), _why_kept(result)
        more["elimination"] = [
            {"removed": step.removed, "loss": step.loss, "remaining": step.remaining} for step in result.path
        ]
    views = {
        "U": [name for name in FEATURES if name not in in_s],
        "S": [name for name in FEATURES if name in in_s],
    }
    card = describe(
        splits,
        views,
        CLASSES,
        dataset=split,
        profile=profile,
        seed=seed,
        columns=_columns(in_s, why),
        sources={Path(path).name: sha256(path) for path in (train, test)},
        **more,
    )
    return Prepared(splits, views, list(CLASSES), card)


def _at_random(seed: int) -> tuple[set[str], dict[str, str]]:
    """Half of the features, which CI-A has in S, and why each is where it is."""
    chosen = np.random.default_rng([seed, 1]).permutation(len(FEATURES))[: len(FEATURES) // 2]
    return {FEATURES[j] for j in chosen}, dict.fromkeys(FEATURES, f"random half of the features, seed {seed}")


def _why_kept(result: Elimination) -> dict[str, str]:
    """Why each feature of CI-B is where it is."""
    steps = {step.removed: number for number, step in enumerate(result.path)}
    return {
        name: "kept by backward elimination"
        if name in result.kept
        else f"removed at step {steps[name]} of backward elimination"
        for name in FEATURES
    }


def _columns(in_s: set[str], why: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What the card says of each column."""
    columns: dict[str, dict[str, Any]] = {
        name: {
            "view": "S" if name in in_s else "U",
            "kind": "continuous" if name in CONTINUOUS else "nominal",
            "why": why[name],
        }
        for name in FEATURES
    }
    columns[WEIGHT] = {"view": None, "kind": "continuous", "why": "instance weight, not a feature; dropped"}
    columns[LABEL] = {"view": None, "kind": "label", "why": "what is predicted"}
    return columns


def _lines(path: Path) -> list[bytes]:
    """The raw lines of a file, without the blank ones at its end."""
    # What was stripped from the last line may have made it differ from its duplicate.
    return [line.rstrip() for line in lines_of(path).split(b"\n")]


def _frame(path: Path, lines: Sequence[bytes], original: Sequence[bytes]) -> pd.DataFrame:
    """Parse lines; ``original`` are those of the file, to say which one is wrong."""
    text = pa.dictionary(pa.int32(), pa.string())
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(b"\n".join(lines)),
            read_options=pyarrow.csv.ReadOptions(column_names=list(COLUMNS)),
            parse_options=pyarrow.csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.float64() if name in _NUMBERS else text for name in COLUMNS},
                null_values=[],
                strings_can_be_null=False,
            ),
        ).unify_dictionaries()
    except pa.ArrowInvalid as error:
        raise _complaint(path, original, str(error)) from error
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        if name in _NUMBERS:
            with np.errstate(over="ignore"):
                columns[name] = table[name].to_numpy().astype(np.float32)
            if not np.isfinite(columns[name]).all():
                raise _complaint(path, original, f"column {name} holds NaN, infinity or a number too large")
        else:
            columns[name] = _category(table[name].combine_chunks())
    labels: pd.Categorical = columns[LABEL]
    codes = [_CODES.get(_plain_label(value), -1) for value in labels.categories]
    y = np.array([*codes, -1], dtype=np.int8)[labels.codes]
    if (y < 0).any():
        raise _complaint(path, original, "a label is unknown")
    if len(np.unique(y)) < 2:
        raise UsboostError(f"{path} holds only the class {CLASSES[y[0]]!r}; both are needed")
    columns[LABEL] = y
    return pd.DataFrame(columns)


def _category(column: pa.DictionaryArray) -> pd.Categorical:
    """Strings without the spaces around them, as a category in sorted order; ``?`` is missing."""
    names = [value.strip() for value in column.dictionary.to_pylist()]
    categories = sorted(set(names) - {"?"})
    position = {name: code for code, name in enumerate(categories)}
    recoded = np.array([position.get(name, -1) for name in names], dtype=np.int32)
    codes = recoded[column.indices.to_numpy()]
    return pd.Categorical.from_codes(codes, categories=pd.Index(categories, dtype="str"))


def _plain_label(value: str) -> str:
    return value.replace(" ", "").removesuffix(".")


def _complaint(path: Path, lines: Sequence[bytes], otherwise: str) -> UsboostError:
    """What is wrong with the first wrong line, found the slow way."""
    names = list(COLUMNS)
    for number, line in enumerate(lines, start=1):
        fields = [field.strip().decode("utf-8", "replace") for field in line.split(b",")]
        if len(fields) != len(names):
            return UsboostError(f"{path}, line {number}: {len(fields)} fields instead of {len(names)}")
        for name, field in zip(names, fields, strict=True):
            if name in _NUMBERS and not _is_finite(field):
                return UsboostError(f"{path}, line {number}: {name} must be a number, not {field!r}")
        if _plain_label(fields[-1]) not in _CODES:
            return UsboostError(
                f"{path}, line {number}: the label must be one of {CLASSES}, not {fields[-1]!r}"
            )
    return UsboostError(f"{path} cannot be read as a census file: {otherwise}")


def _is_finite(field: str) -> bool:
    try:
        return bool(np.isfinite(float(field)))
    except ValueError:
        return False
