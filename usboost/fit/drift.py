"""Drift: compare rows that a model is asked about with those that it was fitted to, column by column."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from usboost.data.encoding import Categorical
from usboost.errors import UsboostError
from usboost.fit.card import Card
from usboost.table.columns.column import Column, is_binary, is_text, plain_cells
from usboost.table.images import NO_IMAGE, no_images
from usboost.table.notes import Tally
from usboost.table.source import TableFile, require

BINS = 10


def psi(reference: np.ndarray, current: np.ndarray) -> float:
    """Return the population stability index Σ_b (a_b − e_b) · ln(a_b / e_b) of two sets of counts.

    e_b and a_b are the shares of bin b, after half a count is added to each: none is 0. Counts are (B,).
    """
    shares = [(np.asarray(counts, dtype=np.float64) + 0.5) for counts in (reference, current)]
    expected, actual = (counts / counts.sum() for counts in shares)
    return float(np.sum((actual - expected) * np.log(actual / expected)))


def noise(bins: int, n_reference: int, n_current: int, level: float) -> float:
    """Return what the index of two samples of one distribution exceeds with probability `level`.

    It is about (1/n_reference + 1/n_current) · χ² with B − 1 degrees of freedom, of the B `bins` it reaches.
    """
    if bins < 2:
        return 0.0
    return float(stats.chi2.isf(level, bins - 1) * (1 / n_reference + 1 / n_current))


def edges(values: np.ndarray) -> np.ndarray:
    """Return inner edges that cut values of shape (n,) into `BINS` bins of about equal counts.

    A value that is more frequent than that has a bin of its own. A value equal to an edge lies above it.
    """
    distinct, counts = np.unique(values, return_counts=True)
    frequent = distinct[counts > len(values) / BINS]
    cuts = [np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]), frequent, np.nextafter(frequent, np.inf)]
    return np.unique(np.concatenate(cuts))


def number_counts(reference: np.ndarray, current: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return counts of both in bins of equal counts of the reference, NaN left out."""
    inner = edges(reference[~np.isnan(reference)])
    counts = [
        np.bincount(np.searchsorted(inner, values[~np.isnan(values)], side="right"), minlength=len(inner) + 1)
        for values in (reference, current)
    ]
    return counts[0], counts[1]


def ks(reference: np.ndarray, current: np.ndarray) -> float:
    """Return the Kolmogorov–Smirnov statistic, of the values that are not NaN."""
    known, seen = (values[~np.isnan(values)] for values in (reference, current))
    return float(stats.ks_2samp(known, seen, method="asymp").statistic)


def improbable(count: int, n: int, share: float, level: float) -> bool:
    """Return whether `count` or more of n rows of probability `share` are less probable than `level`."""
    return bool(stats.binom.sf(count - 1, n, share) < level)


LEVEL = 0.01
"""Probability that one false alarm is among all columns, where nothing has drifted."""

_ROWS = 65_536


def compare(
    card: Card,
    train: pd.DataFrame,
    without: Mapping[str, int],
    table: Path,
    *,
    psi: float = 0.2,
    share: float = 0.1,
) -> pd.DataFrame:
    """Compare the rows of a table with the training rows of a model.

    Raises `UsboostError` if the table has no rows, lacks a column, or holds a value of another kind.

    Parameters
    ----------
    card : of the model.
    train : its raw training rows, float64 numbers and strings, NaN or None where missing; of dates, which
        always move on, only the missing ones are compared.
    without : training rows without an image, by column of images.
    table : a ``.parquet`` or ``.csv`` file with the columns that the model reads. No image is opened.
    psi : stability index above which a column drifts.
    share : by how much more rows may be missing, or hold unseen categories.

    Returns
    -------
    DataFrame, a row for each column of the model, those that drift first, then by index:
        ``column``, ``kind``; ``psi`` and, for numbers, ``ks``; ``noise``, the index that chance alone exceeds
        with a probability of `LEVEL` among all columns; ``missing_train`` and ``missing``, shares of rows;
        ``unseen``, the share of rows with a category that training did not have, which the index leaves out;
        ``drift``, what has passed its limit and what chance explains, "" where nothing has.
    """
    file = TableFile.open(table)
    images = [] if card.images is None else card.images.columns
    require(file, [*card.columns, *images])
    current, absent = _read(file, card, train, images)
    if not (n := len(current)):
        raise UsboostError(f"{table} has no rows")
    level = LEVEL / (len(card.columns) + len(images))
    rows: list[dict[str, Any]] = []
    for name, kind in card.columns.items():
        shares = {"missing_train": train[name].isna().mean(), "missing": current[name].isna().mean()}
        row: dict[str, Any] = {"column": name, "kind": kind, **shares}
        if kind in ("number", "category"):
            known = None if kind == "number" else Categorical.fit(name, train[name])
            row |= _compared(train[name], current[name], known, level)
        rows.append(row)
    for name in images:
        row = {"column": name, "kind": "image", "missing_train": without[name] / len(train)}
        rows.append({**row, "missing": absent[name] / n})
    columns = ["column", "kind", "psi", "noise", "ks", "missing_train", "missing", "unseen"]
    frame = pd.DataFrame(rows).reindex(columns=columns)
    drifts = []
    for row in frame.to_dict("records"):
        passed = [f"stability index {row['psi']:.2f}"] if row["psi"] > max(psi, row["noise"]) else []
        # as many new rows have unseen values as training rows have one that is theirs alone (Good and Turing)
        once = 0.0 if row["kind"] != "category" else (train[row["column"]].value_counts() == 1).sum()
        for what, before in (("missing", row["missing_train"]), ("unseen", once / len(train))):
            now, rare = row[what], max(before, 1 / len(train))
            if now - before > share and improbable(round(now * n), n, rare, level):
                passed.append(f"{now:.0%} {what}")
        drifts.append(", ".join(passed))
    frame.insert(1, "drift", drifts)  # a narrow page cuts off what is last
    order = frame.assign(fine=frame["drift"] == "").sort_values(["fine", "psi"], ascending=[True, False])
    return order.drop(columns="fine").reset_index(drop=True)


