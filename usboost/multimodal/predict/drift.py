"""Whether rows that a model is asked about are like those that it was fitted to, column by column."""

from __future__ import annotations

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
from usboost.multimodal.fit.card import Card
from usboost.table.columns.column import Column, is_binary, is_text, plain_cells
from usboost.table.images import no_images
from usboost.table.notes import Tally
from usboost.table.source import TableFile, require

BINS = 10


def psi(reference: np.ndarray, found: np.ndarray) -> float:
    """The population stability index Σ_b (a_b − e_b) · ln(a_b / e_b) of two sets of counts.

    e_b and a_b are the shares of bin b, after half a count is added to each bin: none is 0.

    Parameters
    ----------
    reference, found : counts of shape (B,).
    """
    shares = [(np.asarray(counts, dtype=np.float64) + 0.5) for counts in (reference, found)]
    expected, actual = (counts / counts.sum() for counts in shares)
    return float(np.sum((actual - expected) * np.log(actual / expected)))


def noise(bins: int, n_reference: int, n_found: int, level: float) -> float:
    """What the index of two samples of one distribution exceeds with probability `level`.

    Their index is about (1/n_reference + 1/n_found) · χ² with B − 1 degrees of freedom.

    Parameters
    ----------
    bins : B, those that the distribution reaches.
    """
    if bins < 2:
        return 0.0
    return float(stats.chi2.isf(level, bins - 1) * (1 / n_reference + 1 / n_found))


def edges(values: np.ndarray) -> np.ndarray:
    """Inner edges that cut values of shape (n,) into `BINS` bins of about equal counts.

    A value that is more frequent than that has a bin of its own. A value equal to an edge lies above it.
    """
    distinct, counts = np.unique(values, return_counts=True)
    frequent = distinct[counts > len(values) / BINS]
    cuts = [np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]), frequent, np.nextafter(frequent, np.inf)]
    inner = np.unique(np.concatenate(cuts))
    return inner[(inner > distinct[0]) & (inner <= distinct[-1])]


