"""What a table is said to be, and what in it may be a mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from usboost.datasets.custom.schema import describe
from usboost.datasets.custom.suspects import gives_away
from usboost.datasets.custom.table import read_table

N = 300


def table(folder: Path, **columns: object) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=N), "c": rng.choice(["u", "v"], N), "y": np.arange(N) % 3})
    frame.assign(**columns).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def test_each_column_is_described(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=N, freq="D").to_series(index=range(N))
    path = table(tmp_path, i=range(N), day=days.mask(days.index < 2), z=1.0, f=["p.png"] * N, s=0)
    schema = describe(read_table(path, label="y", image="f", drop=["s"]))
    found = {each.name: (each.kind, each.missing, each.distinct, each.use) for each in schema.columns}
    assert found == {
        "x": ("number", 0, N, "number"),
        "c": ("category", 0, 2, "category"),
        "y": ("label", 0, 3, "3 classes"),
        "i": ("", None, None, "left out: each row has its own value"),
        "day": ("date", 2, N - 2, "4 numbers: month, weekday, yearday, days; constant: year, hour"),
        "z": ("number", 0, 1, "number"),
        "f": ("picture", None, None, "picture"),
        "s": ("", None, None, "dropped"),
    }
    assert schema.rows == N
    assert schema.warnings == ("column 'z' has the same value in all rows, so it says nothing",)
    assert schema.notes == (
        "the label 'y' has 3 different whole numbers, taken as classes",
        "column 'i' is left out: each row has its own value",
    )


def test_what_looks_like_a_mistake(tmp_path: Path) -> None:
    label = np.arange(N) % 3
    rng = np.random.default_rng(1)
    path = table(tmp_path, code=np.array([7, 9, 8])[label], word=np.array(list("pqr"))[label])
    frame = pd.read_parquet(path).assign(
        x2=lambda f: f["x"], c2=lambda f: f["c"], noise=rng.integers(0, 9, N)
    )
    pd.concat([frame, frame.head(4)]).to_parquet(path)
    alone = "alone gives 'y' away; drop it with --drop {0!r} if it is not known before the label"
    assert describe(read_table(path, label="y")).warnings == (
        *(f"column {name!r} {alone.format(name)}" for name in ("code", "word")),
        "column 'x2' holds the same as 'x'; one of them can be dropped",
        "column 'c2' holds the same as 'c'; one of them can be dropped",
        "4 rows are equal to an earlier one",
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (lambda y, rng: y + rng.uniform(0, 0.99, len(y)), True),
        (lambda y, rng: -y + rng.normal(0, 0.5, len(y)), False),
        (lambda y, rng: np.where(y == 1, np.nan, rng.normal(size=len(y))), True),
        (lambda y, rng: rng.permutation(len(y)), False),
        (lambda y, rng: pd.Categorical([f"k{k}" for k in range(len(y))]), False),
        (lambda y, rng: pd.Categorical(np.where(rng.random(len(y)) < 0.001, 1 - y, y)), True),
        (lambda y, rng: pd.to_datetime("2020-01-01") + pd.to_timedelta(y, unit="D"), True),
    ],
)
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_a_column_gives_the_label_away(values, expected: bool, share: float) -> None:
    rng = np.random.default_rng(2)
    y = (rng.random(1000) < share).astype(int)
    assert gives_away(pd.Series(values(y, rng)), y) is expected


def test_few_rows_say_nothing() -> None:
    y = np.arange(40) % 2
    assert not gives_away(pd.Series(y.astype(float)), y)
    assert gives_away(pd.Series(np.tile(y, 2).astype(float)), np.tile(y, 2))