def _read(
    file: TableFile, card: Card, train: pd.DataFrame, images: list[str]
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return the columns of numbers and categories, and how many rows lack each image."""
    batches, absent, tally = [], dict.fromkeys(images, 0), Tally()
    formats = {name: written.form for name, written in card.formats.items()}
    for raw in file.batches([*card.columns, *images], _ROWS):
        first = tally.rows
        columns = {}
        for name, kind in card.columns.items():
            column = Column(file, name, raw[name], first, card.missing)
            if not first:
                usual = train[name].median() if kind == "number" else None
                here, _ = column.format_here(kind, formats.pop(name, None), usual)
                formats |= {} if here is None else {name: here}
            values = column.feature(kind, formats.get(name), tally.of_kind(name, kind))
            columns[name] = values.astype(object) if kind == "category" else values
        batches.append(pd.DataFrame(columns, index=pd.RangeIndex(first, first + raw.num_rows)))
        for name in images:
            absent[name] += _empty(file, name, raw[name])
        tally.rows += raw.num_rows
    for misfits in tally.misfits.values():
        misfits.check()
    return pd.concat(batches) if batches else pd.DataFrame(columns=list(card.columns)), absent


def _empty(file: TableFile, name: str, cells: pa.ChunkedArray) -> int:
    """Return how many cells hold no path and no bytes."""
    plain = plain_cells(cells)
    if pa.types.is_struct(plain.type):
        return sum(not (each and (each.get("bytes") or each.get("path"))) for each in plain.to_pylist())
    if is_text(plain.type) or is_binary(plain.type):
        nothing = pa.array([*NO_IMAGE, None] if is_text(plain.type) else [b"", None], plain.type)
        return int(pc.sum(pc.is_in(plain, nothing)).as_py() or 0)
    missing = int(pc.sum(pc.is_null(plain, nan_is_null=True)).as_py() or 0)
    if missing < len(plain):
        raise no_images(file, name)
    return missing


def _compared(
    train: pd.Series, current: pd.Series, known: Categorical | None, level: float
) -> dict[str, float]:
    """Return the index of a column, what chance explains of it, and what is of its kind alone."""
    more: dict[str, float] = {}
    if known is None:
        # prepared rows are float32, and a value rounded otherwise would be another one
        reference, values = (
            each.to_numpy(np.float64).astype(np.float32).astype(np.float64) for each in (train, current)
        )
        if np.isnan(reference).all() or np.isnan(values).all():
            return {}
        counts, more["ks"] = number_counts(reference, values), ks(reference, values)
    else:
        codes, present = known(current), current.notna().to_numpy()
        more["unseen"] = float((codes[present] == 0).sum() / len(codes))  # 0 is of what training did not have
        both = known(train[train.notna()]), codes[present]
        first, second = (np.bincount(each, minlength=len(known.values) + 1)[1:] for each in both)
        if not first.sum() or not second.sum():
            return more
        counts = first, second
    reached = (counts[0] + counts[1]) > 0
    chance = noise(int(reached.sum()), int(counts[0].sum()), int(counts[1].sum()), level)
    return {"psi": psi(counts[0][reached], counts[1][reached]), "noise": chance, **more}
