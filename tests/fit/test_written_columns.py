"""Numbers and dates as people write them, from the table to the saved model and its predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.fit.conftest import accepted, refused
from usboost.datasets import store
from usboost.fit import bundle, drift
from usboost.fit.build import fit
from usboost.fit.bundle import raw_rows
from usboost.table import prepared as user_table
from usboost.table.prepared import read_prepared
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

N = 60


def plain() -> pd.DataFrame:
    """Rows with types, some values missing."""
    rng = np.random.default_rng(0)
    price, share = rng.integers(100, 5_000_000, N) / 100, rng.integers(0, 100, N)
    day = pd.Timestamp("2021-11-20") + pd.to_timedelta(rng.integers(0, 90, N), unit="D")
    return pd.DataFrame(
        {
            "no": np.arange(1, N + 1),
            "price": np.where(rng.random(N) < 0.1, np.nan, price),
            "share": share / 100,
            "day": pd.Series(day).mask(rng.random(N) < 0.1),
            "kind": np.where(price / 50_000 + share / 100 > 1, "b", "a"),
        }
    )


def euros(value: float) -> str:
    return "k.A." if np.isnan(value) else f"{value:,.2f} €".translate(str.maketrans(",.", ".,"))


def as_written(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(
        price=frame["price"].map(euros),
        share=frame["share"].map(lambda share: f"{share:.0%}"),
        day=frame["day"].dt.strftime("%d.%m.%Y"),
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("written") / "t.csv"
    as_written(plain()).to_csv(path, index=False, sep=";", encoding="cp1252")
    return path


@pytest.fixture(scope="module")
def model(table: Path) -> Path:
    out = table.parent / "model"
    fit = ("fit", table, "--label", "kind", "--missing", "k.A.", "--model", "lgbm", "--rounds", 5)
    result = accepted(*fit, "--out", out)
    assert "column 'no' is left out: each row has its own value" in result.stderr
    assert "number, written like 1.234,5 €" in result.stderr
    assert "5 numbers: year, month, weekday, yearday, days; constant: hour" in result.stderr
    return out


def test_the_card_says_how_they_are_written(model: Path, table: Path) -> None:
    card = json.loads((model / "card.json").read_text())
    assert card["columns"] == {"price": "number", "share": "number", "day": "date"}
    assert card["formats"]["price"] == {"decimal": ",", "thousands": ".", "unit": "€", "order": None}
    assert card["formats"]["share"]["unit"] == "%" and card["formats"]["day"]["order"] == "dmy"
    assert card["missing"] == ["k.A."] and card["dropped"] == ["no"]
    assert card["dates"]["day"]["parts"] == ["year", "month", "weekday", "yearday", "days"]
    loaded = bundle.load(model)
    loaded.save(model.parent / "again")
    assert (model.parent / "again/card.json").read_text() == (model / "card.json").read_text()


def test_rows_with_types_and_as_written_are_the_same(model: Path, table: Path, tmp_path: Path) -> None:
    result = accepted("predict", model, table, "--out", tmp_path / "p.parquet")
    assert result.stderr == ""
    from_file = pd.read_parquet(tmp_path / "p.parquet")["p_a"]
    loaded = bundle.load(model)
    written = as_written(plain())
    texts = [written, written.assign(day=plain()["day"].dt.strftime("%Y-%m-%d")), plain()]
    for frame in (*texts, plain().assign(day=plain()["day"].dt.tz_localize("UTC"))):
        np.testing.assert_allclose(loaded.predict(frame)["p_a"], from_file, rtol=1e-12)
    plain().to_parquet(tmp_path / "t.parquet")
    accepted("report", model, tmp_path / "t.parquet", "--out", tmp_path / "r.html")


def test_what_is_written_otherwise_counts_as_missing_or_is_refused(model: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "p.csv")
    for column, value, what in (
        ("price", "1.5 €", "numbers"),
        ("share", "12", "numbers"),
        ("day", "x", "dates"),
    ):
        frame = as_written(plain())
        frame.loc[4, column] = value
        frame.to_csv(tmp_path / "t.csv", index=False, sep=";")
        done = accepted("predict", model, tmp_path / "t.csv", *out)
        assert f"counts as missing, in row 5 (line 6), {value!r}" in done.output
        said = refused("predict", model, tmp_path / "t.csv", *out, "--strict")
        expected = (
            f"row 5 (line 6), {value!r}: column {column!r} held {what} when the model was fitted; give {what}"
        )
        assert said == f"{tmp_path / 't.csv'}, {expected}"


def test_dates_are_learnt_from_the_training_rows(table: Path) -> None:
    own = read_table(table, TableSpec(label="kind", missing=["k.A."]))
    late = np.flatnonzero(own.features["day"] >= pd.Timestamp("2022-01-01"))
    parts = own.fit_encoding(late).dates["day"]
    assert parts.parts == ("month", "weekday", "yearday", "days")
    assert parts.reference == own.features["day"].iloc[late].min().isoformat()
    found = own.views(own.fit_encoding(late), np.arange(N))["S"]
    assert np.isfinite(found.numeric).all()
    assert isinstance(own, UserTable)


def test_a_prepared_table_has_them_too(table: Path, tmp_path: Path) -> None:
    made = user_table.prepare(table, TableSpec(label="kind", missing=["k.A."]), seed=0)
    store.write(made, tmp_path / "prepared")
    own = read_prepared(tmp_path / "prepared")
    fit(own, "2wl", rounds=2).bundle.save(tmp_path / "bundle")
    loaded = bundle.load(tmp_path / "bundle")
    frame = store.read_frame(tmp_path / "prepared", "val")
    rows = raw_rows(loaded.card, frame)
    assert set(rows) == {"price", "share", "day"}
    said = loaded.predicted_of(own, np.flatnonzero(own.split == "val"))
    np.testing.assert_array_equal(loaded.predict(rows).iloc[:, 1:], said)
    train_rows = raw_rows(loaded.card, store.read_frame(tmp_path / "prepared", "train"))
    found = drift.compare(loaded.card, train_rows, {}, table).set_index("column")
    assert found.loc["day", "kind"] == "date" and (found["drift"] == "").all()
