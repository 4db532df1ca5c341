"""Census-Income (KDD): the raw files, and the datasets CI-A and CI-B made of them.

Every line is one person: 42 fields, of which the instance weight is no feature and the last is the
label. CI-A cuts the 40 features at random into U and S; CI-B gives the most informative ones, which
`backward_elimination` finds, to S.
"""

import csv
import gzip
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.encoding import TableEncoder
from usboost.data.table import Table
from usboost.datasets.sampling import stratified_sample
from usboost.datasets.sources import RemoteFile, digests, is_finite, lines_of, parse_csv, read_demo
from usboost.datasets.store import LABEL, Prepared, describe
from usboost.errors import UsboostError
from usboost.files import write_atomically

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

ROUNDS = 60
"""Boosting rounds of the small model that judges a set of columns."""

PARAMETERS: dict[str, Any] = {
    "num_leaves": 15,
    "learning_rate": 0.1,
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "seed": 0,
}
"""Its LightGBM parameters. One thread a model: sums depend on the number, and on a few thousand rows several
threads cost far more than they save as soon as another process shares the cores. Models are fitted side by
side instead."""


@dataclass(frozen=True)
class Step:
    """One point of the path: the column just removed (None at the start), the holdout log-loss of
    the model without it, in nats, and how many columns remain."""

    removed: str | None
    loss: float
    remaining: int


@dataclass(frozen=True)
class Elimination:
    """A path from all columns to one, and the columns kept, in the table's order."""

    path: tuple[Step, ...]
    kept: tuple[str, ...]


DEMO = Path(__file__).resolve().parents[2] / "data" / "census_income.parquet"
"""Some thousand rows of both files, with a column ``split``; in a checkout."""


def write_demo(folder: Path, *, rows_train: int, rows_test: int, seed: int) -> None:
    """Write the two raw files with at most so many real rows, drawn with the classes' shares.

    Equal arguments write equal bytes. Raises UsboostError if the small file of a checkout is not there.
    """
    frame = read_demo(DEMO)
    for file, split, rows in zip(FILES, ("train", "test"), (rows_train, rows_test), strict=True):
        own = frame[frame["split"] == split]
        drawn = own.iloc[stratified_sample(own[LABEL], rows, seed)][list(COLUMNS)]
        text = drawn.to_csv(index=False, header=False, quoting=csv.QUOTE_NONE)
        write_atomically(Path(folder) / file.name, gzip.compress(text.encode(), mtime=0))