def number_counts(reference: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts of both in bins of equal counts of the reference, NaN left out; at least one each is there."""
    inner = edges(reference[~np.isnan(reference)])
    counts = [
        np.bincount(np.searchsorted(inner, values[~np.isnan(values)], side="right"), minlength=len(inner) + 1)
        for values in (reference, found)
    ]
    return counts[0], counts[1]


def ks(reference: np.ndarray, found: np.ndarray) -> float:
    """The Kolmogorov–Smirnov statistic, the largest distance of the distribution functions; NaN left out."""
    known, seen = (np.sort(values[~np.isnan(values)]) for values in (reference, found))
    at = np.concatenate([known, seen])
    below = [np.searchsorted(each, at, side="right") / len(each) for each in (known, seen)]
    return float(np.abs(below[0] - below[1]).max())


def improbable(count: int, n: int, share: float, level: float) -> bool:
    """Whether `count` or more of n rows have a probability below `level` where each has one of `share`."""
    return bool(stats.binom.sf(count - 1, n, share) < level)


LEVEL = 0.01
"""How probable one false alarm is among all columns, where nothing has drifted."""

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
        ``unseen``, the share of rows with a category that training did not have; ``drift``, what has passed
        its limit and what chance explains, "" where nothing has.

    Raises
    ------
    UsboostError
        If the table has no rows, lacks a column, or holds a value of another kind.
    """
    file = TableFile.open(table)
    images = [] if card.images is None else card.images.columns
    require(file, [*card.columns, *images])
    found, absent = _read(file, card, images)
    n = len(found)
    if not n:
        raise UsboostError(f"{table} has no rows")
    level = LEVEL / (len(card.columns) + len(images))
    rows: list[dict[str, Any]] = []
    for name, kind in card.columns.items():
        row: dict[str, Any] = {"column": name, "kind": kind}
        row |= {
            "missing_train": float(train[name].isna().mean()),
            "missing": float(found[name].isna().mean()),
        }
        if kind == "number":
            row |= _numbers(train[name], found[name], level)
        elif kind == "category":
            row |= _categories(name, train[name], found[name], level)
        rows.append(row)
    for name in images:
        row = {"column": name, "kind": "image", "missing_train": without[name] / len(train)}
        rows.append({**row, "missing": absent[name] / n})
    columns = ["column", "kind", "psi", "noise", "ks", "missing_train", "missing", "unseen"]
    frame = pd.DataFrame(rows).reindex(columns=columns)
    frame["drift"] = [
        ", ".join(_passed(row, n, len(train), psi=psi, share=share, level=level))
        for row in frame.to_dict("records")
    ]
    order = frame.assign(fine=frame["drift"] == "").sort_values(["fine", "psi"], ascending=[True, False])
    shown = ["column", "drift", *columns[1:]]  # a narrow page cuts off what is last
    return order[shown].reset_index(drop=True)


def _read(file: TableFile, card: Card, images: list[str]) -> tuple[pd.DataFrame, dict[str, int]]:
    """The columns of numbers and categories, and how many rows have no image in each column of these."""
    batches, absent, tally = [], dict.fromkeys(images, 0), Tally()
    formats = {name: written.form for name, written in card.formats.items()}
    for raw in file.batches([*card.columns, *images], _ROWS):
        first = tally.rows
        columns = {
            name: Column(file, name, raw[name], first, card.missing).feature(
                kind, formats.get(name), tally.of_kind(name, kind)
            )
            for name, kind in card.columns.items()
        }
        texts = {
            name: values.astype(object) if card.columns[name] == "category" else values
            for name, values in columns.items()
        }
        batches.append(pd.DataFrame(texts, index=pd.RangeIndex(first, first + raw.num_rows)))
        for name in images:
            absent[name] += _empty(file, name, raw[name])
        tally.rows += raw.num_rows
    tally.check()
    return pd.concat(batches) if batches else pd.DataFrame(columns=list(card.columns)), absent


def _empty(file: TableFile, name: str, cells: pa.ChunkedArray) -> int:
    """How many cells hold no path and no bytes."""
    plain = plain_cells(cells)
    if pa.types.is_struct(plain.type):
        return sum(not (each and (each.get("bytes") or each.get("path"))) for each in plain.to_pylist())
    if is_text(plain.type) or is_binary(plain.type):
        return int(pc.sum(pc.equal(pc.fill_null(pc.binary_length(plain), 0), 0)).as_py() or 0)
    missing = int(pc.sum(pc.is_null(plain, nan_is_null=True)).as_py() or 0)
    if missing < len(plain):
        raise no_images(file, name)
    return missing


def _numbers(train: pd.Series, found: pd.Series, level: float) -> dict[str, float]:
    # prepared rows are float32, and a value rounded otherwise would be another one
    reference, values = (
        each.to_numpy(np.float64).astype(np.float32).astype(np.float64) for each in (train, found)
    )
    if np.isnan(reference).all() or np.isnan(values).all():
        return {}
    counts = number_counts(reference, values)
    return {"psi": psi(*counts), "noise": _noise(counts, level), "ks": ks(reference, values)}


def _categories(name: str, train: pd.Series, found: pd.Series, level: float) -> dict[str, float]:
    known = Categorical.fit(name, train)
    size = len(known.values) + 1  # code 0 is of what training did not have
    codes, present = known(found), found.notna().to_numpy()
    unseen = float((codes[present] == 0).sum() / len(codes))
    reference, values = (
        np.bincount(each, minlength=size) for each in (known(train[train.notna()]), codes[present])
    )
    if not reference.sum() or not values.sum():
        return {"unseen": unseen}
    counts = reference, values
    return {"psi": psi(*counts), "noise": _noise(counts, level), "unseen": unseen}


def _noise(counts: tuple[np.ndarray, np.ndarray], level: float) -> float:
    reached = int(((counts[0] + counts[1]) > 0).sum())
    return noise(reached, int(counts[0].sum()), int(counts[1].sum()), level)


def _passed(
    row: Mapping[str, Any], n: int, n_train: int, *, psi: float, share: float, level: float
) -> list[str]:
    """What of a column is above its limit, and more than chance explains."""
    passed = []
    if row["psi"] > max(psi, row["noise"]):
        passed.append(f"stability index {row['psi']:.2f}")
    for what, now, before in (
        ("missing", row["missing"], row["missing_train"]),
        ("unseen", row["unseen"], 0.0),
    ):
        if now - before > share and improbable(round(now * n), n, max(before, 1 / n_train), level):
            passed.append(f"{now:.0%} {what}")
    return passed