def read(path: Path) -> pd.DataFrame:
    """Read one raw file, gzipped or plain.

    Returns a DataFrame of n rows and the 42 `COLUMNS`: float32 numbers, pandas categories of strings (``?``
    is missing) and the int8 label, 0 for ``- 50000.`` and 1 for ``50000+.``.

    Raises UsboostError if the file is missing, empty or a damaged gzip file, a line has not 42 fields, a
    numeric field is not a finite number, a label is unknown, or there is only one class.
    """
    lines = _lines(path)
    return _frame(path, lines, lines)


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

    Of exact duplicate lines of the training file (weight included) the first stays; the weight is dropped; a
    random half of the test file is the validation split, the other half the test split, the same for both
    datasets. Raises UsboostError as `read`, or if ``split`` is neither.

    Parameters
    ----------
    split : "ci_a" halves the features at random, "ci_b" by backward elimination on the training split: what
        is kept is S, the rest U.
    seed : of the halves, and of the elimination.
    profile : "demo" or "paper"; only noted in the card.
    rows, candidates, tolerance : of `backward_elimination`.
    """
    if split not in ("ci_a", "ci_b"):
        raise UsboostError(f"split must be ci_a or ci_b, not {split!r}")
    lines = _lines(train)
    distinct = list(dict.fromkeys(lines))
    fitted = _frame(train, distinct, lines).drop(columns=WEIGHT)
    unseen = read(test).drop(columns=WEIGHT)

    # Each choice has its own stream, so that none depends on how many numbers another drew.
    order = np.random.default_rng([seed, 0]).permutation(len(unseen))
    half = len(unseen) // 2
    splits = {
        "train": fitted,
        "val": unseen.iloc[np.sort(order[:half])].reset_index(drop=True),
        "test": unseen.iloc[np.sort(order[half:])].reset_index(drop=True),
    }
    more: dict[str, Any] = {"lines": {"read": len(lines), "distinct": len(distinct)}}
    if split == "ci_a":
        chosen = np.random.default_rng([seed, 1]).permutation(len(FEATURES))[: len(FEATURES) // 2]
        in_s = {FEATURES[j] for j in chosen}
        why: dict[str | None, str] = dict.fromkeys(FEATURES, f"random half of the features, seed {seed}")
    else:
        table, y = TableEncoder.fit(fitted, FEATURES).transform(fitted), fitted[LABEL].to_numpy()
        how = {"rows": rows, "candidates": candidates, "at_most": len(FEATURES) - 1}
        result = backward_elimination(table, y, seed=seed, tolerance=tolerance, **how)
        in_s = set(result.kept)
        steps = enumerate(result.path)
        why = {step.removed: f"removed at step {number} of backward elimination" for number, step in steps}
        why |= dict.fromkeys(result.kept, "kept by backward elimination")
        more["elimination"] = [asdict(step) for step in result.path]
    view_of = {name: "S" if name in in_s else "U" for name in FEATURES}
    views = {view: [name for name in FEATURES if view_of[name] == view] for view in ("U", "S")}
    kind_of = {name: "continuous" if name in CONTINUOUS else "nominal" for name in FEATURES}
    columns: dict[str, dict[str, Any]] = {
        name: {"view": view_of[name], "kind": kind_of[name], "why": why[name]} for name in FEATURES
    }
    columns[WEIGHT] = {"view": None, "kind": "continuous", "why": "instance weight, not a feature; dropped"}
    columns[LABEL] = {"view": None, "kind": "label", "why": "what is predicted"}
    card = describe(
        splits,
        views,
        CLASSES,
        dataset=split,
        profile=profile,
        seed=seed,
        columns=columns,
        sources=digests([Path(train), Path(test)], DEMO if profile == "demo" else None),
        **more,
    )
    return Prepared(splits, views, list(CLASSES), card)


def _lines(path: Path) -> list[bytes]:
    """Read the raw lines of a file, without the blank ones at its end."""
    # What was stripped from the last line may have made it differ from its duplicate.
    return [line.rstrip() for line in lines_of(Path(path)).split(b"\n")]


def _frame(path: Path, lines: Sequence[bytes], original: Sequence[bytes]) -> pd.DataFrame:
    """Parse lines; ``original`` are those of the file, to say which one is wrong."""
    text = pa.dictionary(pa.int32(), pa.string())
    try:
        types = {name: pa.float64() if name in _NUMBERS else text for name in COLUMNS}
        table = parse_csv(b"\n".join(lines), types).unify_dictionaries()
    except pa.ArrowInvalid as error:
        raise _complaint(path, original, str(error)) from error
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        if name in _NUMBERS:
            with np.errstate(over="ignore"):
                columns[name] = table[name].to_numpy().astype(np.float32)
            if not np.isfinite(columns[name]).all():
                raise _complaint(path, original, f"column {name} holds NaN, infinity or a number too large")
            continue
        # strings without the spaces around them, as a category in sorted order; "?" is missing
        column = table[name].combine_chunks()
        values = [value.strip() for value in column.dictionary.to_pylist()]
        categories = sorted(set(values) - {"?"})
        position = {value: code for code, value in enumerate(categories)}
        recoded = np.array([position.get(value, -1) for value in values], dtype=np.int32)
        named = pd.Index(categories, dtype="str")
        columns[name] = pd.Categorical.from_codes(recoded[column.indices.to_numpy()], categories=named)
    labels: pd.Categorical = columns[LABEL]
    codes = [_CODES.get(value.replace(" ", "").removesuffix("."), -1) for value in labels.categories]
    y = np.array([*codes, -1], dtype=np.int8)[labels.codes]
    if (y < 0).any():
        raise _complaint(path, original, "a label is unknown")
    if len(np.unique(y)) < 2:
        raise UsboostError(f"{path} holds only the class {CLASSES[y[0]]!r}; both are needed")
    columns[LABEL] = y
    return pd.DataFrame(columns)


def _complaint(path: Path, lines: Sequence[bytes], otherwise: str) -> UsboostError:
    """Name what is wrong with the first wrong line, the slow way."""
    names = list(COLUMNS)
    for number, line in enumerate(lines, start=1):
        fields = [field.strip().decode("utf-8", "replace") for field in line.split(b",")]
        if len(fields) != len(names):
            return UsboostError(f"{path}, line {number}: {len(fields)} fields instead of {len(names)}")
        for name, field in zip(names, fields, strict=True):
            if name in _NUMBERS and not is_finite(field):
                return UsboostError(f"{path}, line {number}: {name} must be a number, not {field!r}")
        if fields[-1].replace(" ", "").removesuffix(".") not in _CODES:
            return UsboostError(f"{path}, line {number}: the label must be in {CLASSES}, not {fields[-1]!r}")
    return UsboostError(f"{path} cannot be read as a census file: {otherwise}")


def backward_elimination(
    table: Table,
    y: np.ndarray,
    *,
    seed: int,
    rows: int = 40_000,
    candidates: int = 5,
    tolerance: float = 0.01,
    at_most: int | None = None,
) -> Elimination:
    """Remove the least useful column, one after the other, until one is left.

    Each set of columns is judged by the log-loss, on a holdout, of a small LightGBM model. At each step the
    `candidates` columns with the least split gain are left out in turn, and the one whose removal leaves the
    lowest loss goes (on equal losses, the one with the least gain, then the first). Of the sets on the path,
    the smallest is kept, of `at_most` columns, whose loss is up to (1 + `tolerance`) times the least.

    Raises UsboostError if the numbers of rows differ, there is a single class or a class too small to be in
    both halves, there is no column, or a parameter is out of its range.

    Parameters
    ----------
    table, y : the training split, n rows and p columns, and whole numbers of shape (n,).
    seed : chooses the rows; equal seeds give equal paths.
    rows : how many are looked at, a random half to fit, the other as holdout; both keep the classes' shares.
    """
    y = np.asarray(y)
    limit = table.n_columns if at_most is None else at_most
    if len(y) != len(table):
        raise UsboostError(f"the table has {len(table)} rows but there are {len(y)} labels")
    if table.n_columns < 1:
        raise UsboostError("backward elimination needs at least one column")
    if rows < 4 or candidates < 1 or tolerance < 0 or limit < 1:
        raise UsboostError(
            f"backward elimination needs rows >= 4, candidates >= 1, tolerance >= 0 and at_most >= 1, "
            f"not {rows}, {candidates}, {tolerance} and {limit}"
        )
    classes, y = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise UsboostError("backward elimination needs at least two classes")

    import lightgbm as lgb
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    half = min(rows, len(y)) // 2
    try:
        fit, holdout = train_test_split(
            np.arange(len(y)), train_size=half, test_size=half, stratify=y, random_state=seed
        )
    except ValueError as error:
        raise UsboostError(f"{2 * half} rows cannot be halved with all classes in both: {error}") from error
    parameters = {**PARAMETERS, "objective": "binary"}
    if len(classes) > 2:
        parameters |= {"objective": "multiclass", "num_class": len(classes)}
    x_fit, x_holdout = table[fit].matrix(), table[holdout].matrix()

    def judge(columns: list[int]) -> tuple[float, np.ndarray]:
        """Fit to some columns; return the holdout's log-loss, and split gains of shape (columns,)."""
        nominal = [position for position, j in enumerate(columns) if j in table.categorical]
        data = lgb.Dataset(x_fit[:, columns], y[fit], categorical_feature=nominal)
        model = lgb.train(parameters, data, ROUNDS)
        predicted = model.predict(x_holdout[:, columns], num_threads=PARAMETERS["num_threads"])
        loss = log_loss(y[holdout], np.asarray(predicted), labels=range(len(classes)))
        return float(loss), model.feature_importance("gain")

    columns = list(range(table.n_columns))
    loss, gain = judge(columns)
    path, sets = [Step(None, loss, len(columns))], [columns]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        while len(columns) > 1:
            tried = [int(j) for j in np.argsort(gain, kind="stable")[:candidates]]
            smaller = [columns[:j] + columns[j + 1 :] for j in tried]
            judged = list(threads.map(judge, smaller))
            best = min(range(len(tried)), key=lambda k: judged[k][0])  # the first of equal ones
            path.append(Step(table.names[columns[tried[best]]], judged[best][0], len(columns) - 1))
            (loss, gain), columns = judged[best], smaller[best]
            sets.append(columns)
    allowed = [step for step in range(len(path)) if len(sets[step]) <= limit]
    bound = (1 + tolerance) * min(path[step].loss for step in allowed)
    smallest = max(step for step in allowed if path[step].loss <= bound)
    return Elimination(tuple(path), tuple(table.names[j] for j in sets[smallest]))
